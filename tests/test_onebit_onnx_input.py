"""The one input of an ONNX file, and the sizes of values that follow from it: what is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_graphs import Graph

from tilewright import onebit
from tilewright.errors import FileError
from tilewright.onebit.onnx_model import parse_onnx


def read(batch: Any, *shape: int) -> Any:
    graph = Graph(*shape)
    graph.node("Relu", "x")
    return parse_onnx(graph.bytes(batch=batch))


@pytest.mark.parametrize(
    ("batch", "shape"),
    [
        (1, (3,)),
        (4, (3, 5, 7)),
        ("batch", (3, 5, 7)),
        (1, (65535,)),
        (4096, (65535,)),  # 2^28 elements less 4096
        (1 << 28, (1,)),
        ("batch", (256, 1024, 1024)),
    ],
)
def test_a_batch_of_features_or_images_is_taken(batch: Any, shape: tuple[int, ...]) -> None:
    found = read(batch, *shape)
    assert found.input_shape == shape
    assert found.batch == (None if isinstance(batch, str) else batch)


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
        (-1, (3,)),
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
