"""Buckets: which tile shape computes which problem, and into how many parts its k is cut.

    Table       tiles and seconds a tile of every problem with every candidate shape
    largest     the strategy: of the shapes that fit into a problem the one of largest area
    cheapest    what may overrule it: the shape whose tiles cost least, padding at edges included
    spread      what may overrule both where slots would idle: no tile longer than a limit, by
                smaller shapes or by cutting k, whichever costs less
    alone       cheapest with a single shape for all, where every further shape is a further launch

`choices` returns what is worth predicting of these; `order.compare` predicts them in every order,
as only an order knows how many launches it makes of them, and the least seconds win.

Worked example: 64 x 64 tiles at 4 GFLOP/s a slot, 16 x 16 ones at 2, 1 µs a tile, two slots.

>>> tiles = (Tile(64, 64, 4e9, 1e-6), Tile(16, 16, 2e9, 1e-6))
>>> table = Table.of([130, 20, 8], [130, 300, 70], [100, 100, 100], tiles)
>>> table.counts.astype(int).tolist()      # 130 x 130 takes 3 x 3 large tiles or 9 x 9 small ones
[[9, 5, 2], [81, 38, 5]]
>>> (table.seconds * 1e6).round(1).tolist()
[[205.8, 205.8, 205.8], [26.6, 26.6, 26.6]]
>>> slots = Slots(compute_units=2)
>>> largest(table, slots).tile.tolist()    # 64 rows fit into 130 only
[0, 1, 1]
>>> cheapest(table, slots).tile.tolist()   # 9 x 205.8 < 81 x 26.6 and 5 x 205.8 > 38 x 26.6
[0, 1, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.facts.fixed import Fixed
from tilewright.planning.cost import MARGIN
from tilewright.planning.deal import Floats, Ints
from tilewright.planning.makespan import Runs, Slots, lower_bound

# Longest tile allowed, in shares of the ideal makespan. At the last, with eight tiles after one
# another in every slot, an uneven end costs at most an eighth; finer ones only add overhead.
CAPS = (1.0, 0.5, 0.25, 0.125)
# Sizes may be absurd: beyond this a float64 no longer counts by ones.
_COUNTABLE = 2.0**53


@dataclass(frozen=True, slots=True)
class Tile:
    """A shape of C that one work-group computes: `seconds = overhead + 2·m·n·k / rate`.

    `rate` is flops a second that one slot reaches on a full tile while the others are busy too;
    `overhead` the seconds of a tile of no depth: its share of dispatch, and writing C. k is rounded
    up to `step`, and parts of a cut k begin at multiples of it. Edge tiles take as long as whole
    ones, unless `trim` says to which multiples of rows and columns they are computed; of their time
    `kept` is a share that they take however little is computed. Of a `whole` one nothing is cut
    along k. A kernel that takes several shapes in one launch has a `kernel` that names it in all of
    them.
    """

    m: int
    n: int
    rate: float
    overhead: float = 0.0
    step: int = 1
    trim: tuple[int, int] | None = None
    kept: float = 0.0
    whole: bool = False
    kernel: str = ""

    @classmethod
    def timed(
        cls, m: int, n: int, step: int, fixed: float, slope: float, slots: int, kernel: str = ""
    ) -> Tile:
        """From seconds of a full device of so many slots, and those of 128 steps of k more."""
        rate = 2.0 * m * n * 128 / (slope * slots)
        return cls(m, n, rate, fixed * slots, step, kernel=kernel)


@dataclass(frozen=True)
class Table:
    """Every problem (column) measured with every tile shape (row)."""

    m: Floats
    n: Floats
    k: Floats
    tiles: tuple[Tile, ...]
    counts: Floats
    seconds: Floats

    @classmethod
    def of(
        cls, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, tiles: tuple[Tile, ...]
    ) -> Table:
        """Work of a tile is proportional to k; tiles of a problem take the same, their mean."""
        rows, columns, depth = (np.asarray(column, np.float64) for column in (m, n, k))
        height, width, step = (_column(tiles, name) for name in ("m", "n", "step"))
        counts = np.ceil(rows / height) * np.ceil(columns / width)
        each = (counts > 0) * (height * width)
        if any(tile.trim for tile in tiles):
            trims = np.array([tile.trim or (tile.m, tile.n) for tile in tiles], np.float64)
            trim_m, trim_n = trims[:, :1], trims[:, 1:]
            area = trim_m * np.ceil(rows / trim_m) * trim_n * np.ceil(columns / trim_n)
            kept = _column(tiles, "kept")
            each = kept * each + (1.0 - kept) * area / np.maximum(counts, 1.0)
        flops = 2.0 * each * step * np.ceil(depth / step)
        seconds = _column(tiles, "overhead") + flops / _column(tiles, "rate")
        return cls(rows, columns, depth, tiles, np.minimum(counts, _COUNTABLE), seconds)


@dataclass(frozen=True)
class Choice(Fixed):
    """One shape for every problem, as columns.

    `counts` is the tiles of a problem, its `parts` included, `seconds` the time of each; `depth` is
    the length of k that a part takes, the last one the rest. `launch` is the same for shapes that
    go into a launch together, of which there are `launches` at least. `bound` is a makespan that no
    order undercuts, `partials` the elements of all partial results.
    """

    reason: str
    tile: Ints
    counts: Ints
    seconds: Floats
    parts: Ints
    depth: Ints
    launch: Ints
    launches: int
    bound: float
    partials: int

    @property
    def runs(self) -> Runs:
        """The queue of all tiles, problems in the given order."""
        return Runs(self.counts, self.seconds)

    def fixed(self, launches: int, slots: Slots) -> float:
        """Seconds besides the tiles: launches, and adding up the parts of what is cut along k."""
        if not self.partials:
            return slots.launch * launches
        return slots.launch * (launches + slots.adds) + slots.merge * self.partials / slots.count

    def score(self, slots: Slots) -> float:
        """Least seconds that any order can reach with as few launches as there can be."""
        return self.bound + self.fixed(self.launches, slots)


def choices(table: Table, slots: Slots) -> list[Choice]:
    """Every assignment of shapes worth predicting, the strategy's first."""
    every = range(len(table.tiles))
    found = [largest(table, slots), cheapest(table, slots)]
    if np.array_equal(found[0].tile, found[1].tile):
        found.pop()
    found += spread(table, found[-1], every, slots)
    # One launch cut along k may have a second phase to launch: whole, it may still be faster.
    if slots.launch > 0.0 and all(choice.launches > 1 or choice.partials for choice in found):
        found += _singles(table, slots)
    return found


def _singles(table: Table, slots: Slots) -> list[Choice]:
    """A single shape, whole and cut; the best of all, and of those that may be cut."""
    every = range(len(table.tiles))
    cut = [row for row in every if not table.tiles[row].whole]
    found: dict[int, Choice] = {}
    for rows in (every, cut):
        if rows:
            single = alone(table, slots, rows)
            found.setdefault(int(single.tile[0]), single)
    each = (
        [single, *spread(table, single, range(row, row + 1), slots)]
        for row, single in found.items()
    )
    return [choice for choices in each for choice in choices]


def largest(table: Table, slots: Slots) -> Choice:
    """Of the shapes that fit into a problem the one of largest area, else the smallest shape."""
    tiles = table.tiles
    by_area = sorted(range(len(tiles)), key=lambda row: tiles[row].m * tiles[row].n)
    pick = np.full(len(table.k), by_area[0])
    for row in by_area:
        pick[(table.m >= tiles[row].m) & (table.n >= tiles[row].n)] = row
    return _whole(table, pick, "the largest shape that fits", slots)


def cheapest(table: Table, slots: Slots) -> Choice:
    """The shape whose tiles take least time together; of equals the first named."""
    pick = np.argmin(table.counts * table.seconds, axis=0)
    return _whole(table, pick, "the shape of least work", slots)


def alone(table: Table, slots: Slots, rows: Sequence[int]) -> Choice:
    """The single shape of these for all problems that any order could make fastest."""
    ideal = np.sum(table.counts * table.seconds, axis=1) / slots.count
    best: Choice | None = None
    for row in sorted(rows, key=ideal.__getitem__):
        if best is not None and best.bound <= ideal[row]:
            break
        choice = _whole(table, np.full(len(table.k), row), "a single shape", slots)
        if best is None or choice.bound < best.bound:
            best = choice
    assert best is not None
    return best


def spread(table: Table, base: Choice, rows: range, slots: Slots) -> list[Choice]:
    """The best of `base` with its longest tiles capped; nothing where that can gain nothing."""
    ideal = base.runs.work / slots.count
    if base.score(slots) <= ideal * MARGIN:
        return []
    longest = float(base.seconds[base.counts > 0].max(initial=0.0))
    limits = [share * ideal for share in CAPS if share * ideal < longest]
    tried = [_capped(table, base, limit, rows, slots) for limit in limits]
    return sorted(tried, key=lambda choice: choice.score(slots))[:1]


def _capped(table: Table, base: Choice, limit: float, rows: range, slots: Slots) -> Choice:
    """`base`, tiles longer than `limit` replaced: smaller shapes or parts of k, what costs less."""
    over = np.flatnonzero((base.seconds > limit) & (base.counts > 0))
    parts, depth, seconds = _parts(table, over, limit, rows)
    area = table.m[over] * table.n[over]
    counts = table.counts[rows.start : rows.stop, over] * parts
    cost = counts * seconds + np.where(parts > 1, parts * area * slots.merge, 0.0)
    # A part is at least a step of k: where no shape keeps the limit, the shortest tile.
    cost = np.where(seconds <= 2 * limit, cost, np.inf)
    pick = np.where(np.isfinite(cost).any(axis=0), cost.argmin(axis=0), seconds.argmin(axis=0))
    at = (pick, np.arange(len(over)))
    partials = int(np.sum(np.where(parts[at] > 1, parts[at] * area, 0.0)))
    times = base.seconds.copy()
    times[over] = seconds[at]
    return _finish(
        "long products cut along k" if partials else "smaller shapes for long tiles",
        (
            _replaced(base.tile, over, pick + rows.start),
            _replaced(base.counts, over, counts[at]),
            times,
            _replaced(base.parts, over, parts[at]),
            _replaced(base.depth, over, depth[at]),
        ),
        partials,
        table.tiles,
        slots,
    )


def _replaced(column: Ints, at: Ints, values: Ints | Floats) -> Ints:
    copy = column.copy()
    copy[at] = values
    return copy


def _parts(table: Table, over: Ints, limit: float, rows: range) -> tuple[Floats, Floats, Floats]:
    """Parts, their depth and seconds for every shape (row) and problem in `over` (column).

    Overhead may fill half of a part's time, no more: else a cap below it would ask for dust.
    """
    tiles = table.tiles[rows.start : rows.stop]
    overhead, step = _column(tiles, "overhead"), _column(tiles, "step")
    whole = table.seconds[rows.start : rows.stop, over] - overhead
    steps = np.maximum(np.ceil(table.k[over] / step), 1.0)
    room = np.maximum(limit - overhead, overhead)
    most = np.where(_column(tiles, "whole") > 0, 1.0, steps)
    parts = np.clip(np.ceil(whole / room), 1.0, most)
    depth = np.ceil(steps / parts)
    return np.ceil(steps / depth), depth * step, overhead + whole * depth / steps


def _whole(table: Table, pick: Ints, reason: str, slots: Slots) -> Choice:
    """The choice of these shapes, nothing cut."""
    at = (pick, np.arange(len(pick)))
    counts = table.counts[at].astype(np.int64)
    depth = table.k.astype(np.int64)
    one = np.ones(len(pick), np.int64)
    columns = (pick, counts, table.seconds[at], one, depth)
    return _finish(reason, columns, 0, table.tiles, slots)


def _finish(
    reason: str,
    columns: tuple[Ints, Ints, Floats, Ints, Ints],
    partials: int,
    tiles: tuple[Tile, ...],
    slots: Slots,
) -> Choice:
    """A choice of these tiles, counts, seconds, parts and depths."""
    tile, counts, seconds, _, _ = columns
    launch = launch_of(tiles)[tile]
    launches = int(np.count_nonzero(np.bincount(launch, counts > 0)))
    longest_first = np.argsort(-seconds)
    bound = lower_bound(Runs(counts[longest_first], seconds[longest_first]), slots)
    return Choice(reason, *columns, launch, launches, bound, partials)


def launch_of(tiles: tuple[Tile, ...]) -> Ints:
    """Of every shape the number of the first that goes into a launch with it: often its own."""
    names = [tile.kernel for tile in tiles]
    own = [names.index(name) if name else place for place, name in enumerate(names)]
    return np.array(own, np.int64)


def _column(tiles: tuple[Tile, ...], name: str) -> Floats:
    return np.array([[getattr(tile, name)] for tile in tiles], np.float64)
