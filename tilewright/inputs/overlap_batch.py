"""Tells whether the results of a batch lie apart: from each other, from inputs, each from itself.

Judged in array code by the stretch of memory from a matrix's first to its last element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.arrays.addresses import Column
from tilewright.arrays.array import Array
from tilewright.arrays.views import view
from tilewright.errors import OverlapError
from tilewright.inputs.matrices import Matrices
from tilewright.inputs.overlap import SHARED, check_apart, place


def check_outputs(out: Matrices, inputs: Sequence[Matrices | None]) -> None:
    """Raise OverlapError where two outputs, or an output and an input (a, b, bias), share memory.

    Judged by the stretch of memory from a matrix's first to its last element, so interleaved views
    of one array count as overlapping.
    """
    _check_each(out)
    memory, low, high = _reaches(out)
    order = np.argsort(low, kind="stable")
    # Without elements there is nothing to share, wherever the pointer happens to point.
    order = order[low[order] < high[order]]
    if not len(order):
        return
    low, high = low[order], high[order]
    reach = np.maximum.accumulate(high)
    inside = np.flatnonzero(low[1:] < reach[:-1])
    if len(inside):
        first, second = sorted(int(order[at]) for at in (inside[0], inside[0] + 1))
        raise OverlapError(
            f"out[{second}]: overlaps out[{first}], or lies between its rows; outputs must lie"
            " apart, each from its first to its last element, or be the very same matrix"
        )
    for name, operand in zip(("a", "b", "bias"), inputs, strict=False):
        if operand is None:
            continue
        theirs, start, stop = _reaches(operand)
        if theirs != memory:
            continue
        # The last output that begins before an input's end must have ended before its start.
        before = np.searchsorted(low, stop) - 1
        met = (before >= 0) & (reach[np.maximum(before, 0)] > start) & (stop > start)
        if met.any():
            raise OverlapError(SHARED.format(f"{name}[{int(np.argmax(met))}]"))


def _reaches(operand: Matrices) -> tuple[object, Column, Column]:
    """The memory that the matrices lie in, and of each the lowest and one past the highest byte.

    Arrays of a device may share memory: parts, transposes, two made to use one host array.
    """
    low, high = extents(operand)
    if isinstance(operand.base, Array):
        memory, start = place(view(operand.base, "out").memory)
        return memory, start + low, start + high
    return operand.base, low, high  # a GPU's memory is one; so is the host's, of no array


def _check_each(out: Matrices) -> None:
    """Each output apart from itself; one by one only where no step passes the other's reach."""
    at = out.at
    row, col = np.abs(at.row), np.abs(at.col)
    apart = np.where(row < col, col > row * (at.rows - 1), row > col * (at.cols - 1))
    wrong = ~apart & (at.rows > 1) & (at.cols > 1)
    wrong |= ((row == 0) & (at.rows > 1) & (at.cols > 0)) | (
        (col == 0) & (at.cols > 1) & (at.rows > 0)
    )
    item = out.dtype.itemsize
    for i in np.flatnonzero(wrong).tolist():
        check_apart(f"out[{i}]", (at.rows[i], at.cols[i]), (at.row[i] // item, at.col[i] // item))


def extents(operand: Matrices) -> tuple[Column, Column]:
    """Lowest and one past the highest byte, counted as addresses are; equal where empty."""
    at = operand.at
    reach_row, reach_col = (at.rows - 1) * at.row, (at.cols - 1) * at.col
    low = at.address + np.minimum(reach_row, 0) + np.minimum(reach_col, 0)
    end = at.address + np.maximum(reach_row, 0) + np.maximum(reach_col, 0)
    high = end + operand.dtype.itemsize
    empty = (at.rows == 0) | (at.cols == 0)
    return low, np.where(empty, low, high)
