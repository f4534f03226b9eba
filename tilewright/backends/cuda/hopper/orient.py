"""Decides which operand of a product gives the kernel's rows, and which its columns.

C = A B may as well be computed as C' = B' A'; then B gives the rows. Rows come in 64s and columns
in 32s, so a batch of few rows is better turned. For each operand it is settled here whether k is
contiguous (`mn` where not) and whether the copy engine can read it where it lies (`direct`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.dtypes import ITEMSIZE

Bools = npt.NDArray[np.bool_]
_ALIGNED = 16  # bytes: what the copy engine demands of addresses and strides


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of every problem: `free` rows (or columns) by k.

    `address`, `free_stride` and `k_stride` in bytes; `mn` where the free dimension is the
    contiguous one; `direct` where no packing is needed.
    """

    address: Ints
    free: Ints
    free_stride: Ints
    k_stride: Ints
    mn: Bools
    direct: Bools

    def outer_stride(self) -> Ints:
        """Bytes between two contiguous runs."""
        return np.where(self.mn, self.k_stride, self.free_stride)

    def inner_stride(self) -> Ints:
        """Bytes between neighbours of a run: an element but where nothing is contiguous."""
        return np.where(self.mn, self.free_stride, self.k_stride)


@dataclass(frozen=True, slots=True)
class Oriented:
    """The batch, turned or not. C is stored in runs along columns, or along rows if `transposed`.

    `c_stride` is in bytes between two runs; `engine_stores` where the copy engine can write C.
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
    item = ITEMSIZE[work.dtype]
    a = _operand(work.a, work.m, work.k, item)
    b = _operand(work.b.swapped, work.n, work.k, item)
    by_columns = c_runs_along_columns(work)
    stride = np.where(by_columns, work.c.row, work.c.col)
    runs, length = (np.where(by_columns, x, y) for x, y in ((work.m, work.n), (work.n, work.m)))
    stride = np.where(runs == 1, _rounded_up(length * item), stride)
    stores = ((work.c.address | stride) % _ALIGNED == 0) & (stride >= length * item)
    left, right = (b, a) if turned else (a, b)
    rows, columns = (work.n, work.m) if turned else (work.m, work.n)
    c = work.c.address, stride, by_columns if turned else ~by_columns, stores
    return Oriented(turned, rows, columns, work.k, left, right, *c)


def c_runs_along_columns(work: Work) -> Bools:
    """Where C is stored by rows; elsewhere it is by columns."""
    item = ITEMSIZE[work.dtype]
    by_columns = (work.c.col == item) | (work.n == 1)
    return ~_settled(by_columns, (work.c.row == item) | (work.m == 1))


def plain(work: Work) -> bool:
    """Whether C is the product and nothing else."""
    return (
        work.bias is None
        and work.activation == "none"
        and not bool(work.beta.any())
        and bool((work.alpha == 1.0).all())
    )


def why_not(work: Work) -> str | None:
    """Why the strides of A, B or C cannot be had here, if so."""
    item = ITEMSIZE[work.dtype]
    runs = (work.c.col == item) | (work.n == 1) | (work.c.row == item) | (work.m == 1)
    if not bool(runs.all()):
        return "C is contiguous along neither dimension"
    if bool((np.maximum(abs(work.c.row), abs(work.c.col)) >= 2**31 * item).any()):
        return "a stride of C is 2^31 elements or more"
    for name, part in (("A", work.a), ("B", work.b)):  # packing counts such steps in 32 bits
        scattered = (part.row != item) & (part.col != item)
        if bool((scattered & (np.maximum(abs(part.row), abs(part.col)) >= 2**31)).any()):
            return f"{name} has no contiguous dimension and a stride of 2^31 bytes or more"
    return None


def _operand(part: Columns, free: Ints, k: Ints, item: int) -> Operand:
    """Of a matrix whose rows are the free dimension and whose columns follow k."""
    mn = _settled((part.col == item) | (k == 1), (part.row == item) | (free == 1))
    outer = np.where(mn, part.col, part.row)
    outer_size, inner_size = np.where(mn, k, free), np.where(mn, free, k)
    outer = np.where(outer_size == 1, _rounded_up(inner_size * item), outer)
    inner = np.where(inner_size == 1, item, np.where(mn, part.row, part.col))
    direct = (inner == item) & (outer > 0) & (outer < 2**39)
    direct &= (part.address | outer) % _ALIGNED == 0
    strides = np.where(mn, inner, outer), np.where(mn, outer, inner)
    return Operand(part.address, free, *strides, mn, direct)


def _settled(first: Bools, second: Bools) -> Bools:
    """Where to take the second of two ways; vectors, which can go both, follow the others."""
    majority = bool((second & ~first).sum() > (first & ~second).sum())
    return second & (~first | majority)


def _rounded_up(x: Ints) -> Ints:
    """To the next multiple of what the copy engine demands."""
    return -(-x // _ALIGNED) * _ALIGNED
