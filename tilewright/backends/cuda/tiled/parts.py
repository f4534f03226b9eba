"""Cuts long products along k: each part is a problem with scratch for C; the parts are then added.

problem 7, k = 5000 in 3 parts  ->  records 20, 21, 22:  A and B from k_begin on, k of the part,
                                    C = scratch, dense and in the type of the sum
second phase (sum_parts)        ->  parts 0 + 1 + 2, then alpha, beta C, bias, activation
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.arrays.record import BIAS, of_parts
from tilewright.backends.cuda.machine.triton_launch import Pointer, Task, triton_type
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.dtypes import ITEMSIZE, sums_of
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.within import within

CHUNK = 1024  # elements of C that a program of the second phase finishes


@dataclass(frozen=True)
class Parts:
    """The cut products of a batch. Columns `problem`, `begin`, `end`, `offset` have one row a part.

    `first` is the record of a problem's part 0, `splits` and `pieces` the tables of sum_parts.
    """

    problem: Ints
    begin: Ints
    end: Ints
    offset: Ints
    first: Ints
    is_cut: npt.NDArray[np.bool_]
    splits: Ints
    pieces: npt.NDArray[np.int32]
    bytes: int

    @classmethod
    def none(cls, problems: int) -> Parts:
        """Of a batch of which nothing is cut."""
        none, pairs = np.zeros(0, np.int64), np.zeros((0, 2), np.int32)
        whole = np.zeros(problems, np.bool_)
        return cls(none, none, none, none, none, whole, none.reshape(0, 3), pairs, 0)

    def record_of(self, problem: npt.NDArray[np.int32], part: npt.NDArray[np.int32]) -> Ints:
        """The record of every tile: the problem's own, or its part's."""
        own = problem.astype(np.int64)
        if not len(self.problem):
            return own
        return np.where(self.is_cut[problem], self.first[problem] + part, own)

    def records(self, table: Ints, dtype: str, scratch: int) -> Ints:
        """The records of all parts, whose sums begin at this address; `table` has the problems'."""
        place = scratch + self.offset * ITEMSIZE[sums_of(dtype)]
        made = of_parts(table[self.problem], self.begin, self.end, place, ITEMSIZE[dtype])
        made[:, BIAS] = 0
        return made


def parts_of(work: Work, layout: GroupedLayout) -> Parts:
    """The parts that a layout cuts, numbered behind the batch's own problems."""
    sums, queue = layout.sums, layout.queue
    count = len(work.m)
    if not len(sums):
        return Parts.none(count)
    is_cut = np.zeros(count, np.bool_)
    is_cut[sums.problem] = True
    ends = np.cumsum(sums.parts)
    first = np.zeros(count, np.int64)
    first[sums.problem] = count + ends - sums.parts
    total = int(ends[-1]) if len(ends) else 0
    begin, end = np.zeros(total, np.int64), np.zeros(total, np.int64)
    tiles = np.flatnonzero(is_cut[queue.problem])
    place = first[queue.problem[tiles]] - count + queue.part[tiles]
    begin[place], end[place] = queue.k_begin[tiles], queue.k_end[tiles]
    problem = np.repeat(sums.problem, sums.parts)
    area = work.m[sums.problem] * work.n[sums.problem]
    offset = np.repeat(sums.offset, sums.parts) + within(sums.parts) * np.repeat(area, sums.parts)
    splits = np.stack((sums.problem, sums.parts, sums.offset), axis=1).astype(np.int64)
    chunks = -(-area // CHUNK)
    which = np.repeat(np.arange(len(area)), chunks)
    pieces = np.stack((which, within(chunks)), axis=1).astype(np.int32)
    size = sums.elements * ITEMSIZE[sums_of(work.dtype)]
    return Parts(problem, begin, end, offset, first, is_cut, splits, pieces, size)


def adding(work: Work, lists: tuple[Pointer, ...], size: int, programs: int) -> Task:
    """The second phase: `lists` are records, splits and pieces, scratch has `size` bytes."""
    from tilewright.backends.cuda.kernels.triton.sum_parts import sum_parts

    kind = sums_of(work.dtype)
    constants = {
        "DTYPE": triton_type(work.dtype),
        "SUM": triton_type(kind),
        "CHUNK": CHUNK,
        "ACTIVATION": work.activation,
    }
    part = Pointer(kind, bytes=size)
    return Task(sum_parts, programs, (*lists, part), constants, {"num_warps": 4})
