"""Variable-size batches of bad input: one clear error that names the matrix, nothing written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import Device, GroupedPlan, RaggedBatch, explain, grouped_matmul, plan_grouped
from tilewright.errors import (
    ArgumentError,
    DeviceMemoryError,
    DtypeError,
    FileError,
    OperandError,
    OverlapError,
    ShapeError,
    TilewrightError,
)

MOST = 2**31 - 64
HUGE = 2**31 + 1


@pytest.fixture(params=["host", "opencl"])
def where(request: pytest.FixtureRequest) -> Device | str:
    return "host" if request.param == "host" else request.getfixturevalue("opencl_device")


A, B = np.ones((4, 5), np.float32), np.ones((5, 3), np.float32)
BASE = np.ones(400, np.float32)
RECORDS = np.zeros((4, 3), [("flag", "i1"), ("value", "f4")])


def out_of(*shape: int, dtype: str = "float32") -> Any:
    return np.full(shape, 7, dtype)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def at_base(start: int, rows: int, cols: int) -> Any:
    return BASE[start : start + rows * cols].reshape(rows, cols)


def wide(rows: int, cols: int) -> Any:
    """A matrix of that size that takes four bytes."""
    return np.broadcast_to(np.float32(1), (rows, cols))


READ_ONLY = read_only(out_of(4, 3))
TWO = ["out[1]", "out[0]"]
INPUT = ["out", "shares memory"]
TOUCHING = [at_base(0, 4, 3), at_base(11, 4, 3)]
TURNED = [at_base(0, 3, 3), at_base(0, 3, 3).T]
WOVEN = [at_base(0, 4, 6)[:, :3], at_base(0, 4, 6)[:, 3:]]
MET = [at_base(9, 4, 3), out_of(4, 3)]
UPON_ITSELF = np.lib.stride_tricks.as_strided(BASE[100:], (4, 3), (8, 4))
BAD: list[tuple[str, Any, Any, dict[str, Any], type[TilewrightError], list[str]]] = [
    # Lengths and shapes.
    ("fewer b", [A, A], [B], {}, ShapeError, ["b: has 1", "2"]),
    ("fewer out", [A, A], [B, B], {"out": [out_of(4, 3)]}, ShapeError, ["out: has 1", "2"]),
    ("fewer biases", [A, A], [B, B], {"bias": [None]}, ShapeError, ["bias: has 1", "2"]),
    ("fewer alphas", [A, A], [B, B], {"alpha": [1.0]}, ArgumentError, ["alpha", "1", "2"]),
    ("more flags", [A], [B], {"transpose_a": [True] * 2}, ArgumentError, ["transpose_a", "1"]),
    ("inner sizes", [A, A, A], [B, B, A], {}, ShapeError, ["b[2]", "4 rows", "5"]),
    ("transposed inner", [A, A], [B, B], {"transpose_a": [False, True]}, ShapeError, ["b[1]"]),
    ("a vector", [A, A[0]], [B, B], {}, ShapeError, ["a[1].shape=(5,)", "two dimensions"]),
    ("three dimensions", [A], [B[None]], {}, ShapeError, ["b[0].shape=(1, 5, 3)"]),
    ("a scalar", [np.array(1, np.float32)], [B], {}, ShapeError, ["a[0].shape=()"]),
    ("out's shape", [A], [B], {"out": [out_of(3, 4)]}, ShapeError, ["out[0]", "(3, 4)", "(4, 3)"]),
    ("bias's shape", [A], [B], {"bias": [out_of(4)]}, ShapeError, ["bias[0]", "(4,)", "(3,)"]),
    ("a long k", [wide(1, HUGE)], [wide(HUGE, 1)], {}, ShapeError, ["0", str(HUGE)]),
    ("past 2^62", [wide(MOST, 1)] * 3, [wide(1, MOST)] * 3, {}, ShapeError, ["2^62"]),
    ("past all memory", [wide(2**30, 1)], [wide(1, 2**29)], {}, DeviceMemoryError, ["bytes"]),
    # Element types.
    ("integers", [A.astype(int)], [B], {}, DtypeError, ["a[0].dtype='int64'", "float32", "int8"]),
    ("objects", [A.astype(object)], [B], {}, DtypeError, ["a[0].dtype='object'", "float32"]),
    ("objects within", [A, A.astype(object)], [B, B], {}, DtypeError, ["a[1].dtype='object'"]),
    ("foreign bytes", [A.astype(">f4")], [B], {}, DtypeError, ["a[0].dtype='>f4'"]),
    ("mixed within", [A, A.astype("f8")], [B, B], {}, DtypeError, ["a[1].dtype='float64'"]),
    ("mixed sides", [A], [B.astype("f8")], {}, DtypeError, ["b.dtype='float64'", "float32"]),
    ("out's type", [A], [B], {"out": [out_of(4, 3, dtype="f8")]}, DtypeError, ["out.dtype"]),
    ("bias's type", [A], [B], {"bias": [np.ones(3)]}, ShapeError, ["bias[0]", "float64"]),
    # What is no list of matrices.
    ("one matrix", A, [B], {}, OperandError, ["a=ndarray", "list"]),
    ("a generator", (x for x in [A]), [B], {}, OperandError, ["a=generator", "list"]),
    ("nothing", None, [B], {}, OperandError, ["a=NoneType", "list"]),
    ("numbers", [1.0], [B], {}, OperandError, ["a[0]=1.0"]),
    ("text", "A", [B], {}, OperandError, ["a[0]='A'"]),
    ("no bias list", [A], [B], {"bias": 3}, ArgumentError, ["bias=3"]),
    ("records", [A], [B], {"out": [RECORDS["value"]]}, OperandError, ["out[0].strides"]),
    # Memory.
    ("read-only", [A], [B], {"out": [READ_ONLY]}, OperandError, ["out[0]", "read-only"]),
    ("one out twice, turned", [A[:3], A[:3]], [B, B], {"out": TURNED}, OverlapError, TWO),
    ("outs that touch", [A, A], [B, B], {"out": TOUCHING}, OverlapError, TWO),
    ("woven outs", [A, A], [B, B], {"out": WOVEN}, OverlapError, TWO),
    ("an out upon itself", [A], [B], {"out": [UPON_ITSELF]}, OverlapError, ["out[0]", "itself"]),
    ("out over a", [at_base(0, 4, 5)], [B], {"out": [at_base(19, 4, 3)]}, OverlapError, INPUT),
    ("out over b", [A], [at_base(0, 5, 3)], {"out": [at_base(2, 4, 3)]}, OverlapError, INPUT),
    ("another's a", [A, at_base(0, 4, 5)], [B, B], {"out": MET}, OverlapError, ["with a[1]"]),
    # Scalars and names.
    ("beta without out", [A], [B], {"beta": 1.0}, ArgumentError, ["beta=1.0", "out"]),
    ("one beta without out", [A, A], [B, B], {"beta": [0.0, 2.0]}, ArgumentError, ["beta", "out"]),
    ("alpha of text", [A], [B], {"alpha": "2"}, ArgumentError, ["alpha='2'", "real"]),
    ("complex alpha", [A], [B], {"alpha": 1j}, ArgumentError, ["alpha=1j", "real"]),
    ("uneven alphas", [A], [B], {"alpha": [[1], [1, 2]]}, ArgumentError, ["alpha=", "real"]),
    ("an order", [A], [B], {"order": "backwards"}, ArgumentError, ["order='backwards'", "given"]),
    ("an activation", [A], [B], {"activation": "tanh"}, ArgumentError, ["activation='tanh'"]),
    ("a flag of 1", [A], [B], {"transpose_a": 1}, ArgumentError, ["transpose_a=1", "True"]),
    ("flags of numbers", [A], [B], {"transpose_b": [0]}, ArgumentError, ["transpose_b=[0]"]),
    ("uneven flags", [A], [B], {"transpose_b": [[True], []]}, ArgumentError, ["transpose_b="]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "words"),
    [pytest.param(*rest, id=name.replace(" ", "-")) for name, *rest in BAD],
)
def test_bad_input_is_one_clear_error_and_nothing_is_written(
    a: Any,
    b: Any,
    options: dict[str, Any],
    error: type[TilewrightError],
    words: list[str],
    opencl_device: Device,
) -> None:
    held = [BASE, *(x for x in options.get("out", ()) if isinstance(x, np.ndarray))]
    before = [x.tobytes() for x in held]
    with pytest.raises(TilewrightError) as caught:
        grouped_matmul(a, b, device=opencl_device, **options)
    assert type(caught.value) is error
    assert all(word in str(caught.value) for word in words), caught.value
    assert [x.tobytes() for x in held] == before


def test_a_read_only_ragged_out_is_refused(where: Device | str) -> None:
    flat = read_only(np.full(12, 7, np.float32))
    out = RaggedBatch(flat, [4], [3], [0])
    with pytest.raises(OperandError, match=r"out.*read-only"):
        grouped_matmul([A], [B], out=out, device=where)
    assert (flat == 7).all()


def test_an_out_that_could_only_be_written_as_a_copy_is_refused(where: Device | str) -> None:
    """A subclass of ndarray in the list takes the slow way, which copies odd inputs."""
    records = np.zeros((4, 3), [("flag", "i1"), ("value", "f4")])
    odd = records["value"].view(np.matrix)
    with pytest.raises(OperandError, match=r"out\[0\].strides"):
        grouped_matmul([A], [B], out=[odd], device=where)
    assert not records["value"].any()


@pytest.mark.parametrize("dtype", ["int64", "bool", "object", ">f4"])
def test_a_ragged_batch_of_other_elements_is_refused(dtype: str) -> None:
    with pytest.raises(DtypeError, match="float32"):
        RaggedBatch(np.zeros(4, dtype), [2], [2], [0])


def plans() -> list[tuple[tuple[Any, Any, Any], dict[str, Any], type[TilewrightError], list[str]]]:
    return [
        (([1, 2], [1], [1]), {}, ShapeError, ["2, 1 and 1"]),
        (([1], [-3], [1]), {}, ShapeError, ["n[0]=-3", "0"]),
        (([1], [1], [float("nan")]), {}, ShapeError, ["k: not a number", "whole numbers"]),
        (([1.0], [1], [1]), {}, ShapeError, ["m: float64", "whole numbers"]),
        (([True], [1], [1]), {}, ShapeError, ["m: bool", "whole numbers"]),
        (([[1]], [1], [1]), {}, ShapeError, ["m", "whole numbers"]),
        (([[1], [1, 2]], [1], [1]), {}, ShapeError, ["m", "whole numbers"]),
        ((["1"], [1], [1]), {}, ShapeError, ["m", "whole numbers"]),
        ((5, [1], [1]), {}, ShapeError, ["m", "whole numbers"]),
        (([2**31], [1], [1]), {}, ShapeError, ["m[0]=2147483648", "2^31"]),
        (
            (np.array([1, 2**63], np.uint64), [1, 1], [1, 1]),
            {},
            ShapeError,
            ["m[1]=9223372036854775808", "2^31"],
        ),
        (([2**70], [1], [1]), {}, ShapeError, ["m", "whole numbers"]),
        (([1], [1], [1]), {"order": "backwards"}, ArgumentError, ["order='backwards'"]),
        (([1], [1], [1]), {"dtype": "int16"}, DtypeError, ["dtype='int16'", "float32"]),
    ]


@pytest.mark.parametrize(("sizes", "options", "error", "words"), plans())
def test_sizes_that_cannot_be_planned_are_one_clear_error(
    sizes: tuple[Any, Any, Any],
    options: dict[str, Any],
    error: type[TilewrightError],
    words: list[str],
    opencl_device: Device,
) -> None:
    with pytest.raises(TilewrightError) as caught:
        plan_grouped(*sizes, device=opencl_device, **options)
    assert type(caught.value) is error
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "make", [lambda: ([], [], []), lambda: (np.empty(0), np.empty(0), np.empty(0))]
)
def test_no_sizes_make_an_empty_plan(make: Callable[[], Any], where: Device | str) -> None:
    plan = plan_grouped(*make(), device=where)
    assert plan.order.tolist() == []
    assert plan.buckets == ()
    assert plan.bind([], [])() == []


# Files that are no plans.

DOCUMENT = {
    "format": "tilewright-grouped-plan-1",
    "device": "?",
    "dtype": "float32",
    "order": "given",
    "m": [1],
    "n": [1],
    "k": [1],
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        json.dumps({**DOCUMENT, "format": "else"}),
        json.dumps({key: value for key, value in DOCUMENT.items() if key != "k"}),
        json.dumps({**DOCUMENT, "m": [1, 2]}),
        json.dumps({**DOCUMENT, "m": [-1]}),
        json.dumps({**DOCUMENT, "m": [1.5]}),
        json.dumps({**DOCUMENT, "m": [float("nan")]}),
        json.dumps({**DOCUMENT, "m": [2**70]}),
        json.dumps({**DOCUMENT, "m": ["1"]}),
        json.dumps({**DOCUMENT, "m": [[1], [1, 2]]}),
        json.dumps({**DOCUMENT, "dtype": "int16"}),
        json.dumps({**DOCUMENT, "order": "backwards"}),
        json.dumps({**DOCUMENT, "order": []}),
    ],
)
def test_a_file_that_is_no_plan_is_a_file_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"plan\.json"):
        GroupedPlan.load(path, device="host")


def test_a_plan_that_is_not_there_is_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        GroupedPlan.load(tmp_path / "none.json", device="host")


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_an_output_whose_lines_run_into_each_other_is_refused(step: int, turned: bool) -> None:
    """Lines of three elements that begin one or two apart share some; three apart, none."""
    line = np.full(16, 7, np.float32)
    out = np.lib.stride_tricks.as_strided(line, (3, 3), (4 * step, 4))
    out = out.T if turned else out
    ones = np.ones((3, 3), np.float32)
    if step == 3:
        grouped_matmul([ones], [ones], out=[out], device="host")
        assert (out == 3).all()
        return
    with pytest.raises(OverlapError):
        grouped_matmul([ones], [ones], out=[out], device="host")
    assert (line == 7).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda path: RaggedBatch.load(path),
        lambda path: GroupedPlan.load(path),
        lambda path: RaggedBatch.empty([(2, 3)]).save(path),
        lambda path: plan_grouped([2], [2], [2]).save(path),
    ],
)
@pytest.mark.parametrize("path", [3, None, 2.5, b"x.npz", ["x.npz"]])
def test_a_path_that_is_none_is_named(call: Callable[[Any], Any], path: Any) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f"path={path!r}: accepted is the path")):
        call(path)


def test_an_option_that_is_none_is_named_with_those_that_are(where: Device | str) -> None:
    a = np.ones((2, 2), np.float32)
    with pytest.raises(ArgumentError, match="foo=1: no option here; accepted are out, alpha"):
        explain(a, a, foo=1)
    plan = plan_grouped([2], [2], [2], device=where)
    with pytest.raises(ArgumentError, match="foo=1: no option here; accepted are alpha, beta"):
        plan.bind([a], [a], foo=1)


def test_more_tiles_than_can_be_launched_are_no_engine_s(opencl_device: Device) -> None:
    """It says why, and NumPy's loop is what stays."""
    said = plan_grouped([MOST], [MOST], [MOST], device=opencl_device).explain()
    assert "because    a loop of numpy.matmul, as given" in said
    assert "rejected   opencl: m, n: 2.09e+13 tiles in all" in said
