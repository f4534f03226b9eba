"""Deal: which unit takes which tile, where each goes to the unit that has least to do so far.

    tiles, in order   5 3 3 2 1        unit 0   5 2        done after 7 s
                                       unit 1   3 3 1      done after 7 s

List scheduling (makespan.py says whose), followed tile by tile. The planner's exact simulation and
launches whose blocks are handed their tiles beforehand both deal so. A deal made beforehand depends
on sizes alone, so that results never depend on a run.

>>> dealt([5.0, 3.0, 3.0, 2.0, 1.0], 2)
([0, 1, 1, 0, 1], [7.0, 7.0])
>>> rounds, busiest = turns(np.array([5.0, 3.0, 3.0, 2.0, 1.0]), 2)
>>> rounds.tolist(), busiest
([[0, 1], [3, 2], [-1, 4]], 7.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from tilewright.planning.within import within

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MANY = (
    60_000  # beyond so many tiles, turns taken round are as even as dealing, and quicker to make
)
_ROUNDS = 4  # a round is worth sorting where a fourth of all units takes a tile in it


def dealt(seconds: list[float], units: int) -> tuple[list[int], list[float]]:
    """The unit of each tile, and when each unit is done: of units free at once the lowest takes."""
    ends = [0.0] * units
    return _one_by_one(seconds, ends), ends


@dataclass(frozen=True, slots=True)
class Begun:
    """The first tiles of a deal: the unit of each, and when each unit is done with them."""

    owners: Ints
    free: Floats


def begin(seconds: Floats, units: int, begun: Begun | None = None) -> Begun:
    """`dealt`, after what has `begun`, round by round.

    Units that are free are sorted once, and take a tile each, as long as none of these tiles ends
    before the next one begins; where few do, they are dealt one by one. Tiles of about the same
    length, as those of a queue with the longest first, take a third of the time so.
    """
    free = np.zeros(units) if begun is None else begun.free.copy()
    count, at = len(seconds), 0
    owners = np.empty(count, np.int64)
    while at < count:
        order = free.argsort(kind="stable")[: count - at]
        starts = free[order]
        ends = starts + seconds[at : at + units]
        taken = len(ends)
        if ends.min() <= starts[-1]:
            taken = _before_any_ends(starts, ends)
            order, ends = order[:taken], ends[:taken]
        if _ROUNDS * taken >= units or at + taken == count:
            owners[at : at + taken], free[order] = order, ends
        else:
            taken = min(_ROUNDS * units, count - at)
            moments = free.tolist()
            owners[at : at + taken] = _one_by_one(seconds[at : at + taken].tolist(), moments)
            free[:] = moments
        at += taken
    return Begun(owners if begun is None else np.append(begun.owners, owners), free)


def _before_any_ends(starts: Floats, ends: Floats) -> int:
    """How many tiles begin, in order, before any of those before them has ended, if not all do."""
    late = starts[1:] >= np.minimum.accumulate(ends[:-1])
    return int(late.argmax()) + 1 if late.any() else len(starts)


def _one_by_one(seconds: list[float], free: list[float]) -> list[int]:
    """`dealt` from these moments on, which are moved on in place."""
    heap = list(zip(free, range(len(free)), strict=True))
    heapify(heap)
    owners = []
    for length in seconds:
        moment, unit = heap[0]
        owners.append(unit)
        heapreplace(heap, (moment + length, unit))
    for moment, unit in heap:
        free[unit] = moment
    return owners


def is_worth(count: int) -> bool:
    """Whether so many tiles are dealt, and not taken round."""
    return count <= _MANY


@dataclass(frozen=True, slots=True)
class Deal:
    """Tiles by unit, as many rounds as the longest hand; `owners` is None where taken round."""

    count: int
    units: int
    owners: Ints | None
    busiest: float

    @classmethod
    def of(cls, seconds: Floats, units: int, begun: Begun | None = None) -> Deal:
        """Of these tiles, the first of which may have been dealt."""
        count = len(seconds)
        if count <= units or not is_worth(count):
            found = _round(count, units)
            busiest = float(np.append(seconds, 0.0)[found].sum(0).max(initial=0.0))
            return cls(count, units, None, busiest)
        first = 0 if begun is None else len(begun.owners)
        done = begin(seconds[first:], units, begun)
        return cls(count, units, done.owners, float(done.free.max()))

    def turns(self) -> Ints:
        """Positions [rounds, units] of tiles, -1 for none."""
        if self.owners is None:
            return _round(self.count, self.units)
        hands = np.bincount(self.owners, minlength=self.units)
        found = np.full((int(hands.max()), self.units), -1, np.int64)
        order = np.argsort(self.owners.astype(np.min_scalar_type(self.units)), kind="stable")
        found[within(hands), self.owners[order]] = order
        return found


def _round(count: int, units: int) -> Ints:
    flat = np.full(-(-count // units) * units, -1, np.int64)
    flat[:count] = np.arange(count)
    return flat.reshape(-1, units)


def turns(seconds: Floats, units: int) -> tuple[Ints, float]:
    """Positions [rounds, units] of tiles, -1 for none, and the busiest unit's seconds."""
    found = Deal.of(seconds, units)
    return found.turns(), found.busiest
