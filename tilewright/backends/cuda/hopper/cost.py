"""Predicts how many seconds a batch takes on Hopper, from rates measured on one H200.

Multiprocessors work through their tiles; none is faster than memory lets all be together. While a
tile is multiplied and stored the next one's boxes arrive, so a tile takes the longer of the two.
Of 37 runs of dense, irregular and mixture-of-experts batches, in every configuration and both
orientations, the constants fit 33 within 10 % and all within 17 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.backends.cuda.hopper.orient import Bools, Operand
from tilewright.backends.cuda.hopper.shapes import HALF, NARROW, PAIR, SPLIT, STAGED, WIDE, Shape
from tilewright.backends.cuda.work import Floats, Ints

PROCESSORS = 132
MEMORY = 4.2e12  # bytes a second that a copy reaches, read and written together
PACKING = 4.0e12  # the same, for the packing pass
LAUNCH = 4e-6  # seconds between two launches
FEW = 4  # turns of a block, below which it matters how the last of them are dealt
_FLOPS = 850e12 / PROCESSORS  # of one multiprocessor, under the power limit
_LOADS = 75e9  # bytes a second into one multiprocessor's shared memory, whoever asked for them
# Lines of 128 bytes a second that one multiprocessor asks L2 for. Rows that do not begin at 128
# bytes have each box in twice as many lines: 200 products of 1160^3 took 1.67 times as long as of
# 1152^3, and 1.19 times where two blocks asked for half of what they share (1.15 times the work).
_LINES = 0.77e9


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds a tile takes beside its steps: stored straight, turned, or to unaligned rows."""

    straight: float
    turned: float
    unaligned: float
    unaligned_turned: float


# Unaligned rows are stored by one warp where a warpgroup has places for only half a tile. Turned
# tiles of 2048 x 256 (k by columns) waited for loads three stages deep, not four.
_TILE = {
    WIDE.name: Overhead(1.6e-6, 2.0e-6, 7e-6, 7e-6),
    PAIR.name: Overhead(1.6e-6, 1.4e-6, 7e-6, 7e-6),
    STAGED.name: Overhead(2.0e-6, 6.0e-6, 4.4e-6, 6e-6),
    HALF.name: Overhead(1.7e-6, 1.7e-6, 2.5e-6, 4e-6),
    NARROW.name: Overhead(1.7e-6, 1.7e-6, 2.8e-6, 4e-6),
    SPLIT.name: Overhead(4e-6, 4e-6, 4e-6, 4e-6),
}


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

    def seconds(self, shape: Shape) -> Floats:
        """Of one step."""
        left, right = -(-self.rows // 64) * 64, -(-self.width // 64) * 64
        asked = left * self.left_lines / np.where(self.left_shared, shape.cluster, 1)
        asked += right * self.right_lines / np.where(self.right_shared, shape.cluster, 1)
        longest: Floats = np.maximum((left + right) * (128 / _LOADS), asked / _LINES)
        return shape.planes * longest


def lines(operand: Operand) -> Ints:
    """In how many lines of L2 128 bytes of a row lie: two where rows begin within one."""
    within = (operand.address % 128 != 0) | (operand.outer_stride() % 64 != 0)
    return np.where(operand.direct & within, 2, 1)


def tile_seconds(
    shape: Shape, loads: Loads, steps: Ints, *, turned: Bools, aligned: Bools
) -> Floats:
    """What one tile of each size takes its block, beside the others on the multiprocessor."""
    rows = -(-loads.rows // 64) * 64
    multiply = shape.products * rows * loads.width * (2 * 64 / _FLOPS)
    each = _TILE[shape.name]
    stored = np.where(turned, each.turned, each.straight)
    scattered = np.where(turned, each.unaligned_turned, each.unaligned)
    overhead = np.where(aligned, stored, scattered)
    busy = steps * multiply * shape.blocks + overhead
    seconds: Floats = np.maximum(busy, steps * loads.seconds(shape) * shape.blocks)
    return seconds


def memory_seconds(shape: Shape, moved: float, turns: float) -> float:
    """What memory takes for the bytes of operands and results, in so many turns of a block.

    256 experts of 64 rows, which wait for it in 31 turns, took 1.84 to 1.88 ms three stages deep
    and 1.88 to 1.95 ms four stages deep; 8 experts of 20 to 250 rows, in two turns, 0.18 and 0.15.
    """
    best = shape.stages >= 4 if turns < FEW else shape.stages < 4
    return moved / MEMORY * (1.0 if best else 1.03)


def batch_seconds(busiest: float, waiting: float, packed: float) -> float:
    """From the busiest multiprocessor, what memory takes, and bytes of the packing pass."""
    packing = packed / PACKING + LAUNCH if packed else 0.0
    return packing + max(busiest, waiting) + LAUNCH
