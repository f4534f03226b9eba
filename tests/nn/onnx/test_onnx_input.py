"""The one input of an ONNX file, and the sizes of values that follow from it: what is accepted."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_graphs import Graph
from tilewright import onebit
from tilewright.errors import ArgumentError, FileError
from tilewright.nn.onnx import check, load
from tilewright.nn.onnx.file import File, parsed_file
from tilewright.nn.onnx.operators import convert


def read(batch: Any, *shape: int) -> Any:
    graph = Graph(*shape)
    graph.node("Relu", "x")
    return parsed_file(graph.bytes(batch=batch), load.MEMORY)


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        (1, (3,)),
        (4, (3, 5, 7)),
        ("batch", (3, 5, 7)),
        (1, (65535,)),
        (4096, (65535,)),  # 2^28 elements less 4096
        (1 << 28, (1,)),
        (-1, (3,)),  # as some exporters say "any"
        ("batch", (256, 1024, 1024)),
    ],
)
def test_a_batch_of_features_or_images_is_taken(batch: Any, shape: tuple[int, ...]) -> None:
    found = read(batch, *shape)
    assert found.input_shape == shape
    assert found.batch == (batch if isinstance(batch, int) and batch > 0 else None)


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        (1, ()),
        (1, (3, 5)),
        (1, (3, 5, 7, 9)),
        (1, (65536,)),
        (4097, (65535,)),
        ((1 << 28) + 1, (1,)),
        ("batch", (257, 1024, 1024)),
        (2, (256, 1024, 1024)),
        (1, (3, 0, 7)),
    ],
)
def test_any_other_sizes_are_refused_by_name(batch: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(FileError, match=r"input 'x' is \[.*accepted are \[batch, features\]"):
        read(batch, *shape)


@pytest.mark.parametrize("shape", [[1, 2, 2], [1, 1, 1, 2, 2], [2, 2], [2, 2, 1, 1], [4, 1]])
def test_a_value_that_is_no_image_and_no_row_of_the_batch_is_refused(shape: list[int]) -> None:
    graph = Graph(4, 1, 1)
    relu = graph.node("Relu", "x")
    graph.node("Reshape", relu, graph.const(np.array(shape, np.int64)))
    with pytest.raises(FileError, match="'Reshape1'"):
        onebit.import_onnx(graph.bytes())


@pytest.mark.parametrize(
    ("before", "near"),
    [
        ([8.0, 0.5, 0.5 + 7e-4, 0.5 - 7e-4, 0.5 + 9e-4, 0.5 - 9e-4], [0, 1, 1, 1, 0, 0]),
        ([-8.0, 0.5 + 7e-4, 0.5 + 9e-4, 0.0, 1.0, 0.5], [0, 1, 0, 0, 0, 1]),
        ([np.inf, 0.5, 0.5 + 1e-7, 0.0, -np.inf, 0.5], [0, 1, 0, 0, 0, 1]),
        ([np.nan, 0.5, 0.5 + 1e-7, 0.0, 1.0, 0.5], [0, 1, 0, 0, 0, 1]),
    ],
    ids=["positive", "negative", "infinite", "not a number"],
)
def test_rounding_may_decide_a_sign_near_its_cut_alone(
    before: list[float], near: list[int]
) -> None:
    """A ten-thousandth of the largest value, and equality where none is the largest."""
    value = SimpleNamespace(height=1, width=1, channels=6)
    checked: Any = SimpleNamespace(signs={"sign": ("before", 0.5)})
    values = {"before": np.array([before])}
    found = check._near(checked, ("sign", None), values, value)  # type: ignore[arg-type]
    assert found is not None
    assert found.ravel().astype(int).tolist() == near
    order = np.array([5, 4, 3, 2, 1, 0])
    turned = check._near(checked, ("sign", order), values, value)  # type: ignore[arg-type]
    assert turned is not None
    assert turned.ravel().astype(int).tolist() == near[::-1]
    assert check._near(checked, ("other", None), values, value) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batch", "shape", "images"),
    [
        ("batch", (3,), 8),
        ("batch", (4, 16, 16), 4),
        ("batch", (5, 16, 16), 4),
        ("batch", (3, 64, 64), 1),
        (1, (3,), 8),
        (16, (3,), 16),
        (2, (3, 64, 64), 2),
    ],
)
def test_a_sample_has_a_few_images_and_no_more_than_tell_enough(
    batch: Any, shape: tuple[int, ...], images: int
) -> None:
    """4096 elements are enough, eight images at most, a whole batch at least; ever the same."""
    graph = read(batch, *shape)
    found = load._sample(graph, None, load.MEMORY)
    assert found.shape == (images, *shape)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, load._sample(graph, None, load.MEMORY))


def test_a_sample_of_a_files_own_batch_takes_no_more_than_it_may() -> None:
    """A file of a thousand bytes asked for 576 MiB before anything was compared with the limit."""
    graph = Graph(3, 4, 4)
    graph.node("Relu", "x")
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"a sample of its input takes about 603979776 bytes"):
            onebit.import_onnx(graph.bytes(batch=1 << 20), memory=16 << 20)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    needed = 12 * 100 * 3 * 4 * 4
    few = read(100, 3, 4, 4)
    assert len(load._sample(few, None, needed)) == 100
    with pytest.raises(FileError, match=f"memory={needed - 1} "):
        load._sample(few, None, needed - 1)


@pytest.mark.parametrize("kind", ["bounds", "weights", "factors"])
def test_no_file_has_types_that_do_not_go_together(kind: str) -> None:
    """ONNX's reference would compute with them, as NumPy does, and so would definitions."""
    graph = Graph(3, 4, 4)
    if kind == "bounds":
        graph.node("Clip", "x", graph.const(np.int64(1)))
    elif kind == "weights":
        graph.node("Conv", "x", graph.const(np.ones((2, 3, 1, 1))))
    else:
        graph.node("Mul", "x", graph.const(np.ones((3, 1, 1), np.bool_)))
    with pytest.raises(FileError, match=r"input 1 .*is float32, as|bool; accepted are float16"):
        parsed_file(graph.bytes(), load.MEMORY)


@pytest.mark.parametrize("sizes", [(1, 1, 3), (2, 3), (3,), (2, 3, 1, 1), (1, 3, 1, 1, 1)])
def test_what_a_converter_lets_pass_is_still_an_image_or_a_row_of_the_batch(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line of defence: a converter that forgot a case of its operator."""
    file = read(1, 3)
    given = (file.batch, *file.input_shape)
    monkeypatch.setattr(File, "shape", lambda self, name: given if name == "x" else sizes)
    with pytest.raises(FileError, match=r"'Relu0' .*gives \[.*accepted are images and rows"):
        convert(file)


def test_a_byte_is_little_memory_and_no_wrong_argument() -> None:
    graph = Graph(3)
    graph.node("Relu", "x")
    with pytest.raises(FileError, match="memory=1 "):
        onebit.import_onnx(graph.bytes(), memory=1)
    with pytest.raises(ArgumentError, match="memory=0: accepted are bytes, 1 and more"):
        onebit.import_onnx(graph.bytes(), memory=0)
