"""Chooses the way in which a bucket is multiplied: which operand gives the rows, and which tiles.

    bound     of every way: rows, columns and k rounded up, and loads, in one pass   at least
    evenly    tiles of one problem are of six sizes at most: each timed once         so much
    dealt     cut into tiles, which are dealt out, where each block has not many      or more

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
# Turns of a block and seconds of them, below and from which it still matters how tiles are dealt:
# 64 experts by 144 columns, in 10.9 turns, took 1.6 % less on an H200 than by 160, in 10.7.
_TURNS, _LONG = 12, 100e-6
# Sums over sizes and over tiles differ by rounding alone, some 1e-13 of them.
_NEAR = 1 + 1e-9


def fastest(ways: list[Way], which: Ints, order: str, there: Scale) -> Way:
    """The way of least seconds, the first of equals; few tiles are dealt out, many dealt evenly.

    Dealing takes longest here, and is never better than even: who could not win is not dealt out.
    """
    queue: list[tuple[float, int, records.Tiles | None]]
    bounds = _bounds(ways, which, there)
    moved = {batch.turned: moved_bytes(batch, which) for batch, _ in ways}

    few = {at: is_dealt(ways[at], bounds[at], there) for at in bounds}

    def seconds(at: int, totals: Totals) -> float:
        return _seconds(ways[at], moved[ways[at][0].turned], there, totals, few[at])

    queue = [(seconds(at, bounds[at]), at, None) for at in bounds]
    heapify(queue)
    found: dict[int, float] = {}
    exact: dict[int, float] = {}
    least = np.inf
    while queue and queue[0][0] <= least * _NEAR:
        _, at, tiles = heappop(queue)
        way, turns = ways[at], _turns(ways[at], bounds[at], there)
        if not few[at]:
            found[at] = seconds(at, records.totals(*_of(way, which), there))
        elif turns < 1:  # one tile each
            totals = records.totals(*_of(way, which), there)
            found[at] = exact[at] = seconds(at, totals)
        elif tiles is None:
            tiles = records.cut(*_of(way, which), order, there)
            heappush(queue, (seconds(at, _totals(tiles)), at, tiles))
            continue
        else:
            found[at] = exact[at] = _dealt(way, moved[way[0].turned], tiles, there)
        least = min(least, found[at])
    near = sorted(at for at in found if found[at] <= least * _NEAR)
    if len(near) == 1:
        return ways[near[0]]
    for at in near:
        if at not in exact:
            tiles = records.cut(*_of(ways[at], which), order, there)
            exact[at] = seconds(at, _totals(tiles))
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


def is_dealt(way: Way, totals: Totals, there: Scale) -> bool:
    """Whether what a way takes is known only when its tiles are dealt out."""
    turns, evenly = _turns(way, totals, there), totals[1] / way[1].clusters(there.units)
    return turns < cost.FEW or (turns < _TURNS and evenly > _LONG)


def _seconds(
    way: Way,
    moved: float,
    there: Scale,
    totals: Totals,
    few: bool,
    busiest: float | None = None,
) -> float:
    """Of a launch that moves so many bytes; of few tiles, not dealt yet, as if they were even."""
    shape = way[1]
    turns, (_, work, longest) = _turns(way, totals, there), totals
    if busiest is None:
        evenly = work / shape.clusters(there.units)
        busiest = longest if turns < 1 else evenly
        if not few:
            busiest = max(evenly, longest)
    waiting = cost.memory_seconds(shape, moved, turns, there)
    # Of two that wait for memory, the one with less to do.
    return max(busiest, waiting) + busiest / 1000


def _dealt(way: Way, moved: float, tiles: records.Tiles, there: Scale) -> float:
    batch, shape = way
    _, dealt = records.evened(batch, tiles, shape, shape.clusters(there.units), there)
    return _seconds(way, moved, there, _totals(tiles), True, dealt.busiest)
