"""The tile shapes of the grouped Triton kernel, what they cost, and the scheduler they run on.

Costs were measured on an H200: seconds a tile of a full device (`fixed`), and seconds for 128 steps
of k more (`slope`). Other devices get the same numbers scaled by their compute units: only ratios
decide anything there, and no speed of another device is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.engines.grouped import GroupedOperands
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE
from tilewright.planning.grouped import GroupedLayout, Slots, Tile

H200_UNITS = 132
# Tiles in work on a compute unit at once. Slots are equal in the planner; registers allow 2 to 32.
RESIDENT = 4
# A launch of its own: its start, and the idle end of the one before. Measured on an H200.
LAUNCH = 6e-6


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile shape with its launch options. `registers` caps them, 0 leaves it to the compiler.

    `cuda` says that kernels/simt/grouped_single.cu computes it, not Triton's grouped_tiles.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    fixed: float
    slope: float
    registers: int = 0
    cuda: bool = False

    def shared(self, item: int) -> int:
        """Bytes of local memory that the blocks loaded ahead take, at most."""
        return self.stages * (self.m + self.n) * self.k * item

    def tile(self) -> Tile:
        """As the planner knows it: slots of every device take as long as an H200's."""
        slots = H200_UNITS * RESIDENT
        return Tile(
            self.m,
            self.n,
            rate=2.0 * self.m * self.n * 128 / (self.slope * slots),
            overhead=self.fixed * slots,
            step=self.k,
        )


# From batches of 2 x 2 tiles a problem with odd strides, k of 128 and 1024; wide: aligned ones.
# Halves with odd strides take 13 to 17 % less in real batches, whose edges load less. Tiles of
# 32 x 64 by two warps are no faster on a full device and 1.4 times as slow on one that is not.
_SINGLE = (
    TileShape(64, 64, 16, 4, 3, 6.15e-9, 29.1e-9),
    TileShape(32, 32, 32, 4, 1, 2.60e-9, 11.2e-9),
    TileShape(16, 32, 32, 2, 1, 1.56e-9, 6.06e-9),
    TileShape(16, 16, 16, 1, 1, 0.57e-9, 4.99e-9),
)
# 4096 x 4096 x 4096, and 16 products with k of 512, whose rows are all multiples of 16 bytes.
_WIDE_SINGLE = (TileShape(64, 64, 16, 4, 3, 2.0e-9, 24.6e-9), *_SINGLE[1:])
# Tiles of grouped_single.cu, and Triton's small ones. Odd: 1000 products of 1..512 and of 1..256.
_CUDA_SINGLE = (TileShape(64, 64, 16, 2, 2, 5.9e-9, 25.0e-9, cuda=True), *_SINGLE[1:])
_CUDA_WIDE_SINGLE = (TileShape(64, 64, 16, 2, 2, 6.5e-9, 22.7e-9, cuda=True), *_SINGLE[1:])
_TF32 = (
    TileShape(64, 64, 16, 4, 3, 8.0e-9, 15.5e-9),
    TileShape(32, 32, 32, 2, 2, 3.66e-9, 7.58e-9),
    TileShape(16, 32, 32, 2, 1, 1.74e-9, 4.72e-9),
    TileShape(16, 16, 16, 1, 1, 0.75e-9, 3.06e-9),
)
_HALF = (
    TileShape(64, 128, 64, 4, 1, 10.0e-9, 15.0e-9),
    TileShape(64, 64, 32, 4, 1, 5.80e-9, 9.80e-9),
    TileShape(32, 32, 32, 2, 1, 2.10e-9, 4.20e-9),
    TileShape(16, 16, 16, 1, 1, 0.60e-9, 2.30e-9),
)
_WIDE_HALF = (
    TileShape(128, 256, 64, 8, 3, 33.3e-9, 13.2e-9),
    TileShape(128, 128, 64, 4, 3, 15.2e-9, 8.87e-9),
    TileShape(64, 64, 64, 4, 3, 5.39e-9, 4.39e-9),
    TileShape(32, 32, 32, 2, 2, 1.44e-9, 2.72e-9),
    TileShape(16, 16, 16, 1, 1, 0.62e-9, 1.63e-9),
)
_DOUBLE = (
    TileShape(64, 64, 16, 4, 3, 13.7e-9, 24.9e-9),
    TileShape(32, 32, 16, 4, 3, 3.84e-9, 10.9e-9),
    TileShape(16, 16, 16, 1, 1, 1.40e-9, 5.96e-9),
)


def shapes_of(
    dtype: str, device: Device, precision: str = "ieee", *, wide: bool = False, cuda: bool = False
) -> tuple[TileShape, ...]:
    """The shapes for a dtype that fit the device's local memory, largest first.

    `wide` says that most of the work can be loaded by 16 bytes, `cuda` that the large ones of
    fp32 are those of grouped_single.cu.
    """
    shapes: tuple[TileShape, ...]
    if cuda:
        shapes = _CUDA_WIDE_SINGLE if wide else _CUDA_SINGLE
    elif dtype == "float32":
        shapes = _TF32 if precision == "tf32" else _WIDE_SINGLE if wide else _SINGLE
    elif dtype == "float64":
        shapes = _DOUBLE
    else:
        shapes = _WIDE_HALF if wide else _HALF
    item = ITEMSIZE[dtype]
    return tuple(shape for shape in shapes if shape.shared(item) <= device.local_memory)


def slots_of(device: Device, *, cut: bool = True) -> Slots:
    """The device's scheduler: a launch deals tiles to compute units as they come free.

    An element of a partial result is written and read once; without `cut` none may be made.
    """
    merge = 3e-12 * H200_UNITS * RESIDENT if cut else np.inf
    return Slots(device.compute_units, RESIDENT, launch=LAUNCH, merge=merge)


@dataclass(frozen=True)
class GroupedTiles:
    """What `plan_grouped` needs to lay a batch out from sizes alone."""

    device: Device
    dtype: str

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Of the dtype's own arithmetic."""
        return tuple(shape.tile() for shape in shapes_of(self.dtype, self.device))

    @property
    def slots(self) -> Slots:
        """The device's scheduler."""
        return slots_of(self.device)

    def reads_host(self) -> bool:
        """No: operands lie on the device."""
        return False

    def bind(self, layout: GroupedLayout, operands: GroupedOperands) -> Callable[[], None]:
        """Refused: operands of these devices are bound by their addresses, through engines."""
        raise NotImplementedError(
            "arrays on a GPU are bound through tilewright.calls.dense_run_gpu"
        )


def sum_type(dtype: str) -> str:
    """What a dtype's products are summed in."""
    return "float64" if dtype == "float64" else "float32"


def sum_bytes(dtype: str) -> int:
    """Bytes of such a sum."""
    return np.dtype(sum_type(dtype)).itemsize
