"""Lays out the packing pass: which matrices it copies, in which items, and where their panels lie.

A matrix with contiguous runs becomes panels [ceil(run / 64)][runs padded][64]; runs stay runs, so
nothing is transposed. All panels of a batch lie in one scratch of 128-byte rows, for which a single
tensor map serves. k is filled with zeros up to a multiple of 16, what the last step multiplies; of
fp32 numbers, which are split into planes one after another in the scratch, up to 32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.hopper.orient import Bools, Operand
from tilewright.backends.cuda.work import Ints
from tilewright.planning.within import within

FILL, SPLIT_FILL = 16, 32  # k is filled up to a multiple of these: of halves, of fp32
ROW = 128  # bytes of a panel's row: 64 elements of 2
_PIECE = 512  # 16-byte blocks of one run in an item
_ITEM = 2048  # 16-byte blocks in an item: 8 a thread, 4 of each half of fp32
SHALLOW = 4  # up to so many products two halves are half as accurate as fp32
_MOST_SMALL = 1 << 20  # a count that atomic additions cannot wrap
_SHALLOW_FLAG = 32  # beside those of records.py
_STRAY = 22  # one element of 2^22 may be small among none but small ones

# `struct Item` of kernels/hopper/hopper_pack.cu.
ITEM = np.dtype(
    [
        *((name, np.int64) for name in ("source", "target", "row_bytes", "panel_bytes")),
        *((name, np.int32) for name in ("rows", "rows_filled", "blocks", "columns")),
        *((name, np.int32) for name in ("column_bytes", "matrix")),
        ("plane_bytes", np.int64),
    ]
)
# `struct Matrix` of kernels/hopper/hopper_scale.cuh.
MATRIX = np.dtype(
    [
        *((name, np.int64) for name in ("source", "row_bytes")),
        *((name, np.int32) for name in ("column_bytes", "rows", "columns")),
        *((name, np.int32) for name in ("allowed", "alone", "beside", "depth", "unused")),
    ]
)


@dataclass(frozen=True, slots=True)
class Panels:
    """Where one operand's panels lie: `base` and `padded` in rows of the scratch, by problem.

    Zero for problems whose operand is read where it lies. `rows` is what all of them take.
    """

    base: Ints
    padded: Ints
    rows: int


def deep(k: Ints) -> Ints:
    """k of fp32 problems that are split, 0 of the shallow ones (kernels/hopper/hopper_split.cu)."""
    return np.where(k > SHALLOW, k, 0)


def shallow_flags(k: Ints) -> npt.NDArray[np.int32]:
    """What a record's width and flags say of a shallow problem."""
    return np.where((k > 0) & (k <= SHALLOW), _SHALLOW_FLAG << 24, 0).astype(np.int32)


def lay_out(operand: Operand, k: Ints, first: int, fill: int = FILL) -> Panels:
    """Places for the panels of every matrix that is not read directly, from row `first` on."""
    runs = np.where(operand.mn, -(-k // fill) * fill, operand.free)
    length = np.where(operand.mn, operand.free, k)
    padded = np.where(operand.direct, 0, -(-runs // 8) * 8)
    each = padded * -(-length // 64)
    base = first + np.cumsum(each) - each
    return Panels(base, padded, int(each.sum()))


def items(
    operand: Operand, k: Ints, panels: Panels, scratch: int, side: int = 0, plane_rows: int = 0
) -> npt.NDArray[np.void]:
    """One record an item, for panels in a scratch at address `scratch`; `side` 1 for the right.

    fp32 operands, where `plane_rows` is not zero, are split into planes of so many rows.
    """
    fill, size = (SPLIT_FILL, _ITEM // 2) if plane_rows else (FILL, _ITEM)
    which = np.flatnonzero((panels.padded > 0) & (operand.free > 0) & (k > 0))
    mn, depth, free = operand.mn[which], k[which], operand.free[which]
    runs, length = np.where(mn, depth, free), np.where(mn, free, depth)
    filled = np.where(mn, -(-depth // fill) * fill, free)
    blocks = np.where(mn, -(-free // 8), -(-depth // fill) * (fill // 8))
    pieces, rows = -(-blocks // _PIECE), np.maximum(1, size // np.minimum(blocks, _PIECE))
    counts = pieces * -(-filled // rows)
    p = np.repeat(np.arange(len(which)), counts)
    local = within(counts)
    piece, row = local % pieces[p], local // pieces[p] * rows[p]
    outer, inner = operand.outer_stride()[which][p], operand.inner_stride()[which][p]
    table = np.zeros(len(p), ITEM)
    table["source"] = operand.address[which][p] + row * outer + piece * _PIECE * 8 * inner
    table["panel_bytes"] = panels.padded[which][p] * ROW
    place = panels.base[which][p] + row + piece * (_PIECE // 8) * panels.padded[which][p]
    table["target"] = scratch + place * ROW
    table["plane_bytes"] = plane_rows * ROW
    table["row_bytes"], table["column_bytes"] = outer, inner
    table["rows"] = np.maximum(0, np.minimum(rows[p], runs[p] - row))
    table["rows_filled"] = np.minimum(rows[p], filled[p] - row)
    table["blocks"] = np.minimum(_PIECE, blocks[p] - piece * _PIECE)
    table["columns"] = length[p] - piece * _PIECE * 8
    table["matrix"] = 2 * which[p] + side
    return table


def matrices(operand: Operand, k: Ints) -> npt.NDArray[np.void]:
    """One record a problem of an fp32 operand: how it lies, how small elements count."""
    table = np.zeros(len(k), MATRIX)
    table["source"] = operand.address
    table["row_bytes"] = operand.outer_stride()
    table["column_bytes"] = operand.inner_stride()
    table["rows"] = np.where(operand.mn, k, operand.free)
    table["columns"] = np.where(operand.mn, operand.free, k)
    table["depth"] = k
    table["allowed"], table["alone"], table["beside"] = small_elements(operand.mn, operand.free, k)
    return table


def small_elements(mn: Bools, free: Ints, k: Ints) -> tuple[Ints, Ints, Ints]:
    """The count allowed to an operand of `free` by k, and what a small element adds to it.

    Second: among 8 neighbours of which none is larger, and half as much among the fewer at a row's
    end, where one may be so by chance; third: beside larger ones. Where neighbours follow one
    another along k, these do no harm and add nothing. Elsewhere they may all be of one row or
    column along k, of which half must be left.
    """
    strays = 1 + (free * k >> _STRAY)
    allowed = np.minimum(np.where(mn, k // 2, strays - 1), _MOST_SMALL)
    return 2 * allowed + 1, 2 * (allowed // strays + 1), np.where(mn, 2, 0)


def packed_bytes(operand: Operand, k: Ints, each: int = 4) -> float:
    """Bytes that packing an operand reads and writes, `each` for one element."""
    return float((1.0 * each * operand.free * k)[~operand.direct].sum())
