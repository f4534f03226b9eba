"""A checked product of arrays on a GPU: views, sizes, strides, and the batch that it is.

Leading dimensions are problems of one batch, or more rows where B is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.views import View
from tilewright.backends.cuda.machine import arrays, driver
from tilewright.backends.cuda.work import Columns, Ints, Work
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.facts.limits import MOST
from tilewright.inputs.checks import (
    broadcast_view,
    checked_activation,
    checked_name,
    checked_scalars,
    common_dtype,
    matrix_view,
    output_matrix,
    result_shape,
)
from tilewright.inputs.devices import resolve
from tilewright.inputs.overlap import check_apart, check_overlap

PRECISIONS = ("ieee", "tf32", "fp32x")


@dataclass(frozen=True, slots=True)
class Product:
    """A checked product: the batch it is, where it runs, and what the caller gets."""

    work: Work
    device: Device
    kernel: str | None
    result: Callable[[], Any]
    kind: Any
    shape: tuple[int, ...]


def prepare(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    device: Device | str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    accumulate: str | None = None,
) -> Product:
    """Check everything. Arguments and errors are those of `tilewright.matmul`."""
    scalars = checked_scalars(alpha, beta, out)
    activation = checked_activation(activation)
    a_view = matrix_view(arrays.view(a, "a"), transpose_a, row=True)
    b_view = matrix_view(arrays.view(b, "b"), transpose_b, row=False)
    dtype: Any = common_dtype(a_view, b_view)
    here = place(a_view, device)
    _same_gpu(a_view, b_view, "b")
    shape = result_shape(a_view, b_view)
    _check_sizes(*shape[-2:], a_view.shape[-1])
    _check_accumulate(accumulate, dtype.name)
    vectors = (len(a.shape) == 1, len(b.shape) == 1)
    if out is None:
        c_view, result = _new(shape, vectors, dtype, a_view, a)
    else:
        c_view, result = _given(out, shape, vectors, a_view), lambda: out
    views = {"a": broadcast_view(a_view, shape), "b": broadcast_view(b_view, shape), "c": c_view}
    if bias is not None:
        views["bias"] = _bias(bias, shape[-1], a_view)
    check_overlap(views)
    work = _work(
        _folded(views),
        scalars.alpha,
        scalars.beta,
        activation,
        checked_precision(precision, dtype.name),
    )
    return Product(work, here, kernel, result, a, _public(shape, vectors))


def checked_precision(precision: str | None, dtype: str) -> str:
    """ "ieee" for None. Only float32 has a choice."""
    if precision is None:
        return "ieee"
    if dtype != "float32":
        raise ArgumentError(f"precision={precision!r}: accepted is None for {dtype}")
    return checked_name("precision", precision, PRECISIONS)


def place(operand: View, device: Device | str | None) -> Device:
    """The GPU of an operand; a device that the caller named must be that one."""
    here = driver.device_of(operand.memory.ordinal)
    if device is not None and device != "cuda" and resolve(device).id != here.id:
        raise OperandError(f"device={device!r}: a lies on {here.id!r}")
    return here


def _check_sizes(*sizes: int) -> None:
    if max(sizes) > MOST:
        raise ShapeError(
            f"a, b: m, n and k are {', '.join(map(str, sizes))}; accepted are sizes from 0 to"
            " 2^31 - 64"
        )


def _check_accumulate(accumulate: str | None, dtype: str) -> None:
    """Sums of halves in half precision are allowed, and made in float32 all the same."""
    accepted = ("fp16",) if dtype == "float16" else ()
    if accumulate is not None and accumulate not in accepted:
        shown = "None or 'fp16'" if accepted else f"None for {dtype}"
        raise ArgumentError(f"accumulate={accumulate!r}: accepted is {shown}")


def _same_gpu(a: View, other: View, name: str) -> None:
    if other.memory != a.memory:
        raise OperandError(
            f"{name}: lies on cuda:{other.memory.ordinal}, a on cuda:{a.memory.ordinal}; accepted"
            " are arrays of one GPU in a call"
        )


def _new(
    shape: tuple[int, ...], vectors: tuple[bool, bool], dtype: Any, a: View, kind: Any
) -> tuple[View, Callable[[], Any]]:
    count = int(np.prod(shape, dtype=object))
    with arrays.stream_of(kind, a.memory.ordinal):
        made = arrays.empty(count, dtype, a.memory.ordinal)
    public = _public(shape, vectors)
    convert = arrays.like(kind)
    return arrays.view(made.view(shape), "out"), lambda: convert(made.view(public))


def _public(shape: tuple[int, ...], vectors: tuple[bool, bool]) -> tuple[int, ...]:
    """Of the result as the caller gets it: dimensions of vectors dropped."""
    rows = () if vectors[0] else (shape[-2],)
    return shape[:-2] + rows + (() if vectors[1] else (shape[-1],))


def _given(out: Any, shape: tuple[int, ...], vectors: tuple[bool, bool], a: View) -> View:
    c_view = arrays.view(out, "out")
    public = _public(shape, vectors)
    _same_gpu(a, c_view, "out")
    if c_view.shape != public:
        raise ShapeError(f"out.shape={c_view.shape}: must be {public}")
    if c_view.dtype != a.dtype:
        raise DtypeError(f"out.dtype={c_view.dtype.name!r}: must equal a.dtype={a.dtype.name!r}")
    check_apart("out", public, c_view.strides)
    return output_matrix(c_view, shape, vectors)


def _bias(bias: Any, n: int, a: View) -> View:
    found = arrays.view(bias, "bias")
    _same_gpu(a, found, "bias")
    if found.shape != (n,):
        raise ShapeError(f"bias.shape={found.shape}: must be ({n},), one a column")
    if found.dtype != a.dtype:
        raise DtypeError(f"bias.dtype={found.dtype.name!r}: must equal a.dtype={a.dtype.name!r}")
    if n > 1 and found.strides != (1,):
        raise OperandError(f"bias.strides={found.strides}: must be contiguous on a GPU")
    return found


def _folded(views: dict[str, View]) -> dict[str, View]:
    """Leading dimensions as rows, where B is the same for all and A and C lie row after row."""
    a, b, c = views["a"], views["b"], views["c"]
    if len(c.shape) == 2 or any(b.strides[:-2]) or 0 in c.shape:
        return views
    for part in (a, c):
        step = part.shape[-2] * part.strides[-2]
        for size, stride in zip(part.shape[-3::-1], part.strides[-3::-1], strict=True):
            if size > 1 and stride != step:
                return views
            step *= size
    rows = int(np.prod(c.shape[:-1]))
    if rows > MOST:
        return views
    flat = {
        name: View(
            part.memory, part.offset, (rows, part.shape[-1]), part.strides[-2:], part.dtype, False
        )
        for name, part in (("a", a), ("c", c))
    }
    once = View(b.memory, b.offset, b.shape[-2:], b.strides[-2:], b.dtype, False)
    return {**views, **flat, "b": once}


def _work(
    views: dict[str, View], alpha: float, beta: float, activation: str, precision: str
) -> Work:
    a, b, c = views["a"], views["b"], views["c"]
    columns = {name: _lead(views[name]) for name in "abc"}
    count = len(columns["c"].address)
    m, n = c.shape[-2:]
    bias = None
    if "bias" in views:
        at = views["bias"].offset * a.dtype.itemsize
        one = np.ones(count, np.int64)
        bias = Columns(one * at, one, one)
    return Work(
        a.memory.ordinal,
        np.full(count, m, np.int64),
        np.full(count, n, np.int64),
        np.full(count, b.shape[-2], np.int64),
        columns["a"],
        columns["b"],
        columns["c"],
        bias,
        np.full(count, alpha),
        np.full(count, beta),
        activation,
        a.dtype.name,
        precision,
        "auto",
        (),
    )


def _lead(part: View) -> Columns:
    """Where every matrix of an operand lies, leading dimensions unrolled in C order."""
    at: Ints = np.array([part.offset], np.int64)
    for size, step in zip(part.shape[:-2], part.strides[:-2], strict=True):
        at = np.add.outer(at, np.arange(size, dtype=np.int64) * step).reshape(-1)
    one = np.ones(len(at), np.int64)
    row, col = part.strides[-2:]
    return Columns(at * part.dtype.itemsize, one * row, one * col)
