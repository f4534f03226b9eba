"""Seconds that a batch would take here, from rates measured on one H200.

Multiprocessors work through their tiles; none is faster than memory lets all be together. The
constants fit 25 runs of dense, irregular and mixture-of-experts batches, most within 20 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.backends.cuda.engine import Floats, Ints
from tilewright.backends.cuda.hopper.orient import Bools
from tilewright.backends.cuda.hopper.shapes import HALF, NARROW, SPLIT, STAGED, WIDE, Shape

PROCESSORS = 132
MEMORY = 4.2e12  # bytes a second that a copy reaches, read and written together
PACKING = 4.0e12  # the same, for the packing pass
LAUNCH = 4e-6  # seconds between two launches
_FLOPS = 800e12 / PROCESSORS  # of one multiprocessor, under the power limit
_LOADS = 80e9  # bytes a second into one multiprocessor's shared memory


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
    WIDE.name: Overhead(2.0e-6, 2.0e-6, 9e-6, 9e-6),
    STAGED.name: Overhead(1.9e-6, 6.0e-6, 3.7e-6, 6e-6),
    HALF.name: Overhead(1.8e-6, 1.8e-6, 1.8e-6, 3e-6),
    NARROW.name: Overhead(1.8e-6, 1.8e-6, 1.8e-6, 3e-6),
    SPLIT.name: Overhead(6e-6, 6e-6, 6e-6, 6e-6),
}


def tile_seconds(
    shape: Shape, steps: Ints, rows: Ints, width: Ints, *, turned: Bools, aligned: Bools
) -> Floats:
    """What one tile of each size takes its block, beside the others on the multiprocessor."""
    rows = -(-rows // 64) * 64
    multiply = shape.products * rows * width * (2 * 64 / _FLOPS)
    load = shape.planes * (rows + -(-width // 64) * 64) * (2 * 64 / _LOADS)
    each = _TILE[shape.name]
    stored = np.where(turned, each.turned, each.straight)
    scattered = np.where(turned, each.unaligned_turned, each.unaligned)
    overhead = np.where(aligned, stored, scattered)
    seconds: Floats = steps * np.maximum(multiply, load) * shape.blocks + overhead
    return seconds


def batch_seconds(busiest: float, moved: float, packed: float) -> float:
    """From the busiest multiprocessor, bytes of operands and results, bytes of the packing pass."""
    packing = packed / PACKING + LAUNCH if packed else 0.0
    return packing + max(busiest, moved / MEMORY) + LAUNCH
