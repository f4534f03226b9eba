"""Predicts how many seconds a batch takes on Hopper, from rates measured on one H200.

Multiprocessors work through their tiles; none is faster than memory lets all be together. While a
tile is multiplied and stored the next one's boxes arrive, so a tile takes the longer of the two.
Of 37 runs of dense, irregular and mixture-of-experts batches, in every configuration and both
orientations, the constants fit 33 within 10 % and all within 17 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from tilewright.backends.cuda.hopper.blocks import FINE, HopperTile
from tilewright.backends.cuda.hopper.orient import Bools, Operand, Oriented
from tilewright.backends.cuda.work import Ints
from tilewright.engines.grouped import Floats
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import Scale

FEW = 4  # turns of a block, below which it matters how the last of them are dealt


@dataclass(frozen=True, slots=True)
class Loads:
    """What each tile reads a step: rows and width, lines of L2 that 128 bytes of a row lie in.

    Of a shared operand a block asks for its part only, though all of it arrives.
    """

    rows: Ints
    width: Ints
    left_lines: Ints
    right_lines: Ints
    left_shared: Bools
    right_shared: Bools
    slab: Ints

    def seconds(self, shape: HopperTile) -> Floats:
        """Of one step."""
        left, right = (self.rows + 63) & -64, (self.width + self.slab - 1) & -self.slab
        asked = left * self.left_lines / np.where(self.left_shared, shape.cluster, 1)
        asked += right * self.right_lines / np.where(self.right_shared, shape.cluster, 1)
        loaded = (left + right) * (128 / h200.HOPPER_LOADS)
        longest: Floats = np.maximum(loaded, asked / h200.HOPPER_LINES)
        return shape.planes * longest


def lines(operand: Operand) -> Ints:
    """In how many lines of L2 128 bytes of a row lie: two where rows begin within one."""
    within = (operand.address | operand.outer_stride()) % 128 != 0
    return np.where(operand.direct & within, 2, 1)


def tile_seconds(
    shape: HopperTile, loads: Loads, steps: Ints, *, turned: Bools, aligned: Bools, there: Scale
) -> Floats:
    """What one tile of each size takes its block, beside the others on the multiprocessor."""
    high = 64 * shape.strips
    rows = (loads.rows + high - 1) & -high  # a power of two
    multiply = shape.products * rows * loads.width * (2 * 64 / h200.HOPPER_FLOPS) / there.multiply
    straight, across, unaligned, both = h200.HOPPER_TILES[shape.name]
    stored, scattered = np.where(turned, across, straight), np.where(turned, both, unaligned)
    overhead = np.where(aligned, stored, scattered)
    busy = steps * multiply * shape.blocks + overhead
    seconds: Floats = np.maximum(busy, steps * loads.seconds(shape) * shape.blocks)
    return seconds


class Bounds(NamedTuple):
    """By shape, of all tiles together: how many, and no more seconds than all and the longest."""

    tiles: Floats
    work: Floats
    longest: Floats


def bounds(shapes: tuple[HopperTile, ...], batch: Oriented, which: Ints, there: Scale) -> Bounds:
    """What no cut of the problems `which` by each shape undercuts; how many tiles it makes.

    Sides are rounded up as a whole, not tile by tile, and a problem's tiles take the longer of what
    multiplying and what loading all of them takes. Of two tiles in a pair the longer one counts,
    so at least half of both.
    """
    m, n, k = (x[which].astype(float) for x in (batch.rows, batch.columns, batch.k))
    high, wide, strips, blocks, planes, products, cluster = _columns(shapes)
    down, across = np.ceil(m / high), np.ceil(n / wide)
    # Of pairs, two tiles above one another, and what is left for one beside another.
    beside = (cluster > 1) & (down % 2 == 1)
    count = np.where(
        cluster > 1, down // 2 * across + beside * np.ceil(n / (2 * wide)), down * across
    )
    overheads = np.array([h200.HOPPER_TILES[shape.name] for shape in shapes])
    overhead = overheads[:, batch.transposed[which] + 2 * ~batch.engine_stores[which]]
    steps = np.ceil(k / 64) * blocks
    unit, flop = 64 * strips, products * (2 * 64 / h200.HOPPER_FLOPS) / there.multiply
    lines_of = lines(batch.left)[which], lines(batch.right)[which]

    def seconds(
        rows: Floats, columns: Floats, left: Floats, right: Floats, tiles: Floats
    ) -> Floats:
        """Of so many tiles with so many rows and columns in all, that load so many of either."""
        wide = np.ceil(columns / FINE) * FINE
        multiply = np.ceil(rows / unit) * unit * wide * flop / cluster
        asked = (left * lines_of[0] + right * lines_of[1]) / h200.HOPPER_LINES
        loads = planes * np.maximum((left + right) * (128 / h200.HOPPER_LOADS), asked)
        busy = steps * multiply + overhead * tiles
        found: Floats = np.maximum(busy, steps * loads * (cluster == 1))
        return found

    left, right = np.ceil(m / 64) * 64, np.ceil(n / FINE) * FINE
    work = seconds(m, n, left * across, right * down, count).sum(1)
    rows, columns = np.minimum(m, high), n / across
    left, right = np.ceil(rows / 64) * 64, np.ceil(columns / FINE) * FINE
    longest = seconds(np.where(cluster > 1, 1, rows), columns, left, right, np.ones_like(count))
    return Bounds(count.sum(1), work, longest.max(axis=1, initial=0.0))


@cache
def _columns(shapes: tuple[HopperTile, ...]) -> tuple[Floats, ...]:
    names = ("rows", "width", "strips", "blocks", "planes", "products", "cluster")
    return tuple(np.array([[getattr(one, name)] for one in shapes], float) for name in names)


def memory_seconds(shape: HopperTile, moved: float, turns: float, there: Scale) -> float:
    """What memory takes for the bytes of operands and results, in so many turns of a block.

    256 experts of 64 rows, which wait for it in 31 turns, took 1.84 to 1.88 ms three stages deep
    and 1.88 to 1.95 ms four stages deep; 8 experts of 20 to 250 rows, in two turns, 0.18 and 0.15.
    Tiles of two strips, four stages deep: 253 experts of few to 300 rows 3.74 ms, three stages of
    128 rows 3.93, four 4.22; but the 8 experts 0.153, where four stages of 128 rows took 0.131.
    """
    best = (shape.stages >= 4 and shape.strips == 1) == (turns < FEW)
    return float(moving_seconds(np.array(moved), there)) * (1.0 if best else 1.03)


def moving_seconds(moved: Floats, there: Scale) -> Floats:
    """What memory takes for so many bytes of operands and results."""
    return moved / h200.HOPPER_MEMORY / there.bandwidth


def batch_seconds(busiest: float, waiting: float, packed: float, there: Scale) -> float:
    """From the busiest multiprocessor, what memory takes, and bytes of the packing pass."""
    launch = h200.HOPPER_LAUNCH
    packing = packed / h200.HOPPER_PACKING / there.bandwidth + launch if packed else 0.0
    return packing + max(busiest, waiting) + launch
