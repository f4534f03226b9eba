"""Decides which operand of a product gives the kernel's rows, and which its columns.

C = A B may as well be computed as C' = B' A'; then B gives the rows. Rows come in 64s and columns
in 32s, so a batch of few rows is better turned. For each operand it is settled here whether k is
contiguous (`mn` where not) and whether the copy engine can read it where it lies (`direct`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.work import Ints, Work

Bools = npt.NDArray[np.bool_]
_ALIGNED = 16  # bytes: what the copy engine demands of addresses and strides


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of every problem: `free` rows (or columns) by k.

    `address` in bytes; `free_stride` and `k_stride` in elements; `mn` where the free dimension is
    the contiguous one; `direct` where no packing is needed.
    """

    address: Ints
    free: Ints
    free_stride: Ints
    k_stride: Ints
    mn: Bools
    direct: Bools

    def outer_stride(self) -> Ints:
        """Elements between two contiguous runs."""
        return np.where(self.mn, self.k_stride, self.free_stride)

    def inner_stride(self) -> Ints:
        """Elements between neighbours of a run: 1 but where nothing is contiguous."""
        return np.where(self.mn, self.free_stride, self.k_stride)


@dataclass(frozen=True, slots=True)
class Oriented:
    """The batch, turned or not. C is stored in runs along columns, or along rows if `transposed`.

    `c_stride` is in elements between two runs; `engine_stores` where the copy engine can write C.
    """

    turned: bool
    rows: Ints
    columns: Ints
    k: Ints
    left: Operand
    right: Operand
    c_address: Ints
    c_stride: Ints
    transposed: Bools
    engine_stores: Bools


def orient(work: Work, *, turned: bool) -> Oriented:
    """The work with A on the left, or B if `turned`. C must be contiguous along one dimension."""
    a = _operand(work.a.address, work.m, work.a.row, work.a.col, work.k)
    b = _operand(work.b.address, work.n, work.b.col, work.b.row, work.k)
    by_columns = c_runs_along_columns(work)
    stride = np.where(by_columns, work.c.row, work.c.col)
    runs, length = (np.where(by_columns, x, y) for x, y in ((work.m, work.n), (work.n, work.m)))
    stride = np.where(runs == 1, _rounded_up(length, 8), stride)
    stores = (work.c.address % _ALIGNED == 0) & (stride % 8 == 0) & (stride >= length)
    left, right = (b, a) if turned else (a, b)
    rows, columns = (work.n, work.m) if turned else (work.m, work.n)
    c = work.c.address, stride, by_columns if turned else ~by_columns, stores
    return Oriented(turned, rows, columns, work.k, left, right, *c)


def c_runs_along_columns(work: Work) -> Bools:
    """Where C is stored by rows; elsewhere it is by columns."""
    by_columns = (work.c.col == 1) | (work.n == 1)
    return ~_settled(by_columns, (work.c.row == 1) | (work.m == 1))


def why_not(work: Work) -> str | None:
    """Why the strides of A, B or C cannot be had here, if so."""
    runs = (work.c.col == 1) | (work.n == 1) | (work.c.row == 1) | (work.m == 1)
    if not bool(runs.all()):
        return "C is contiguous along neither dimension"
    if bool((np.maximum(abs(work.c.row), abs(work.c.col)) >= 2**31).any()):
        return "a stride of C is 2^31 elements or more"
    for name, part in (("A", work.a), ("B", work.b)):  # packing counts such steps in 32 bits, bytes
        scattered = (part.row != 1) & (part.col != 1)
        if bool((scattered & (np.maximum(abs(part.row), abs(part.col)) >= 2**29)).any()):
            return f"{name} has no contiguous dimension and a stride of 2^29 elements or more"
    return None


def _operand(address: Ints, free: Ints, free_stride: Ints, k_stride: Ints, k: Ints) -> Operand:
    mn = _settled((k_stride == 1) | (k == 1), (free_stride == 1) | (free == 1))
    outer = np.where(mn, k_stride, free_stride)
    outer_size, inner_size = np.where(mn, k, free), np.where(mn, free, k)
    outer = np.where(outer_size == 1, _rounded_up(inner_size, 8), outer)
    inner = np.where(inner_size == 1, 1, np.where(mn, free_stride, k_stride))
    direct = (inner == 1) & (outer % 8 == 0) & (outer > 0) & (outer < 2**38)
    direct &= address % _ALIGNED == 0
    strides = np.where(mn, inner, outer), np.where(mn, outer, inner)
    return Operand(address, free, *strides, mn, direct)


def _settled(first: Bools, second: Bools) -> Bools:
    """Where to take the second of two ways; vectors, which can go both, follow the others."""
    majority = bool((second & ~first).sum() > (first & ~second).sum())
    return second & (~first | majority)


def _rounded_up(x: Ints, unit: int) -> Ints:
    """To the next multiple of `unit`."""
    return -(-x // unit) * unit
