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

from heapq import heapreplace

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MANY = (
    60_000  # beyond so many tiles, turns taken round are as even as dealing, and quicker to make
)


def dealt(seconds: list[float], units: int) -> tuple[list[int], list[float]]:
    """The unit of each tile, and when each unit is done: of units free at once the lowest takes."""
    heap = [(0.0, unit) for unit in range(units)]
    owners = []
    for length in seconds:
        free, unit = heap[0]
        owners.append(unit)
        heapreplace(heap, (free + length, unit))
    ends = [0.0] * units
    for free, unit in heap:
        ends[unit] = free
    return owners, ends


def turns(seconds: Floats, units: int) -> tuple[Ints, float]:
    """Positions [rounds, units] of tiles, -1 for none, and the busiest unit's seconds."""
    count = len(seconds)
    if count <= units or count > _MANY:
        flat = np.full(-(-count // units) * units, -1, np.int64)
        flat[:count] = np.arange(count)
        found = flat.reshape(-1, units)
        return found, float(np.append(seconds, 0.0)[found].sum(0).max(initial=0.0))
    owners, ends = dealt(seconds.tolist(), units)
    hands: list[list[int]] = [[] for _ in range(units)]
    for tile, unit in enumerate(owners):
        hands[unit].append(tile)
    found = np.full((max(map(len, hands)), units), -1, np.int64)
    for unit, hand in enumerate(hands):
        found[: len(hand), unit] = hand
    return found, max(ends)
