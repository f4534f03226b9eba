"""Reads shapes, strides and addresses of thousands of NumPy arrays as columns, in a few operations.

Asking every array for `__array_interface__` costs 1.2 µs, three times a problem: longer than a
small product takes. Read as here it is 0.05 µs. NumPy's C structure is part of its stable ABI, so
the numbers are read straight from memory (bytes after the Python object's header):

    data pointer 0    nd (int32) 8    dimensions* 16    strides* 24    base* 32    dtype* 40
    flags (int32) 48

(PyArrayObject_fields in numpy/ndarraytypes.h.) A list keeps the addresses of its elements in one
block, whose own address follows its length; a tuple keeps them behind itself. All are proven on
sample arrays before they are trusted; where they do not hold (another interpreter), every array is
asked instead.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
_HEADER = object.__basicsize__
_WORD = 8


@dataclass(frozen=True, slots=True)
class Columns:
    """One row a matrix: where it begins and its strides, in bytes; its rows and columns.

    `address` counts from zero, or from where the device array begins that the matrices lie in.
    """

    address: Column
    rows: Column
    cols: Column
    row: Column
    col: Column

    @property
    def swapped(self) -> Columns:
        """The transposes."""
        return Columns(self.address, self.cols, self.rows, self.col, self.row)

    def take(self, which: Column) -> Columns:
        """The matrices at these indices."""
        every = (self.address, self.rows, self.cols, self.row, self.col)
        return Columns(*(column[which] for column in every))


def row_major(rows: Column, cols: Column, address: Column, itemsize: int) -> Columns:
    """The columns of matrices without gaps, of elements of so many bytes."""
    return Columns(address, rows, cols, cols * itemsize, np.full(len(rows), itemsize))


def numbers_of(values: Any) -> npt.NDArray[Any]:
    """`values` as an array; one without a dimension where NumPy makes none (unlike lengths, tensors
    with gradients)."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        return np.array(None)


def read(arrays: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any]) -> Columns | int:
    """The columns of these 2-D arrays of one dtype, or the index of the first that is not one.

    Every element of `arrays` must be a NumPy array; dtypes are compared by identity first, as
    NumPy's built-in ones are single objects.
    """
    if not arrays:
        none = np.empty(0, np.int64)
        return Columns(none, none, none, none, none)
    return _read_memory(arrays, dtype) if layout_holds() else _read_slowly(arrays, dtype)


def _read_memory(arrays: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any]) -> Columns | int:
    at = _addresses(arrays) + _HEADER
    fields = _gather(at, 6)
    wrong = (fields[1] & 0xFFFFFFFF) != 2
    for index in np.flatnonzero(fields[5] != id(dtype)).tolist():
        wrong[index] |= arrays[index].dtype != dtype
    if wrong.any():
        return int(np.argmax(wrong))
    if np.array_equal(fields[3], fields[2] + 2 * _WORD):
        # NumPy keeps strides right behind dimensions, though it does not promise to.
        rows, cols, row, col = _gather(fields[2], 4)
    else:
        (rows, cols), (row, col) = _gather(fields[2], 2), _gather(fields[3], 2)
    return _whole_steps(Columns(fields[0], rows, cols, row, col), dtype.itemsize)


def _addresses(arrays: Sequence[npt.NDArray[Any]]) -> Column:
    """Where every array's Python object lies; their `id`, thirty times faster."""
    if type(arrays) is tuple:
        return _memory(id(arrays) + tuple.__basicsize__, len(arrays))
    if type(arrays) is list:
        length, block = _memory(id(arrays) + _HEADER, 2).tolist()
        if length == len(arrays):
            return _memory(block, length)
    return np.fromiter(map(id, arrays), np.int64, len(arrays))


def _memory(address: int, words: int) -> Column:
    buffer: Any = (ctypes.c_int64 * words).from_address(address)
    return np.frombuffer(buffer, np.int64)


def _gather(addresses: Column, words: int) -> npt.NDArray[np.int64]:
    """[words, len(addresses)]: the 64-bit words that start at each address."""
    low = int(addresses.min())
    # A view of memory from the lowest address on; only what is indexed is touched.
    span = (int(addresses.max()) - low) // _WORD + words
    memory = _memory(low, span)
    index = (addresses - low) // _WORD
    gathered: npt.NDArray[np.int64] = memory[index + np.arange(words)[:, np.newaxis]]
    return gathered


def _read_slowly(arrays: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any]) -> Columns | int:
    for index, array in enumerate(arrays):
        if array.ndim != 2 or array.dtype != dtype:
            return index
    facts = [
        (array.__array_interface__["data"][0], *array.shape, *array.strides) for array in arrays
    ]
    return _whole_steps(Columns(*np.array(facts, np.int64).T), dtype.itemsize)


def _whole_steps(found: Columns, itemsize: int) -> Columns | int:
    odd = (found.row | found.col) & (itemsize - 1)
    return int(np.argmax(odd != 0)) if odd.any() else found


@cache
def layout_holds() -> bool:
    """Whether the structure reads as documented, on a sample with telling numbers."""
    if sys.implementation.name != "cpython" or sys.byteorder != "little":
        return False
    if ctypes.sizeof(ctypes.c_void_p) != _WORD or _HEADER % _WORD:
        return False
    dtype = np.dtype(np.float32)
    samples = [np.zeros((11, 7), dtype)[1::2, 2:5], np.zeros((3, 5), dtype).T]
    names = ("address", "rows", "cols", "row", "col")
    asked = _read_slowly(samples, dtype)
    for sequence in (samples, tuple(samples)):
        found = _read_memory(sequence, dtype)
        if isinstance(found, int) or isinstance(asked, int):
            return False
        if not all(np.array_equal(getattr(found, name), getattr(asked, name)) for name in names):
            return False
    flags = _gather(_addresses(samples) + _HEADER, 7)[6] & 0xFFFFFFFF
    holds: bool = flags.tolist() == [sample.flags.num for sample in samples]
    return holds
