"""`tilewright.ragged_matmul` of NumPy's arrays: checked, then by the host's own kernels or a loop.

The loop is NumPy's, a product a group: until machine code is compiled, without Numba, and where
`backends/host/ragged.py` predicts that a loop of a BLAS ends first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import invariant, ragged
from tilewright.errors import ArgumentError, DtypeError, OperandError, OverlapError, ShapeError
from tilewright.facts.limits import MOST
from tilewright.inputs.checks import check_shape
from tilewright.inputs.devices import host
from tilewright.inputs.overlap import SHARED, check_apart
from tilewright.wording import short

_DTYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))
_COUNTS = (np.dtype(np.int32), np.dtype(np.int64))


def product(
    x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: Any, alone: bool
) -> NDArray:
    """Arguments, results and errors are those of `tilewright.ragged_matmul`; arrays are NumPy's.

    `alone`: it is batch-invariant.
    """
    _check(x, w, offsets, bias, precision, alone)
    bounds = _bounds(x, w, offsets)
    groups = len(bounds) - 1
    sizes = (x.shape[0], w.shape[-1])
    shape = sizes if w.ndim == 3 else (groups, *sizes)
    if out is None:
        made = np.empty(shape, x.dtype)
        if w.ndim == 3:
            made[: bounds[0]] = 0
            made[bounds[-1] :] = 0
    else:
        _check_out(out, shape, {"x": x, "w": w, "offsets": offsets, "bias": bias})
        made = out
    if alone:
        _write_alone(x, w, bounds, bias, made)
    elif not _by_kernels(x, w, offsets, bias, made):
        _write(x, w, bounds, bias, made)
    return made


def _by_kernels(x: NDArray, w: NDArray, offsets: NDArray, bias: Any, out: NDArray) -> bool:
    """Whether the host's own kernels have multiplied."""
    item, of_rows = x.itemsize, w.ndim == 3
    given = (x, w, offsets, out) if bias is None else (x, w, offsets, out, bias)
    if not all(one.flags.aligned for one in given) or (item == 2 and out.strides[-1] != item):
        return False
    offsets = np.ascontiguousarray(offsets)
    bias = None if bias is None else np.ascontiguousarray(bias)
    kind = ragged.kind_of(
        x.dtype.name,
        (len(offsets), offsets.itemsize == 8),
        (x.shape, w.shape),
        (x.strides, w.strides, out.strides),
        clear=False,
        has_bias=bias is not None,
    )
    bound = ragged.bound(kind, host())
    if bound is None:
        return False
    place = 0 if bias is None else bias.ctypes.data
    places = (x.ctypes.data, w.ctypes.data, offsets.ctypes.data, place, out.ctypes.data)
    return not bound(*places, x.shape[0 if of_rows else 1], host().compute_units)


def _write(x: NDArray, w: NDArray, bounds: list[int], bias: Any, out: NDArray) -> None:
    for group, (begin, end) in enumerate(pairwise(bounds)):
        if w.ndim == 2:
            np.matmul(x[:, begin:end], w[begin:end], out=out[group])
            continue
        part = out[begin:end]
        np.matmul(x[begin:end], w[group], out=part)
        if bias is not None:
            part += bias[group]


def _write_alone(x: NDArray, w: NDArray, bounds: list[int], bias: Any, out: NDArray) -> None:
    """Each row in bits that no other decides; halves are summed in float32."""
    wide = np.promote_types(x.dtype, np.float32)
    for group, (begin, end) in enumerate(pairwise(bounds)):
        sums = np.empty((end - begin, out.shape[1]), wide)
        rows, matrix = x[begin:end].astype(wide, copy=False), w[group].astype(wide, copy=False)
        invariant.multiply(rows, matrix, sums, host().compute_units)
        out[begin:end] = sums if bias is None else sums + bias[group]


def _check(x: Any, w: Any, offsets: Any, bias: Any, precision: Any, alone: bool) -> None:
    for name, value in (("x", x), ("w", w), ("offsets", offsets), ("bias", bias)):
        if not isinstance(value, np.ndarray) and (value is not None or name != "bias"):
            raise OperandError(
                f"{name}={type(value).__name__}: accepted are NumPy arrays, as x is one"
            )
    if precision is not None:
        raise ArgumentError(f"precision={short(precision)}: accepted is None for NumPy arrays")
    if x.dtype not in _DTYPES:
        raise DtypeError(f"x.dtype={str(x.dtype)!r}: accepted are float16, float32, float64")
    if w.dtype != x.dtype:
        raise DtypeError(f"w.dtype={str(w.dtype)!r}: must equal x.dtype={str(x.dtype)!r}")
    if offsets.dtype not in _COUNTS:
        raise DtypeError(f"offsets.dtype={str(offsets.dtype)!r}: accepted are int32 and int64")
    if x.ndim != 2 or w.ndim not in (2, 3) or any(n > MOST for n in (*x.shape, *w.shape)):
        raise ShapeError(
            f"x.shape={x.shape}, w.shape={w.shape}: accepted are [t, k] by [g, k, n], and [m, t] by"
            " [t, n], of sizes below 2^31 - 63"
        )
    if x.shape[1] != w.shape[-2]:
        raise ShapeError(f"w.shape={w.shape}: must have {x.shape[1]} rows, the columns of x")
    if offsets.ndim != 1:
        raise ShapeError(f"offsets.shape={offsets.shape}: must have one dimension")
    if w.ndim == 3:
        _check_groups(x, w, offsets, bias)
    elif bias is not None:
        raise ArgumentError("bias: not with offsets along k; accepted is None")
    elif alone:
        raise ArgumentError(
            "batch_invariant=True: not with offsets along k, where every row of w is summed;"
            " accepted is False"
        )


def _check_groups(x: NDArray, w: NDArray, offsets: NDArray, bias: Any) -> None:
    """Of the first form: an end for each matrix of w, and its row of the bias."""
    groups, _, n = w.shape
    if len(offsets) not in (groups, groups + 1):
        raise ShapeError(
            f"offsets.shape=({len(offsets)},): must have {groups} ends, one a matrix of w, or"
            f" {groups + 1} with the first beginning"
        )
    if bias is not None:
        check_shape("bias", bias.shape, (groups, n), ", a row a group")
        if bias.dtype != x.dtype:
            raise DtypeError(f"bias.dtype={str(bias.dtype)!r}: must equal x.dtype={str(x.dtype)!r}")


def _check_out(out: Any, shape: tuple[int, ...], inputs: dict[str, Any]) -> None:
    """Raise where the product of these cannot be written there."""
    if not isinstance(out, np.ndarray):
        raise OperandError(f"out={type(out).__name__}: accepted are NumPy arrays, as x is one")
    check_shape("out", out.shape, shape)
    if out.dtype != inputs["x"].dtype:
        raise DtypeError(f"out.dtype={str(out.dtype)!r}: must equal x.dtype")
    if not out.flags.writeable:
        raise OperandError("out: is read-only; accepted is an array that may be written")
    check_apart("out", shape, out.strides)
    for name, value in inputs.items():
        if value is not None and np.may_share_memory(out, value):
            raise OverlapError(SHARED.format(name))


def _bounds(x: NDArray, w: NDArray, offsets: NDArray) -> list[int]:
    """Where the first group begins and where each ends. Raises ShapeError."""
    values: list[int] = offsets.tolist()
    most = x.shape[0] if w.ndim == 3 else x.shape[1]
    if w.ndim == 2 or len(values) == w.shape[0]:
        values.insert(0, 0)
    for group, (begin, end) in enumerate(pairwise(values)):
        if not 0 <= begin <= end <= most:
            raise ShapeError(
                f"offsets[group {group}]: goes from {begin} to {end}; must not decrease, begin"
                f" below 0 or run past the {most} rows"
            )
    return values
