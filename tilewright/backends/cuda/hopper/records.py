"""Makes the records that a launch of hopper_multiply.cu reads: tiles cut, ordered, dealt to blocks.

Columns are cut evenly, in units of 64, or where they are C's rows of 16. Problems of the longest
tiles come first, those that wait for memory among those that do not; within one, tiles that share
what they read follow one another. Tiles are then dealt, each to the block that has least to do so
far, or where some wait for memory taken by who is done. Results depend on neither.

Where blocks come in clusters, what is cut and dealt is a pair of tiles of one problem:

    rows     more than one block has    at most so many, more than 64 columns    at most 64 columns
             +---------+                +---------+---------+                    +---+
             | block 0 |                | block 0 | block 1 |                    | 0 |  64 rows
             +---------+                +---------+---------+                    +---+
             | block 1 |                                                         | 1 |
             +---------+                                                         +---+
    shared   right operand              left operand                             right operand

Of 64 rows and 64 columns at most, block 1 has none and only keeps step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.hopper import cost
from tilewright.backends.cuda.hopper.blocks import FINE, HopperTile
from tilewright.backends.cuda.hopper.orient import Bools, Operand, Oriented
from tilewright.backends.cuda.hopper.packing import ROW, Panels
from tilewright.backends.cuda.work import Ints
from tilewright.engines.grouped import Floats
from tilewright.facts.measured.scale import Scale
from tilewright.planning import deal
from tilewright.planning.within import within

FIELDS = 20
LEFT_PACKED, RIGHT_PACKED, ENGINE_STORES, LEFT_SHARED, RIGHT_SHARED = 1, 2, 4, 8, 16
AS_MEASURED = Scale()
# Tiles down that follow one another: 16 took 1 % less than 4 on an H200, and 32 no less. But 4
# where few lie side by side: 8 experts of about 1024 rows took 1.242 ms so, by 16 rows 1.261.
# Of two strips, where few lie side by side, these follow one another: they share the longer side.
_DOWN, _DOWN_OF_FEW = 16, 4
_WORTH = 0.02  # of the time that multiplying takes: what must be won for tiles to be spread


class Tiles(NamedTuple):
    """Cut tiles, in order: problem, first row and column, how many count, predicted seconds.

    Of a shape in clusters each is what one cluster takes in one turn: see `members`.
    """

    problem: Ints
    row: Ints
    column: Ints
    rows: Ints
    columns: Ints
    seconds: Floats

    def take(self, index: npt.NDArray[np.int64]) -> Tiles:
        """These, in this order."""
        return Tiles._make(field[index] for field in self)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Problems of one launch: how they are turned, cut and dealt, and what is packed.

    `taken`: tiles are not dealt, but a block that is done takes the next one.
    """

    batch: Oriented
    which: Ints
    shape: HopperTile
    tiles: Tiles
    turns: Ints
    panels: tuple[Panels, Panels]
    seconds: float
    taken: bool = False

    @property
    def scratch(self) -> int:
        """Bytes that the packed operands take."""
        return self.plane_rows * self.shape.planes * ROW

    @property
    def plane_rows(self) -> int:
        """Rows of one plane of the scratch, 128 bytes each."""
        return self.panels[0].rows + self.panels[1].rows


def depths(batch: Oriented, which: Ints) -> Ints:
    """k of the problems `which`, and 0 of the others."""
    k = np.zeros_like(batch.k)
    k[which] = batch.k[which]
    return k


class _Sizes(NamedTuple):
    """Tiles of bands (`_bands`) by their size, before any is placed: [bands, 2 heights, 3 widths].

    Whole heights, and the last one; widths of fewer units, of one more, and the last one. `unit`
    is what widths are counted in, `count` how many tiles are of a size.
    """

    problem: Ints
    top: Ints
    rows: Ints
    high: Ints
    down: Ints
    across: Ints
    unit: Ints
    units: Ints
    number: Ints
    seconds: Floats

    @property
    def tiles(self) -> Ints:
        """How many a band has."""
        return self.down * self.across


def _sized(batch: Oriented, which: Ints, shape: HopperTile, there: Scale) -> _Sizes:
    """Each size of tiles that there are, with its seconds; 0 where there is none."""
    problem, top, rows, high, wide = _bands(batch, which, shape)
    columns = batch.columns[problem]
    down, across = -(-rows // high), -(-columns // wide)
    unit = shape.starts(cut_close(batch)[problem])
    units = -(-columns // unit)
    fewer = units // across
    more = units - fewer * across
    heights = np.stack([high, rows - (down - 1) * high], 1)
    last = columns - (across - 1) * units // across * unit
    widths = np.stack([fewer * unit, (fewer + 1) * unit, last], 1)
    tall = np.stack([down - 1, np.ones_like(down)], 1)
    across_of = [across - np.maximum(more, 1), np.maximum(more - 1, 0), np.ones_like(more)]
    count = (tall[:, :, None] * np.stack(across_of, 1)[:, None, :]).reshape(-1)
    some = np.flatnonzero(count)
    band = some // 6
    places = (problem[band], 0 * band, 0 * band)
    sizes = (heights.reshape(-1)[some // 3], widths.reshape(-1)[band * 3 + some % 3])
    seconds = np.zeros(len(count))
    seconds[some] = _timed(batch, shape, there, *places, *sizes).seconds
    return _Sizes(problem, top, rows, high, down, across, unit, units, count, seconds)


def totals(
    batch: Oriented, which: Ints, shape: HopperTile, there: Scale = AS_MEASURED
) -> tuple[int, float, float]:
    """How many tiles `cut` would make, their seconds up to rounding, and those of the longest."""
    sizes = _sized(batch, which, shape, there)
    work = float((sizes.number * sizes.seconds).sum())
    return int(sizes.number.sum()), work, float(sizes.seconds.max(initial=0.0))


def cut(
    batch: Oriented, which: Ints, shape: HopperTile, order: str, there: Scale = AS_MEASURED
) -> Tiles:
    """Every tile of the problems `which`, longest first unless `order` is "given"."""
    if order != "given":
        which = which[np.argsort(-batch.k[which], kind="stable")]
    sizes = _sized(batch, which, shape, there)
    if order != "given":
        sizes = _longest_first(sizes, len(batch.k))
    down, across, units = sizes.down, sizes.across, sizes.units
    p = np.repeat(np.arange(len(down)), sizes.tiles)
    across_of, units_of, unit = across[p], units[p], sizes.unit[p]
    i, j = _places(sizes, shape, there, p)
    start = _divided(j * units_of, across_of)
    end = _divided(j * units_of + units_of, across_of)
    width, is_last = end - start, j == across_of - 1
    wider = np.where(is_last, 2, width > (units // across)[p])
    row, start = i * sizes.high[p], start * unit
    left = np.minimum(sizes.high[p], sizes.rows[p] - row)
    columns = np.where(is_last, batch.columns[sizes.problem][p] - start, width * unit)
    seconds = sizes.seconds[6 * p + 3 * (i == down[p] - 1) + wider]
    tiles = Tiles(sizes.problem[p], sizes.top[p] + row, start, left, columns, seconds)
    return tiles if order == "given" else _spread(batch, tiles, shape, there)


def _longest_first(sizes: _Sizes, problems: int) -> _Sizes:
    """Problems with the longest tiles before others: those of 64 experts took 0.8 % less so."""
    longest = np.zeros(problems)
    np.maximum.at(longest, sizes.problem, sizes.seconds.reshape(-1, 6).max(1))
    order = np.argsort(-longest[sizes.problem], kind="stable")
    six = (field.reshape(len(order), -1)[order].reshape(-1) for field in sizes)
    return _Sizes._make(six)


def _places(sizes: _Sizes, shape: HopperTile, there: Scale, p: Ints) -> tuple[Ints, Ints]:
    """How many tiles lie above each tile of the bands `p`, and beside it, in the order of work."""
    down, across, counts = sizes.down, sizes.across, sizes.tiles
    # Where a problem keeps the device busy, and all its tiles side by side are in work at once.
    few = across * _DOWN <= there.units
    narrow = few & (counts * shape.cluster >= 2 * there.units)
    follow = np.where(narrow, _DOWN_OF_FEW, _DOWN) // shape.cluster
    if shape.strips > 1:
        follow = np.where(few, 1, follow)
    local = within(counts)
    group = _divided(local, (follow * across)[p])
    above = group * follow[p]
    height = np.minimum(follow[p], down[p] - above)
    rest = local - above * across[p]
    j = _divided(rest, height)
    return above + rest - j * height, j


def _divided(x: Ints, by: Ints) -> Ints:
    """x // by, of numbers below 2^50: half of one is further from the next than float64 rounds."""
    found: Ints = ((x + 0.5) / by).astype(np.int64)
    return found


def _spread(batch: Oriented, tiles: Tiles, shape: HopperTile, there: Scale) -> Tiles:
    """Problems that wait for memory evenly among those that do not, each kind in its order.

    One after another, tensor cores would wait while memory is read, and memory while they multiply:
    8 experts of 3 to 540 rows took 0.950 ms on an H200 so, and 0.898 spread. Where a batch as a
    whole waits for memory, or each block has few tiles, nothing is won.
    """
    waits = _waiting(batch, tiles, shape, there)
    if waits is None:
        return tiles
    place = np.empty(len(waits))
    for part in (waits, ~waits):
        until = np.cumsum(tiles.seconds[part])
        place[part] = (until - tiles.seconds[part] / 2) / until[-1]
    return tiles.take(np.argsort(place, kind="stable"))


def are_taken(
    batch: Oriented, tiles: Tiles, shape: HopperTile, order: str, there: Scale = AS_MEASURED
) -> bool:
    """Whether a block that is done is to take the next tile, not what it was dealt.

    What a tile takes whose problem waits for memory is not known beforehand, and tiles that read
    the same begin together so, while L2 holds it: 8 experts of 3 to 540 rows took 0.827 ms on an
    H200 by tiles of two strips, and 0.870 dealt. Tiles that are alike are dealt: of 64 experts
    0.313 ms, taken 0.326.
    """
    if shape.cluster > 1 or order == "given":
        return False
    return _waiting(batch, tiles, shape, there) is not None


def _waiting(batch: Oriented, tiles: Tiles, shape: HopperTile, there: Scale) -> Bools | None:
    """Which tiles' problems wait for memory, or None where it does not matter."""
    p, seconds, clusters = tiles.problem, tiles.seconds, shape.clusters(there.units)
    if len(p) < cost.FEW * clusters:
        return None
    busy = np.bincount(p, seconds, len(batch.k)) / clusters
    m, n, k = (x.astype(float) for x in (batch.rows, batch.columns, batch.k))
    moving = cost.moving_seconds(2.0 * (m * k + k * n + m * n), there) * (busy > 0)
    won = np.maximum(moving - busy, 0.0).sum()
    waits: Bools = (moving > busy)[p]
    if waits.all() or won < _WORTH * busy.sum() or moving.sum() > busy.sum():
        return None
    return waits


def _bands(batch: Oriented, which: Ints, shape: HopperTile) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Rows that are cut alike: problem, first row, how many, and what one cluster takes of them.

    A cluster has its tiles one above the other, but what is left for one tile down goes across.
    """
    rows, one = batch.rows[which], np.ones_like(which)
    if shape.cluster == 1:
        return which, 0 * which, rows, shape.rows * one, shape.width * one
    high = shape.cluster * shape.rows
    last = rows % high
    low = np.where(last > shape.rows, 0, last)
    columns = (
        np.stack([which, which], 1),
        np.stack([0 * rows, rows - low], 1),
        np.stack([rows - low, low], 1),
        np.stack([high * one, shape.rows * one], 1),
        np.stack([shape.width * one, shape.cluster * shape.width * one], 1),
    )
    problem, top, count, tall, wide = (column.reshape(-1) for column in columns)
    some = count > 0
    return problem[some], top[some], count[some], tall[some], wide[some]


def members(shape: HopperTile, tiles: Tiles) -> tuple[Tiles, Ints]:
    """The tile of each block of each cluster, and what they share: 0 or one of the flags above."""
    if shape.cluster == 1:
        return tiles, 0 * tiles.problem
    tall = tiles.rows > shape.rows
    wide = ~tall & (tiles.columns > 64)
    half = 64 * shape.strips
    high = tall | (~wide & (tiles.rows > half))
    rows = np.where(tall, shape.rows, np.where(high, half, tiles.rows))
    columns = np.where(wide, (tiles.columns + 127 >> 7) << 6, tiles.columns)
    fields = (
        (tiles.problem, tiles.problem),
        (tiles.row, tiles.row + np.where(high, rows, 0)),
        (tiles.column, tiles.column + np.where(wide, columns, 0)),
        (rows, np.where(high, tiles.rows - rows, np.where(wide, rows, 0))),
        (columns, np.where(high, columns, tiles.columns - columns)),
        (tiles.seconds, tiles.seconds),
    )
    shares = np.where(high, RIGHT_SHARED, np.where(wide, LEFT_SHARED, 0))
    return Tiles(*(np.stack(pair, 1).reshape(-1) for pair in fields)), np.repeat(shares, 2)


def _timed(batch: Oriented, shape: HopperTile, there: Scale, *places: Ints) -> Tiles:
    """Tiles of these problems, first rows and columns, rows and columns, with their seconds."""
    units = Tiles._make((*places, np.zeros(len(places[0]))))
    each, shares = members(shape, units)
    p = each.problem
    left, right = (cost.lines(side)[p] for side in (batch.left, batch.right))
    shared = shares == LEFT_SHARED, shares == RIGHT_SHARED
    in_slabs = batch.right.direct & ~batch.right.mn
    width, slab = shape.padded(each.columns), np.where(in_slabs[p], FINE, 64)
    loads = cost.Loads(each.rows, width, left, right, *shared, slab)
    ends = {"turned": batch.transposed[p], "aligned": batch.engine_stores[p]}
    seconds = cost.tile_seconds(shape, loads, batch.k[p] + 63 >> 6, **ends, there=there)
    return units._replace(seconds=seconds.reshape(-1, shape.cluster).max(1))


def split_tail(
    batch: Oriented, tiles: Tiles, shape: HopperTile, blocks: int, there: Scale = AS_MEASURED
) -> Tiles:
    """The last two rounds cut in half, and the longest of them first: a finer end to deal."""
    count = len(tiles.problem)
    if count < blocks:
        return tiles
    tail = np.arange(max(0, count - 2 * blocks), count)
    head = tiles.take(np.arange(tail[0]))
    last = tiles.take(tail)
    unit = shape.starts(cut_close(batch)[last.problem])
    cut_at = np.where(last.columns > 64, -(-last.columns // (2 * unit)) * unit, last.columns)
    again = np.flatnonzero(last.columns > cut_at)
    fields = [
        (last.problem, last.problem[again]),
        (last.row, last.row[again]),
        (last.column, (last.column + cut_at)[again]),
        (last.rows, last.rows[again]),
        (cut_at, (last.columns - cut_at)[again]),
    ]
    halves = _timed(batch, shape, there, *(np.concatenate(pair) for pair in fields))
    halves = halves.take(np.argsort(-halves.seconds, kind="stable"))
    return Tiles._make(map(np.concatenate, zip(head, halves, strict=True)))


def in_turn(count: int, blocks: int) -> Ints:
    """Positions of tiles in their order, a round of all blocks a row; -1 for none."""
    flat = np.full(-(-count // blocks) * blocks, -1, np.int64)
    flat[:count] = np.arange(count)
    return flat.reshape(-1, blocks)


def balanced(
    batch: Oriented, tiles: Tiles, shape: HopperTile, blocks: int, there: Scale = AS_MEASURED
) -> tuple[Tiles, Ints, float]:
    """The tiles, the last ones split or not, dealt so that the busiest block is done sooner."""
    best, dealt = evened(batch, tiles, shape, blocks, there)
    return best, dealt.turns(), dealt.busiest


def evened(
    batch: Oriented, tiles: Tiles, shape: HopperTile, blocks: int, there: Scale = AS_MEASURED
) -> tuple[Tiles, deal.Deal]:
    """The same, no turn written down yet."""
    # What comes before the last rounds is dealt alike, split or not.
    alike = max(0, len(tiles.problem) - 2 * blocks)
    begun = deal.begin(tiles.seconds[:alike], blocks) if deal.is_worth(len(tiles.problem)) else None
    whole = deal.Deal.of(tiles.seconds, blocks, begun)
    finer = split_tail(batch, tiles, shape, blocks, there)
    if finer is not tiles:
        split = deal.Deal.of(finer.seconds, blocks, begun)
        if split.busiest < whole.busiest:
            return finer, split
    return tiles, whole


def records(
    batch: Oriented,
    shape: HopperTile,
    tiles: Tiles,
    turns: Ints,
    panels: tuple[Panels, Panels],
    maps: tuple[Ints, Ints, Ints, Ints],
    element: int = 2,
) -> npt.NDArray[np.int32]:
    """The table of hopper_tiles.cuh; `maps` are those of left, right, C and C closely, by problem.

    A C that the copy engine cannot store has map -1; a packed operand has the panels' map. C has
    elements of `element` bytes.
    """
    tiles, shares = members(shape, tiles)
    every = turns[:, :, None] * shape.cluster + np.arange(shape.cluster)
    taken = np.where(turns[:, :, None] < 0, -1, every)
    table = np.zeros((len(tiles.problem) + 1, FIELDS), np.int32)
    body, p = table[:-1], tiles.problem
    k = batch.k[p]
    steps = -(-k // 64)
    slices = np.where(k > 0, -(-(k - 64 * (steps - 1)) // 16), 4)
    left_packed, right_packed = panels[0].padded[p] > 0, panels[1].padded[p] > 0
    flags = LEFT_PACKED * left_packed + RIGHT_PACKED * right_packed
    flags = flags + ENGINE_STORES * (maps[2][p] >= 0) + shares
    width = shape.padded(tiles.columns)
    body[:, 0], body[:, 1], body[:, 2] = maps[0][p], maps[1][p], steps
    body[:, 3] = width | slices << 16 | flags << 24
    body[:, 4:7] = _walk(batch.left, panels[0], p, tiles.row)
    body[:, 8:11] = _walk(batch.right, panels[1], p, tiles.column)
    body[:, 7], body[:, 11] = tiles.rows, tiles.columns
    body[:, 12], body[:, 13], body[:, 14] = tiles.row, tiles.column, p
    body[:, 15] = batch.c_stride[p] // element
    along = np.where(batch.transposed[p], tiles.column, tiles.row)
    across = np.where(batch.transposed[p], tiles.row, tiles.column)
    address = batch.c_address[p] + along * batch.c_stride[p] + element * across
    body[:, 16:18] = address[:, None].view(np.int32).reshape(-1, 2)
    body[:, 18], table[:, 19] = maps[2][p], 64
    body[:, 19] = _slabs(batch, width, p)[p] | maps[3][p] << 8
    return table[taken.reshape(-1)]


def slabs(batch: Oriented, shape: HopperTile, tiles: Tiles) -> Ints:
    """By problem, of how many rows a box of the right operand is where k is contiguous.

    Half of its widest tile's, so that each of two blocks that share them brings one.
    """
    each, _ = members(shape, tiles)
    return _slabs(batch, shape.padded(each.columns), each.problem)


def _slabs(batch: Oriented, width: Ints, p: Ints) -> Ints:
    widest = np.full(len(batch.k), 2 * 8)
    np.maximum.at(widest, p, width)
    return np.where(batch.right.direct & ~batch.right.mn, widest // 2, 64)


def cut_within(batch: Oriented, shape: HopperTile, tiles: Tiles) -> Bools:
    """By problem, whether a tile ends within 64 of C's rows that are not its last."""
    each, _ = members(shape, tiles)
    ends = (each.columns % 64 != 0) & (each.column + each.columns < batch.columns[each.problem])
    found = np.zeros(len(batch.k), bool)
    found[each.problem[ends]] = True
    close: Bools = found & cut_close(batch)
    return close


def cut_close(batch: Oriented) -> Bools:
    """Whether tiles may begin at any column: then columns are rows of x, and C's that leave so."""
    close: Bools = batch.transposed & batch.engine_stores & ~batch.right.mn
    return close


def _walk(operand: Operand, panels: Panels, p: Ints, start: Ints) -> Ints:
    """x, y and stride of the first box of each tile, [tiles, 3]."""
    packed, mn = panels.padded[p] > 0, operand.mn[p]
    x = np.where(packed | ~mn, 0, start)
    y = np.where(packed, panels.base[p], 0)
    y = y + np.where(mn, panels.padded[p] * (start // 64), start)
    return np.stack([x, y, panels.padded[p]], 1)
