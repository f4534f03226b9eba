"""The operands of a variable-size batch as columns: where every matrix lies, checked in array code.

Three kinds come in: lists of NumPy (or DLPack) matrices, `RaggedBatch` on the host, and
`RaggedBatch` on a device. All become `Matrices`: addresses (host) or element offsets (device),
sizes and strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays import addresses
from tilewright.arrays.addresses import Column, Columns, numbers_of, row_major
from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.views import check_dtype, view
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.dtypes import COMPLEX, NARROW
from tilewright.facts.limits import MOST
from tilewright.inputs import narrow
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.wording import short


@dataclass(frozen=True, slots=True)
class Matrices:
    """Columns of one operand. `base` is None for host memory, else the device array they lie in.

    `held` keeps host memory alive. `kinds` are the caller's arrays where they are not all NumPy's
    own, so that results can be like them.
    """

    at: Columns
    dtype: Any  # NumPy's, or the `ElementType` of bfloat16
    base: Array | None
    held: Any
    kinds: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.at.rows)


def matrices(values: Any, name: str) -> Matrices:
    """The columns of a list of matrices or a RaggedBatch. No element is copied.

    Raises OperandError, DtypeError and ShapeError with the index of the matrix that does not fit.
    """
    if isinstance(values, RaggedBatch):
        if isinstance(values.flat, Array):
            view(values.flat, f"{name}.flat")  # raises where it is mapped
        return _ragged(values)
    if isinstance(values, np.ndarray | Array | memoryview) or not isinstance(values, Sequence):
        raise OperandError(
            f"{name}={type(values).__name__}: accepted are a list of matrices and a RaggedBatch"
        )
    # Any other sequence may make its elements when it is asked: they are asked for once, and held.
    given = values if type(values) in (list, tuple) else list(values)
    if given and isinstance(given[0], np.ndarray) and given[0].dtype.char not in "efdFD":
        kind = narrow.kind_of(given[0], name)
        if kind is not None:
            return Matrices(*seen_as(given, name, kind), kinds=given)
    plain = set(map(type, given)) <= {np.ndarray}
    arrays = given if plain else _host_arrays(given, name)
    if not arrays:
        dtype = np.dtype(np.float32)
        found = addresses.read([], dtype)
        assert isinstance(found, Columns)
        return Matrices(found, dtype, None, ())
    dtype = arrays[0].dtype
    check_dtype(dtype, f"{name}[0]", more=() if name == "out" else NARROW)
    held = tuple(arrays)
    found = addresses.read(held, dtype)
    if isinstance(found, int):
        _raise_odd(held[found], f"{name}[{found}]", dtype)
    assert isinstance(found, Columns)
    return Matrices(found, dtype, None, held, None if plain else given)


def seen_as(values: Sequence[Any], name: str, dtype: Any) -> tuple[Columns, Any, None, Any]:
    """What `Matrices` holds of a list of bfloat16 or int8."""
    at, held = narrow.columns(values, name, dtype)
    return at, dtype, None, held


def taken(operand: Matrices, at: npt.NDArray[np.int64]) -> Matrices:
    """The matrices at these indices."""
    return replace(operand, at=operand.at.take(at))


def per_problem(value: Any, count: int, name: str, dtype: Any) -> npt.NDArray[Any]:
    """A real number for all problems, or one each, as a column; a complex one where `dtype` is."""
    array = numbers_of(value)
    wide = np.complex128 if dtype.name in COMPLEX else np.float64
    if array.dtype.kind not in ("iufc" if wide is np.complex128 else "iuf") or array.ndim > 1:
        kind = "number" if wide is np.complex128 else "real number"
        raise ArgumentError(f"{name}={short(value)}: accepted are a {kind} or one a problem")
    if array.ndim == 1 and len(array) != count:
        raise ArgumentError(f"{name}: has {len(array)} numbers; must have {count}, one a problem")
    return np.broadcast_to(array.astype(wide), (count,))


def flags(value: Any, count: int, name: str) -> npt.NDArray[np.bool_]:
    """True or False for all problems, or one each, as a column."""
    array = numbers_of(value)
    if array.dtype != np.bool_ or array.shape not in ((), (count,)):
        raise ArgumentError(f"{name}={short(value)}: accepted are True, False, or {count} of them")
    return np.broadcast_to(array, (count,))


def transposed(operand: Matrices, which: npt.NDArray[np.bool_]) -> Matrices:
    """The operand with the marked matrices transposed."""
    if not which.any():
        return operand
    at, swapped = operand.at, operand.at.swapped
    chosen = [
        np.where(which, getattr(swapped, name), getattr(at, name))
        for name in ("rows", "cols", "row", "col")
    ]
    return replace(operand, at=Columns(at.address, *chosen))


def factors(
    a: Matrices,
    b: Matrices,
    *,
    alpha: Any,
    beta: Any,
    transpose_a: Any,
    transpose_b: Any,
    out: Any,
    results: int | None = None,
) -> tuple[Matrices, Matrices, npt.NDArray[Any], npt.NDArray[Any]]:
    """Both operands with transposes applied, alpha and beta one a problem; checked together.

    `results` is how many beta there are where they are fewer than problems (sums.py).
    """
    count = len(a)
    if len(b) != count:
        raise ShapeError(f"b: has {len(b)} matrices; must have {count}, as many as a")
    a = transposed(a, flags(transpose_a, count, "transpose_a"))
    b = transposed(b, flags(transpose_b, count, "transpose_b"))
    check_pairs(a, b)
    scale = per_problem(alpha, count, "alpha", a.dtype)
    keep = per_problem(beta, count if results is None else results, "beta", a.dtype)
    narrow.check_factors("alpha", scale, a.dtype.name)
    narrow.check_factors("beta", keep, a.dtype.name)
    if out is None and keep.any():
        raise ArgumentError(f"beta={short(beta)}: needs out=, the matrices that it scales")
    return a, b, scale, keep


def bias_vectors(bias: Any, count: int) -> Sequence[Any]:
    """A list with a vector or None for each problem. Raises ArgumentError, ShapeError."""
    if not isinstance(bias, Sequence):
        shown = type(bias).__name__ if hasattr(bias, "shape") else short(bias)
        raise ArgumentError(f"bias={shown}: accepted is a list of vectors or None, one a problem")
    if len(bias) != count:
        raise ShapeError(f"bias: has {len(bias)} vectors; must have {count}, one a problem")
    return bias


def check_pairs(a: Matrices, b: Matrices) -> None:
    """Raise where a problem's two matrices do not fit each other, naming the first such problem."""
    if len(a) and a.dtype != b.dtype:
        raise DtypeError(f"b.dtype={b.dtype.name!r}: must equal a.dtype={a.dtype.name!r}")
    wrong = a.at.cols != b.at.rows
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ShapeError(
            f"b[{i}]: has {b.at.rows[i]} rows; must have {a.at.cols[i]}, the columns of a[{i}]"
        )
    sizes = np.stack((a.at.rows, a.at.cols, b.at.cols))
    if sizes.max(initial=0) > MOST:
        i = int(np.argmax((sizes > MOST).any(axis=0)))
        raise ShapeError(
            f"a[{i}], b[{i}]: m, k and n are {', '.join(map(str, sizes[:, i].tolist()))}; accepted"
            " are sizes from 0 to 2^31 - 64"
        )
    if device_of(a) != device_of(b):
        raise OperandError("b: lies elsewhere than a; both on the host, or both on one device")


def check_results(c: Matrices, a: Matrices, b: Matrices, first: Column | None = None) -> None:
    """Raise where `out` is not what the products of a and b can be written to.

    `first` has the first product of every result where several are added into one.
    """
    rows, cols = (a.at.rows, b.at.cols) if first is None else (a.at.rows[first], b.at.cols[first])
    if len(c) != len(rows):
        raise ShapeError(f"out: has {len(c)} matrices; must have {len(rows)}")
    if len(c):
        narrow.check_results(c.dtype, a.dtype)
    if device_of(a) != device_of(c):
        raise OperandError("out: lies elsewhere than a; both on the host, or both on one device")
    wrong = (c.at.rows != rows) | (c.at.cols != cols)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ShapeError(
            f"out[{i}].shape=({c.at.rows[i]}, {c.at.cols[i]}): must be ({rows[i]}, {cols[i]})"
        )
    if isinstance(c.held, RaggedBatch):
        if c.base is None and not c.held.host().flags.writeable:
            raise OperandError("out: is read-only; accepted is a writable RaggedBatch")
    elif c.base is None:
        for i, array in enumerate(c.held):
            if not array.flags.writeable:
                raise OperandError(f"out[{i}]: is read-only; accepted are writable matrices")


def device_of(part: Matrices) -> str:
    """The id of the device that an operand lies on, or "host"."""
    return "host" if part.base is None else part.base.device.id


def _ragged(batch: RaggedBatch) -> Matrices:
    base = batch.flat if isinstance(batch.flat, Array) else None
    start, item = 0, batch.dtype.itemsize
    if base is None:
        start = batch.flat.__array_interface__["data"][0]
    at = row_major(batch.rows, batch.cols, start + batch.offsets * item, item)
    return Matrices(at, batch.dtype, base, batch)


def _host_arrays(values: Sequence[Any], name: str) -> Sequence[NDArray]:
    found = []
    for index, value in enumerate(values):
        seen = view(value, f"{name}[{index}]")
        if not seen.host:
            raise OperandError(
                f"{name}[{index}]: lies on a device; put device matrices into a RaggedBatch"
            )
        found.append(seen.memory)
    return found


def _raise_odd(array: NDArray, name: str, dtype: np.dtype[Any]) -> None:
    if array.ndim != 2:
        raise ShapeError(f"{name}.shape={array.shape}: must have two dimensions")
    if array.dtype != dtype:
        raise DtypeError(f"{name}.dtype={str(array.dtype)!r}: must equal the first's, {dtype}")
    raise OperandError(f"{name}.strides={array.strides}: must be whole elements of {dtype}")
