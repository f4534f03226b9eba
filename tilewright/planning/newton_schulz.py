"""Lays matrices of any shapes out in two flat arrays, for Newton-Schulz steps on all at once.

    x       [ matrix 0 | matrix 1, rows padded . | ... ]    as they are given, rows by columns
    gram    [ r0 x r0  | r1 x r1 ................ | ... ]   r the shorter side of each

Rows begin at multiples of 16 bytes, matrices at multiples of 128, as the copy engine of Hopper's
GPUs wants them; elements have 2 bytes. Padding holds zeros, so a matrix may be read as one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.planning.within import within

Ints = npt.NDArray[np.int64]
ROW, START = 8, 64  # elements that rows and matrices begin at multiples of
BLOCK, TILE = 512, 64  # rows of symmetric products computed together, and copied by a program


@dataclass(frozen=True, slots=True)
class Flat:
    """Matrices in one flat array: where each begins, elements from row to row, elements of all."""

    rows: Ints
    cols: Ints
    begin: Ints
    step: Ints
    elements: int

    def pieces(self, size: int) -> tuple[Ints, Ints]:
        """Runs of at most `size` elements, none of two matrices: the matrix, and the first."""
        spans = self.rows * self.step
        count = -(-spans // size)
        owner = np.repeat(np.arange(len(count)), count)
        return owner, self.begin[owner] + within(count) * size

    def ends(self, owner: Ints) -> Ints:
        """Where these matrices end, padding counted."""
        return (self.begin + self.rows * self.step)[owner]


@dataclass(frozen=True, slots=True)
class Layout:
    """`tall` matrices have more rows than columns; their shorter side is the columns."""

    x: Flat
    gram: Flat
    tall: npt.NDArray[np.bool_]


def laid_out(shapes: Sequence[tuple[int, int]]) -> Layout:
    """Where matrices [rows, cols] lie, and their products with their own transposes."""
    rows, cols = np.array(shapes, np.int64).reshape(-1, 2).T
    short = np.minimum(rows, cols)
    return Layout(_flat(rows, cols), _flat(short, short), rows > cols)


def block_rows(short: Ints) -> tuple[Ints, Ints, Ints]:
    """Symmetric matrices cut into runs of rows: the matrix, the first row, the row behind.

    A run is computed from the first column to its own diagonal: of 4 runs 10 blocks of 16.
    """
    count = -(-short // BLOCK)
    owner = np.repeat(np.arange(len(short)), count)
    first = within(count) * BLOCK
    return owner, first, np.minimum(first + BLOCK, short[owner])


def mirrored(layout: Flat) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Tiles left of the diagonal blocks: begin and step of the matrix, row, column, rows."""
    owner, first, end = block_rows(layout.rows)
    tiles = [
        (at, row, column, min(TILE, stop - row))
        for at, start, stop in zip(owner.tolist(), first.tolist(), end.tolist(), strict=True)
        for row in range(start, stop, TILE)
        for column in range(0, start, TILE)
    ]
    which, row, column, rows = np.array(tiles, np.int64).reshape(-1, 4).T
    return layout.begin[which], layout.step[which], row, column, rows


def _flat(rows: Ints, cols: Ints) -> Flat:
    step = -(-cols // ROW) * ROW
    spans = -(-(rows * step) // START) * START
    ends = np.cumsum(spans)
    return Flat(rows, cols, ends - spans, step, int(ends[-1]) if len(ends) else 0)
