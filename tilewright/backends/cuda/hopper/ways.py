"""Chooses the way in which a bucket is multiplied: which operand gives the rows, and which tiles.

    bound     of every way: rows, columns and k rounded up, and loads, in one pass   at least
    evenly    tiles of one problem are of six sizes at most: each timed once         so much
    dealt     cut into tiles, which are dealt out, where each block has few          or more

Each is dearer for the host than the one before, so the way that promises most is looked at next,
until none promises less than the best one takes. Ten ways of 200 products of 256 to 2048 are
100,000 tiles: to cut each into tiles took 40 ms of 45.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from tilewright.backends.cuda.hopper import cost, records
from tilewright.backends.cuda.hopper.blocks import HopperTile
from tilewright.backends.cuda.hopper.orient import Oriented
from tilewright.backends.cuda.work import Ints
from tilewright.facts.measured.scale import Scale

Way = tuple[Oriented, HopperTile]
Totals = tuple[float, float, float]  # how many tiles, the seconds of all, those of the longest
# Sums over sizes and over tiles differ by rounding alone, some 1e-13 of them.
_NEAR = 1 + 1e-9


def fastest(ways: list[Way], which: Ints, order: str, there: Scale) -> Way:
    """The way of least seconds, the first of equals; few tiles are dealt out, many dealt evenly.

    Dealing takes longest here, and is never better than even: who could not win is not dealt out.
    """
    queue: list[tuple[float, int, records.Tiles | None]]
    bounds = _bounds(ways, which, there)
    queue = [(_seconds(ways[at], which, there, bounds[at]), at, None) for at in bounds]
    heapify(queue)
    found: dict[int, float] = {}
    exact: dict[int, float] = {}
    least = np.inf
    while queue and queue[0][0] <= least * _NEAR:
        _, at, tiles = heappop(queue)
        way, turns = ways[at], _turns(ways[at], bounds[at], there)
        if turns >= cost.FEW:
            found[at] = _seconds(way, which, there, records.totals(*_of(way, which), there))
        elif turns < 1:  # one tile each
            totals = records.totals(*_of(way, which), there)
            found[at] = exact[at] = _seconds(way, which, there, totals)
        elif tiles is None:
            tiles = records.cut(*_of(way, which), order, there)
            heappush(queue, (_seconds(way, which, there, _totals(tiles)), at, tiles))
            continue
        else:
            found[at] = exact[at] = _dealt(way, which, tiles, there)
        least = min(least, found[at])
    near = sorted(at for at, seconds in found.items() if seconds <= least * _NEAR)
    if len(near) == 1:
        return ways[near[0]]
    for at in near:
        if at not in exact:
            tiles = records.cut(*_of(ways[at], which), order, there)
            exact[at] = _seconds(ways[at], which, there, _totals(tiles))
    return ways[min(near, key=exact.__getitem__)]


def _bounds(ways: list[Way], which: Ints, there: Scale) -> dict[int, Totals]:
    """By way how many tiles it cuts, and what no cut undercuts."""
    found: dict[int, Totals] = {}
    for turned in {batch.turned for batch, _ in ways}:
        mine = [at for at, (batch, _) in enumerate(ways) if batch.turned == turned]
        shapes = tuple(ways[at][1] for at in mine)
        bounds = cost.bounds(shapes, ways[mine[0]][0], which, there)
        found.update(zip(mine, zip(*(x.tolist() for x in bounds), strict=True), strict=True))
    return found


def moved_bytes(batch: Oriented, which: Ints) -> float:
    """Bytes of operands and results of the problems `which`, of two bytes an element."""
    m, n, k = (x[which].astype(float) for x in (batch.rows, batch.columns, batch.k))
    return float(2.0 * (m * k + k * n + m * n).sum())


def _of(way: Way, which: Ints) -> tuple[Oriented, Ints, HopperTile]:
    return way[0], which, way[1]


def _totals(tiles: records.Tiles) -> Totals:
    seconds = tiles.seconds
    return len(seconds), float(seconds.sum()), float(seconds.max(initial=0.0))


def _turns(way: Way, totals: Totals, there: Scale) -> float:
    return totals[0] / way[1].clusters(there.units)


def _seconds(
    way: Way, which: Ints, there: Scale, totals: Totals, busiest: float | None = None
) -> float:
    """Of the multiplying launch; where tiles are few and not dealt yet, as if evenly."""
    batch, shape = way
    turns, (_, work, longest) = _turns(way, totals, there), totals
    if busiest is None:
        evenly = work / shape.clusters(there.units)
        busiest = longest if turns < 1 else evenly
        if turns >= cost.FEW:
            busiest = max(evenly, longest)
    waiting = cost.memory_seconds(shape, moved_bytes(batch, which), turns, there)
    # Of two that wait for memory, the one with less to do.
    return max(busiest, waiting) + busiest / 1000


def _dealt(way: Way, which: Ints, tiles: records.Tiles, there: Scale) -> float:
    batch, shape = way
    _, _, busiest = records.balanced(batch, tiles, shape, shape.clusters(there.units), there)
    return _seconds(way, which, there, _totals(tiles), busiest)
