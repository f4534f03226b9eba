"""bfloat16 and int8 in lists of the host's matrices: seen as plain memory, results of their kind.

    operands                                     results
    int8: NumPy's arrays, torch's tensors        int32, sums to 32 bits
    bfloat16: torch's tensors, ml_dtypes' arrays bfloat16, sums in float32

NumPy has no bfloat16: its elements are seen as int16 here, the name stands in `Matrices.dtype`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays import addresses, reused
from tilewright.arrays.addresses import Column, Columns, row_major
from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import plain
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.dtypes import NARROW, TYPES, result_of
from tilewright.wording import short

_INT32, _HALF = np.dtype(np.int32), np.dtype(np.int16)
_dtype_of = attrgetter("dtype")
Place = tuple[int, int, int]  # rows, columns, and the element that a matrix begins with


def stored(dtype: Any) -> np.dtype[Any]:
    """What NumPy sees elements of a type as."""
    return _HALF if dtype.name == "bfloat16" else dtype


def kind_of(first: Any, name: str) -> Any:
    """The type of a list's elements where its first array has one that is multiplied here: int8 or
    bfloat16, of results also int32; else None."""
    dtype = getattr(first, "dtype", None)
    found = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    accepted = (*NARROW, "int32") if name == "out" else NARROW  # int8 to say what it has to be
    if found not in accepted:
        return None
    return TYPES["bfloat16"] if found == "bfloat16" else np.dtype(found)


def columns(values: Sequence[Any], name: str, dtype: Any) -> tuple[Columns, tuple[NDArray, ...]]:
    """Where NumPy's arrays of this type lie. Raises DtypeError, OperandError, ShapeError."""
    kind = stored(dtype)
    held = tuple(values)
    if set(map(type, held)) != {np.ndarray}:
        held = tuple(_plain(value, f"{name}[{i}]") for i, value in enumerate(held))
    if dtype.name == "bfloat16":
        halves = {one for one in set(map(_dtype_of, held)) if one.name == "bfloat16"}
        held = tuple(one.view(kind) if one.dtype in halves else one for one in held)
    found = addresses.read(held, kind)
    if isinstance(found, int):
        _raise_odd(held[found], f"{name}[{found}]", dtype)
    assert isinstance(found, Columns)
    return found, held


def _plain(value: Any, name: str) -> NDArray:
    if not isinstance(value, np.ndarray):
        raise OperandError(f"{name}={short(value)}: must be an array as the first is")
    return plain(value, name)


def _raise_odd(array: NDArray, name: str, dtype: Any) -> None:
    if array.dtype != stored(dtype):
        shown = str(array.dtype)
        raise DtypeError(f"{name}.dtype={shown!r}: must equal the first's, {dtype.name}")
    if array.ndim != 2:
        raise ShapeError(f"{name}.shape={array.shape}: must have two dimensions")
    raise OperandError(f"{name}.strides={array.strides}: must be whole elements of {dtype.name}")


def room_for(
    rows: Column, cols: Column, dtype: Any, made: Callable[[NDArray, Sequence[Place]], list[Any]]
) -> tuple[Callable[[], list[Any]], Columns, Any, NDArray]:
    """New results of products of this type in one allocation: a list when asked for, where they
    lie, their type, and the memory, of which `made` makes arrays of the operands' kind."""
    kind = _INT32 if dtype.name == "int8" else dtype
    offsets, total = aligned_offsets(rows, cols, kind.itemsize)
    size = total * kind.itemsize
    none = f"out=None: the host cannot give {size} bytes for the results"
    flat = reused.flat(total, stored(kind), none)
    start = flat.__array_interface__["data"][0]
    at = row_major(rows, cols, start + offsets * kind.itemsize, kind.itemsize)

    @cache
    def results() -> list[Any]:
        return made(flat, list(zip(rows.tolist(), cols.tolist(), offsets.tolist(), strict=True)))

    return results, at, kind, flat


def bias_columns(
    vectors: Sequence[NDArray | None], widths: Column, dtype: Any
) -> tuple[Columns, tuple[NDArray, ...], Any]:
    """Vectors of results' type, or None, as matrices of one column. Raises ShapeError."""
    kind = _INT32 if dtype.name == "int8" else dtype
    rows: list[NDArray] = []
    for i, vector in enumerate(vectors):
        if vector is None:
            rows.append(np.empty((0, 1), stored(kind)))
            continue
        named = getattr(getattr(vector, "dtype", None), "name", None)
        fits = isinstance(vector, np.ndarray) and vector.dtype in (stored(kind),)
        if not fits and named != kind.name:
            raise DtypeError(f"bias[{i}].dtype={named!r}: must be {kind.name}")
        if vector.shape != (int(widths[i]),):
            raise ShapeError(f"bias[{i}].shape={vector.shape}: must be ({widths[i]},)")
        rows.append(np.ascontiguousarray(vector.view(stored(kind)))[:, np.newaxis])
    found = addresses.read(tuple(rows), stored(kind))
    assert isinstance(found, Columns)
    return found, tuple(rows), kind


def check_factors(name: str, value: npt.NDArray[Any], dtype: str) -> None:
    """Raise ArgumentError where int8's sums would be scaled by what is no int32."""
    if dtype != "int8":
        return
    wrong = (value != np.floor(value)) | (np.abs(value) > 2**31 - 1)
    if wrong.any():
        shown = value[int(np.argmax(wrong))]
        raise ArgumentError(f"{name}={shown}: accepted are whole numbers of 32 bits for int8")


def check_results(out: Any, a: Any) -> None:
    """Raise where `out` is not of the type that products of a's are."""
    wanted = result_of(a.name)
    if out.name != wanted:
        why = (
            f"must be {wanted!r}, of products of int8"
            if a.name == "int8"
            else (f"must equal a.dtype={a.name!r}")
        )
        raise DtypeError(f"out.dtype={out.name!r}: {why}")
