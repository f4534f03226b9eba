"""Whatever sequence or subclass the matrices come in: read once, held, and never misread."""

from __future__ import annotations

from collections import UserList, deque
from collections.abc import Sequence
from threading import Thread
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import Device, RaggedBatch, grouped_matmul, matmul, plan_grouped
from tilewright.errors import (
    ArgumentError,
    DtypeError,
    KernelError,
    OperandError,
    OverlapError,
    ShapeError,
)

COUNT = 60


class Lazy(Sequence[Any]):
    """Makes its matrices when it is asked for them, and keeps none."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: Any) -> Any:
        return np.array(self.base[range(len(self.base))[index]])


class Doubling(list[Any]):
    """A list whose elements are others than those in its memory."""

    def __getitem__(self, index: Any) -> Any:
        return 2 * super().__getitem__(index)

    def __iter__(self) -> Any:
        return (2 * x for x in super().__iter__())


class LazyTuple(tuple[Any, ...]):
    """The same of tuples."""

    __slots__ = ()

    def __iter__(self) -> Any:
        return (2 * x for x in super().__iter__())


def drawn() -> tuple[Any, Any]:
    generator = np.random.default_rng(4)
    shape = (COUNT, 9, 9)
    return generator.random(shape, np.float32), generator.random(shape, np.float32)


SEQUENCES: dict[str, tuple[Any, float]] = {
    "lazy": (Lazy, 1.0),
    "user list": (lambda x: UserList(list(x)), 1.0),
    "deque": (lambda x: deque(list(x)), 1.0),
    "tuple": (tuple, 1.0),
    "list of rows of a memory map": (lambda x: [np.asarray(memoryview(y)) for y in x], 1.0),
    "subclass of list": (lambda x: Doubling(list(x)), 2.0),
    "subclass of tuple": (lambda x: LazyTuple(list(x)), 2.0),
}


@pytest.fixture(params=["host", "opencl"])
def where(request: pytest.FixtureRequest, opencl_device: Device) -> Any:
    return "host" if request.param == "host" else opencl_device


@pytest.mark.parametrize("kind", SEQUENCES)
def test_every_sequence_is_read_as_python_reads_it(kind: str, where: Any) -> None:
    make, factor = SEQUENCES[kind]
    a, b = drawn()
    wanted = [np.float64(factor) * x @ y for x, y in zip(np.float64(a), b, strict=True)]
    sizes = [9] * COUNT
    run = plan_grouped(sizes, sizes, sizes, device=where).bind(make(a), list(b))
    for got in (grouped_matmul(make(a), list(b), device=where), run(), run()):
        np.testing.assert_allclose(np.array(got), wanted, rtol=1e-5)
    turned = grouped_matmul(list(b), make(a), device=where)
    wanted = [y @ x * factor for x, y in zip(np.float64(a), b, strict=True)]
    np.testing.assert_allclose(np.array(turned), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "values", [memoryview(b"abc"), "abc", {1: 2}, iter([]), np.ones((2, 3, 3))]
)
def test_what_is_no_sequence_of_matrices_is_refused(values: Any) -> None:
    with pytest.raises(OperandError, match="accepted are"):
        grouped_matmul(values, [np.ones((3, 3), "f")] * 2)


def test_a_list_that_another_thread_changes_is_held_as_it_was_read() -> None:
    a, b = drawn()
    first, second = list(a), list(a + 1)
    changing, going = list(first), [True]

    def change() -> None:
        while going:
            changing[:] = second
            changing[:] = [x.copy() for x in first]

    thread = Thread(target=change)
    thread.start()
    try:
        for _ in range(100):
            got = grouped_matmul(changing, list(b), device="host")
            for x, y, z in zip(got, a, b, strict=True):
                near = [np.allclose(x, w @ z, atol=1e-4) for w in (y, y + 1)]
                assert any(near)
    finally:
        going.clear()
        thread.join()


def test_matrix_and_memmap_are_plain_arrays_everywhere(tmp_path: Any, where: Any) -> None:
    a, b = (x[0] for x in drawn())
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=a.shape)
    mapped[...] = a
    for kind in (np.asmatrix(a), mapped):
        for options in ({}, {"activation": "gelu"}, {"bias": a[0], "alpha": 2.0}):
            wanted = matmul(a, b, device=where, **options)
            got = matmul(kind, np.asmatrix(b), device=where, **options)
            np.testing.assert_array_equal(got, wanted)
            listed = {**options, "bias": [options["bias"]]} if "bias" in options else options
            got = grouped_matmul([kind], [np.asmatrix(b)], device=where, **listed)[0]
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
    out = np.asmatrix(np.zeros((9, 9), "f"))
    assert matmul(a, b, out=out, activation="relu", device=where) is out
    np.testing.assert_allclose(np.asarray(out), a @ b, rtol=1e-5)


class Metres(np.ndarray):
    """An array that gives products a meaning of its own."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("asked")


@pytest.mark.parametrize("kind", [np.ma.masked_array, lambda x: x.view(Metres)])
@pytest.mark.parametrize("place", ["a", "b", "out", "bias"])
def test_arrays_that_are_more_than_their_elements_are_refused(kind: Any, place: str) -> None:
    operands: dict[str, Any] = {
        "a": np.ones((3, 3), "f"),
        "b": np.ones((3, 3), "f"),
        "out": np.full((3, 3), 7, "f"),
        "bias": np.ones(3, "f"),
    }
    special = {**operands, place: kind(operands[place])}
    with pytest.raises(OperandError, match=rf"{place}=.*accepted are plain arrays"):
        matmul(**special)
    with pytest.raises(OperandError, match=rf"{place}\[0\]=.*accepted are plain arrays"):
        grouped_matmul(**{name: [value] for name, value in special.items()})
    assert (operands["out"] == 7).all()


@pytest.mark.parametrize("kind", [np.ma.masked_array, lambda x: x.view(Metres)])
@pytest.mark.parametrize(
    "make",
    [
        lambda x: tilewright.asarray(x, device="host"),
        lambda x: RaggedBatch(x.reshape(-1), [3], [3], [0]),
        lambda x: RaggedBatch.from_rows(x, [0, 1, 3]),
        lambda x: RaggedBatch.from_list([x]),
    ],
)
def test_no_container_takes_arrays_that_are_more_than_their_elements(kind: Any, make: Any) -> None:
    with pytest.raises(OperandError, match="accepted are plain arrays"):
        make(kind(np.ones((3, 3), "f")))


@pytest.mark.parametrize("matrices", [3, [["x"]], [[[1.0], [1.0, 2.0]]], [None]])
def test_what_is_no_list_of_arrays_makes_no_batch(matrices: Any) -> None:
    with pytest.raises((OperandError, ShapeError, DtypeError), match=r"matrices|dtype"):
        RaggedBatch.from_list(matrices)


def test_batches_are_made_of_every_kind_of_sequence() -> None:
    given = np.arange(12, dtype="f").reshape(2, 3, 2)
    for matrices in (list(given), tuple(given), given, Lazy(given), iter(given)):
        batch = RaggedBatch.from_list(matrices)
        assert [one.tolist() for one in batch] == given.tolist()


@pytest.mark.parametrize("index", [slice(0, 1), 1.0, "0", None])
def test_an_index_of_a_batch_is_a_whole_number(index: Any) -> None:
    with pytest.raises(ArgumentError, match=r"index=.*whole numbers"):
        RaggedBatch.from_list([np.ones((2, 2), "f")])[index]


@pytest.mark.parametrize("name", ["activation", "order"])
@pytest.mark.parametrize("value", [3, ["relu"], np.array(["relu", "auto"])])
def test_an_option_that_is_no_name_is_refused_by_name(name: str, value: Any) -> None:
    x = np.ones((2, 2), "f")
    with pytest.raises(ArgumentError, match=f"{name}="):
        grouped_matmul([x], [x], **{name: value})


@pytest.mark.parametrize("name", ["precision", "kernel"])
def test_bound_plans_refuse_a_gpus_options_as_the_call_does(name: str, where: Any) -> None:
    x = np.ones((2, 2), "f")
    plan = plan_grouped([2], [2], [2], device=where)
    assert (plan.bind([x], [x], **{name: None})()[0] == 2).all()
    engine = "native" if where == "host" else "opencl"
    refusal = {
        "precision": (ArgumentError, "precision='tf32': accepted is None"),
        "kernel": (KernelError, f"kernel='tf32': '.*' knows '{engine}'"),
    }
    error, words = refusal[name]
    with pytest.raises(error, match=words):
        plan.bind([x], [x], **{name: "tf32"})


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_no_imaginary_part_is_dropped(dtype: str) -> None:
    with pytest.raises(DtypeError, match=r"value\.dtype='complex.*imaginary part"):
        tilewright.asarray(np.ones((2, 2), dtype), "float32", "host")


@pytest.mark.parametrize("other", ["a", "b", "bias"])
def test_out_over_any_input_is_refused_by_every_call(other: str, where: Any) -> None:
    memory = np.full((64, 64), 7, "f")
    out = memory[:32, :32]
    inputs: dict[str, Any] = {
        "a": memory[16:48, :16],
        "b": memory[16:32, 16:48],
        "bias": memory[3, :32],
    }
    clear: dict[str, Any] = {
        "a": np.ones((32, 16), "f"),
        "b": np.ones((16, 32), "f"),
        "bias": np.ones(32, "f"),
    }
    chosen = {**clear, other: inputs[other]}
    with pytest.raises(OverlapError, match=f"with {other}"):
        matmul(**chosen, out=out, device=where)
    listed = {name: [value] for name, value in chosen.items()}
    with pytest.raises(OverlapError, match=rf"shares memory with {other}\[0\]"):
        grouped_matmul(**listed, out=[out], device=where)
    plan = plan_grouped([32], [32], [16], device=where)
    with pytest.raises(OverlapError, match=rf"shares memory with {other}\[0\]"):
        plan.bind(**listed, out=[out])
    assert (memory == 7).all()


@pytest.mark.parametrize("strides", [(4, 4), (8, 4), (4, 8), (0, 4), (4, 0), (12, 8), (-8, 4)])
def test_an_out_that_overlaps_itself_is_refused_by_every_call(
    strides: tuple[int, int], where: Any
) -> None:
    base = np.full(400, 7, "f")
    out = np.lib.stride_tricks.as_strided(base[100:], (8, 8), strides)
    a = np.ones((8, 8), "f")
    with pytest.raises(OverlapError):
        matmul(a, a, out=out, device=where)
    with pytest.raises(OverlapError):
        grouped_matmul([a], [a], out=[out], device=where)
    assert (base == 7).all()


@pytest.mark.parametrize(("shape", "strides"), [((2, 3), (12, 8)), ((3, 2), (8, 12))])
def test_an_out_whose_elements_lie_between_each_other_is_written_by_every_call(
    shape: tuple[int, int], strides: tuple[int, int], where: Any
) -> None:
    """Rows and columns cross, but no two elements meet; what lies between is left alone."""
    rng = np.random.default_rng(5)
    a, b = rng.random((shape[0], 7), "f"), rng.random((7, shape[1]), "f")
    plan = plan_grouped([shape[0]], [shape[1]], [7], device=where)
    for run in (
        lambda out: matmul(a, b, out=out, device=where),
        lambda out: grouped_matmul([a], [b], out=[out], device=where),
        lambda out: plan.bind([a], [b], [out])(),
    ):
        base, wanted = np.full(20, 7, "f"), np.full(20, 7, "f")
        run(np.lib.stride_tricks.as_strided(base, shape, strides))
        np.lib.stride_tricks.as_strided(wanted, shape, strides)[:] = a @ b
        np.testing.assert_allclose(base, wanted, rtol=1e-6)


def test_an_out_of_a_batch_whose_matrices_meet_is_refused() -> None:
    base = np.full(400, 7, "f")
    a = np.ones((4, 3, 3), "f")
    out = np.lib.stride_tricks.as_strided(base, (4, 3, 3), (4, 12, 4))
    with pytest.raises(OverlapError):
        tilewright.matmul(a, a, out=out)
    apart = np.lib.stride_tricks.as_strided(base, (4, 3, 3), (12, 48, 4))  # rows dealt in turns
    np.testing.assert_array_equal(tilewright.matmul(a, a, out=apart), a @ a)


def test_one_number_in_place_of_sizes_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match=r"m=2: accepted are lists of whole numbers.*m=\[2\]"):
        plan_grouped(2, 3, 4)  # type: ignore[arg-type]


class Changing:
    """An array with DLPack that does something where it is read, as another thread might."""

    def __init__(self, held: Any, change: Any) -> None:
        self.held, self.change, self.shape = held, change, held.shape

    def __dlpack__(self, **options: Any) -> Any:
        self.change()
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()


@pytest.mark.parametrize("name", ["a", "b", "bias", "out"])
@pytest.mark.parametrize("count", [1, 3, 9])
@pytest.mark.parametrize("bound", [False, True])
def test_a_list_that_is_emptied_while_it_is_read_is_multiplied_as_it_was(
    bound: bool, count: int, name: str
) -> None:
    if bound and name == "out":
        pytest.skip("the callable returns that list as it is by then")
    rng = np.random.default_rng(count)
    a = [rng.random((4, 5), np.float32) for _ in range(count)]
    b = [rng.random((5, 3), np.float32) for _ in range(count)]
    out = [np.full((4, 3), np.nan, np.float32) for _ in range(count)]
    bias = [rng.random(3, np.float32) for _ in range(count)]
    wanted = [x.astype(float) @ y + z for x, y, z in zip(a, b, bias, strict=True)]
    given: dict[str, list[Any]] = {"a": a, "b": b, "bias": bias, "out": list(out)}
    given["a"] = [Changing(a[0], given[name].clear), *a[1:]]
    if name == "a":
        given["a"][0].change = given["a"].clear
    if bound:
        tilewright.plan_grouped([4] * count, [3] * count, [5] * count).bind(**given)()
    else:
        tilewright.grouped_matmul(**given)
    for x, y in zip(out, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)
