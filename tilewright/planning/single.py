"""Single: one tile shape for all problems, from how many tiles there are of each depth.

    tiles down x across, a problem  ->  tiles of each number of steps of k  ->  work, longest first

A shape's seconds depend on the steps of k alone, and small problems have few of them: nothing is
sorted, and no column over problems and shapes is made (buckets.Table), which is what planning a
thousand small products spent its time on. What this leaves out are edge tiles that take less than
whole ones (`Tile.trim`).

>>> m, n, k = (np.array(column) for column in ([130, 20, 8], [130, 300, 70], [100, 100, 100]))
>>> tiles = (Tile(64, 64, 4e9, 1e-6), Tile(16, 16, 2e9, 1e-6))
>>> found = single(m, n, k, tiles, Slots(compute_units=2))
>>> found.shape, (found.down * found.across).tolist(), round(found.seconds * 1e6)
(0, [9, 5, 2], 1646)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.planning.buckets import Tile
from tilewright.planning.deal import Ints
from tilewright.planning.makespan import Runs, Slots, lower_bound


@dataclass(frozen=True, slots=True)
class Single:
    """One shape for all problems: its number, its tiles down and across each, least seconds."""

    shape: int
    down: Ints
    across: Ints
    seconds: float


def single(m: Ints, n: Ints, k: Ints, tiles: tuple[Tile, ...], slots: Slots) -> Single:
    """The one shape for all that any order could make fastest, as `buckets.alone` finds it."""
    tried = []
    for tile in tiles:
        down, across = -(-m // tile.m), -(-n // tile.n)
        counts = np.bincount(-(-k // tile.step), down * across).astype(np.int64)
        flops = 2.0 * tile.m * tile.n * tile.step * np.arange(len(counts), dtype=np.float64)
        seconds = tile.overhead + flops / tile.rate
        longest_first = Runs(counts[::-1], seconds[::-1])
        tried.append((longest_first, down, across))
    ideal = [runs.work / slots.count for runs, _, _ in tried]
    best, least = 0, np.inf
    for row in sorted(range(len(tiles)), key=ideal.__getitem__):
        if least <= ideal[row]:
            break
        bound = lower_bound(tried[row][0], slots)
        if bound < least:
            best, least = row, bound
    return Single(best, *tried[best][1:], least)
