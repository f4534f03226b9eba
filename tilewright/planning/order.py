"""Order: in which sequence the problems' tiles enter the queue, and the queue itself.

    given           as the caller handed them over
    k-descending    long work first: the coarse order, stable
    bucketed        one launch after another, that of the longest tiles first, each keeping the
                    coarse order: as few launches as shapes, or fewer where a kernel takes several
    longest-first   by seconds a tile, descending: longest-processing-time-first

A launch holds tiles of one shape, or of those that one kernel takes; every maximal run of them in
an order is one, and an order that mixes them pays for many. Problems without tiles (no rows or no
columns) come last, in no bucket. With one launch the last three orders are one; `arrange` then
returns the same array, so that it is predicted once.

Worked example: four problems, two shapes; shape 1 has the longer tiles.

>>> k = np.array([10, 40, 20, 30])
>>> tile, seconds = np.array([0, 0, 1, 1]), np.array([1.0, 4.0, 8.0, 12.0])
>>> live = np.arange(4)
>>> coarse = descending(live, k)
>>> coarse.tolist()
[1, 3, 2, 0]
>>> bucketed(coarse, tile, seconds).tolist()
[3, 2, 1, 0]
>>> launches(coarse, tile), launches(bucketed(coarse, tile, seconds), tile)
(3, 2)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.facts.fixed import Fixed
from tilewright.planning.buckets import Choice, Tile
from tilewright.planning.deal import Floats, Ints
from tilewright.planning.makespan import Runs, Slots, predict

ORDERS = ("given", "k-descending", "bucketed", "longest-first")
Indices = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TileList(Fixed):
    """The queue: one entry a tile, in launch order.

    Tile (row, col) of `problem` covers rows row · tile.m … and columns col · tile.n … of C, summed
    over k_begin … k_end. `part` numbers the pieces of a product cut along k, else 0. The k columns
    are int64 where a k needs it.
    """

    problem: Indices
    row: Indices
    col: Indices
    part: Indices
    k_begin: npt.NDArray[np.signedinteger[Any]]
    k_end: npt.NDArray[np.signedinteger[Any]]

    def __len__(self) -> int:
        return len(self.problem)


@dataclass(frozen=True)
class Sums(Fixed):
    """The second phase of products cut along k: problem, parts, where its parts lie in scratch.

    Part p of `problem[i]` is a dense row-major m x n matrix that begins `offset[i] + p · m · n`
    elements into the scratch of `elements`. Adding parts 0, 1, 2 … in that order, each element on
    its own, makes the result independent of who finished first.
    """

    problem: Ints
    parts: Ints
    offset: Ints
    elements: int

    def __len__(self) -> int:
        return len(self.problem)


@dataclass(frozen=True)
class Candidate(Fixed):
    """One order of one assignment of shapes; `fixed` is what it costs besides its tiles."""

    order: Ints
    choice: Choice
    fixed: float

    @property
    def floor(self) -> float:
        """No prediction of it can be less."""
        return self.choice.bound + self.fixed

    @property
    def runs(self) -> Runs:
        """Its queue."""
        return Runs(self.choice.counts[self.order], self.choice.seconds[self.order])


def compare(
    live: Ints,
    k: Ints,
    assignments: list[Choice],
    slots: Slots,
    *,
    only_given: bool,
) -> dict[str, tuple[Candidate, float]]:
    """Of every order the assignment of shapes it runs fastest with, and its predicted seconds."""
    coarse = live if only_given else descending(live, k)
    orders = [
        {"given": live} if only_given else arrange(choice, live, coarse) for choice in assignments
    ]
    makespans: dict[tuple[int, int], float] = {}
    plans = {}
    for name in orders[0]:
        candidates = [
            Candidate(order[name], choice, _fixed(order[name], choice, slots))
            for order, choice in zip(orders, assignments, strict=True)
        ]
        plans[name] = _best(candidates, makespans, slots)
    return plans


def _fixed(order: Ints, choice: Choice, slots: Slots) -> float:
    """Seconds of launches, and of going through memory in another order than the caller's."""
    jumps = int(np.count_nonzero(np.diff(order) != 1)) if slots.jump else 0
    return choice.fixed(launches(order, choice.launch), slots) + jumps * slots.jump / slots.count


def _best(
    candidates: list[Candidate], makespans: dict[tuple[int, int], float], slots: Slots
) -> tuple[Candidate, float]:
    """The fastest candidate; `makespans` remembers, as orders are often the same array."""
    candidates = sorted(candidates, key=lambda candidate: candidate.floor)
    best, least = candidates[0], np.inf
    for candidate in candidates:
        if candidate.floor >= least:
            break
        key = id(candidate.order), id(candidate.choice)
        if key not in makespans:
            makespans[key] = predict(candidate.runs, slots)
        seconds = makespans[key] + candidate.fixed
        if seconds < least:
            best, least = candidate, seconds
    return best, least


def arrange(choice: Choice, live: Ints, coarse: Ints) -> dict[str, Ints]:
    """All four orders; `live` are the problems that have tiles, `coarse` the same by k."""
    by_bucket = coarse
    if choice.launches > 1:
        by_bucket = bucketed(coarse, choice.launch, choice.seconds)
    longest_first = descending(by_bucket, choice.seconds)
    return dict(zip(ORDERS, (live, coarse, by_bucket, longest_first), strict=True))


def descending(order: Ints, key: Ints | Floats) -> Ints:
    """`order` sorted by key, largest first, equals as they were; itself where it is so already."""
    values = key[order]
    if np.all(values[:-1] >= values[1:]):
        return order
    # NumPy sorts 16-bit keys by radix: 100,000 take 0.4 ms instead of 6.
    if values.dtype.kind == "i" and values.max() < 2**16:
        return order[np.argsort((2**16 - 1 - values).astype(np.uint16), kind="stable")]
    return order[np.argsort(-values, kind="stable")]


def bucketed(coarse: Ints, launch: Ints, seconds: Floats) -> Ints:
    """One launch after another, that of the longest tiles first, each in coarse order."""
    longest = np.zeros(int(launch.max()) + 1)
    np.maximum.at(longest, launch[coarse], seconds[coarse])
    place = np.empty(len(longest), np.uint16)
    place[np.argsort(-longest, kind="stable")] = np.arange(len(longest))
    return coarse[np.argsort(place[launch[coarse]], kind="stable")]


def launches(order: Ints, launch: Ints) -> int:
    """How many maximal runs of problems of one launch the order has."""
    runs = launch[order]
    return int(np.count_nonzero(runs[1:] != runs[:-1])) + min(1, len(order))


def tile_list(order: Ints, choice: Choice, n: Ints, k: Ints, tiles: tuple[Tile, ...]) -> TileList:
    """The queue of all tiles: problems in this order; within one, parts, then rows, then columns.

    All columns of a row of tiles follow one another: they share the rows of A while in cache.
    """
    counts = choice.counts[order]
    total = int(counts.sum())
    problem = np.repeat(order.astype(np.int32), counts)
    place = np.arange(total, dtype=np.int32)
    place -= np.repeat((np.cumsum(counts) - counts).astype(np.int32), counts)
    widths = np.array([tile.n for tile in tiles])[choice.tile]
    cols = (-(-n // widths)).astype(np.int32)
    part = np.zeros(total, np.int32)
    if choice.partials:
        whole = (choice.counts // choice.parts).astype(np.int32)[problem]
        part, place = np.divmod(place, whole)
    across = cols[problem]
    # Exact: half a tile lies further from the next row than float64 rounds. np.divmod is slower.
    row = ((place + 0.5) / across).astype(np.int32)
    col = place - row * across
    kind: type[np.signedinteger[Any]] = np.int32 if int(k.max(initial=0)) < 2**31 else np.int64
    begins, ends = np.zeros(total, kind), k.astype(kind)[problem]
    if choice.partials:
        depth = choice.depth.astype(kind)[problem]
        begins[:] = part * depth
        ends[:] = np.minimum(ends, begins + depth)
    return TileList(problem, row, col, part, begins, ends)


def sums(choice: Choice, m: Ints, n: Ints) -> Sums:
    """Which products are added up from parts, and where the parts lie."""
    problem = np.flatnonzero((choice.parts > 1) & (choice.counts > 0))
    parts = choice.parts[problem]
    sizes = parts * m[problem] * n[problem]
    ends = np.cumsum(sizes)
    return Sums(problem, parts, ends - sizes, int(ends[-1]) if len(ends) else 0)
