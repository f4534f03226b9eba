"""Builds the tables that grouped kernels read, from a layout and columns of operands.

    problems  [count, 16] int64   where A, B, C and bias lie, sizes, strides, epilogue
    scalars   [count, 2]          alpha, beta in the accumulator's type
    tiles     [count, 4] int32    problem, first row, first column, shape (rows << 16 | columns)

`grouped.clh` follows problems through them. Problems stand in launch order, so that tiles that run
together read neighbouring rows. A product cut along k appears once more for each part, with tiles
in a list of their own, and in `splits` and `pieces`, which sum_parts adds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.record import OWN, WORDS, A, K, M, N, fill, of_parts
from tilewright.backends.opencl.lowering import EPILOGUE_ACTIVATION, EPILOGUE_BIAS
from tilewright.engines.grouped import GroupedOperands
from tilewright.facts.dtypes import ITEMSIZE, sums_of
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.within import within

CHUNK = 256  # elements of C that one work-group of sum_parts finishes
Table = npt.NDArray[Any]


@dataclass(frozen=True)
class Tables:
    """What a bound batch keeps on the device."""

    problems: Table
    scalars: Table
    tiles: Table
    part_tiles: Table
    splits: Table
    pieces: Table
    scratch_elements: int

    @property
    def longest(self) -> int:
        """Steps of k of the longest product or part."""
        return int(self.problems[:, K].max(initial=0))

    @classmethod
    def of(cls, layout: GroupedLayout, operands: GroupedOperands) -> Tables:
        """A thousand problems take about 0.1 ms."""
        position = np.empty(len(layout.order), np.int64)
        position[layout.order] = np.arange(len(layout.order))
        problems = _problems(layout, operands)[layout.order]
        pairs = np.stack((operands.alpha, operands.beta), axis=1)[layout.order]
        tiles, parts = _tiles(layout, position)
        if len(layout.sums):
            rows = _part_rows(layout, problems, position)
            problems = np.concatenate((problems, rows))
            pairs = np.concatenate((pairs, np.tile([1.0, 0.0], (len(rows), 1))))
        scalars = pairs.astype(sums_of(operands.dtype))
        lists = (tiles, parts, *_splits(layout, position))
        return cls(np.ascontiguousarray(problems), scalars, *lists, layout.sums.elements)


def _problems(layout: GroupedLayout, operands: GroupedOperands) -> Table:
    a, b, c, bias = operands.a, operands.b, operands.c, operands.bias
    activation = EPILOGUE_ACTIVATION[operands.activation]
    epilogue: Any = activation
    if bias is not None:
        epilogue = np.where(bias.rows > 0, activation | EPILOGUE_BIAS, activation)
    k = np.where(operands.alpha == 0, 0, layout.k)  # BLAS: A and B are then not read
    table, item = np.zeros((len(layout.order), WORDS), np.int64), ITEMSIZE[operands.dtype]
    sizes = (layout.m, layout.n, k)
    fill(table, (a, b, c), 0 if bias is None else bias.address, sizes, item)
    if operands.bases is not None:
        table[:, A:M] //= item  # kernels count elements of buffers
    table[:, OWN] = epilogue
    return table


def _tiles(layout: GroupedLayout, position: Table) -> tuple[Table, Table]:
    """Tiles of whole products, and of parts, each in launch order."""
    queue = layout.queue
    tiles = np.empty((len(queue), 4), np.int32)
    if not len(queue):
        return tiles, tiles
    shapes = np.array([(tile.m, tile.n) for tile in layout.tiles], np.int32)
    rows, cols = shapes[layout.tile[queue.problem]].T
    tiles[:, 0] = position[queue.problem]
    tiles[:, 1] = queue.row * rows
    tiles[:, 2] = queue.col * cols
    tiles[:, 3] = rows << 16 | cols
    cut = layout.parts[queue.problem] > 1
    if not cut.any():
        return tiles, tiles[:0]
    tiles[cut, 0] = _row_of_part(layout)[queue.problem[cut]] + queue.part[cut]
    return np.ascontiguousarray(tiles[~cut]), np.ascontiguousarray(tiles[cut])


def _row_of_part(layout: GroupedLayout) -> Table:
    """The row of the first part of every cut problem: parts follow the whole problems."""
    first = np.zeros(len(layout.order), np.int64)
    sums = layout.sums
    first[sums.problem] = len(layout.order) + np.cumsum(sums.parts) - sums.parts
    return first


def _part_rows(layout: GroupedLayout, problems: Table, position: Table) -> Table:
    sums, queue = layout.sums, layout.queue
    owner = np.repeat(np.arange(len(sums)), sums.parts)
    part = np.concatenate([np.arange(count) for count in sums.parts.tolist()])
    rows = problems[position[sums.problem[owner]]]
    cut = np.flatnonzero(layout.parts[queue.problem] > 1)
    key = _row_of_part(layout)[queue.problem[cut]] + queue.part[cut]
    _, index = np.unique(key, return_index=True)
    begin = queue.k_begin[cut][index].astype(np.int64)
    end = queue.k_end[cut][index].astype(np.int64)
    return of_parts(rows, begin, end, sums.offset[owner] + part * rows[:, M] * rows[:, N])


def _splits(layout: GroupedLayout, position: Table) -> tuple[Table, Table]:
    sums = layout.sums
    splits = np.zeros((len(sums), 4), np.int64)
    splits[:, 0] = position[sums.problem]
    splits[:, 1] = sums.offset
    splits[:, 2] = sums.parts
    chunks = -(-(layout.m[sums.problem] * layout.n[sums.problem]) // CHUNK)
    pieces = np.zeros((int(chunks.sum()), 4), np.int32)
    pieces[:, 0] = np.repeat(np.arange(len(sums)), chunks)
    pieces[:, 1] = within(chunks)
    return splits, pieces
