"""The tile shapes of the grouped Triton kernel, what they cost, and how a GPU deals them out.

Costs are those of an H200 (facts/measured/h200.py), scaled by what was measured of the device.
Unmeasured devices get the same numbers by their compute units: only ratios decide anything there,
and no speed of another device is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.engines.grouped import GroupedOperands
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE, PARTS
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.planning.buckets import Tile
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.makespan import Slots


@dataclass(frozen=True, slots=True)
class TileShape:
    """A tile shape with its launch options, and seconds: of no depth, and of 128 steps of k more.

    `cuda` says that a kernel of kernels/simt computes it, not Triton's grouped_tiles; `trim` and
    `kept` that what lies over a problem's edge takes less, and `whole` that nothing is cut along k,
    as `Tile` has them; `resident` is how many are in work on a multiprocessor at once.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    fixed: float
    slope: float
    cuda: bool = False
    trim: tuple[int, int] | None = None
    kept: float = 0.0
    whole: bool = False
    resident: int = h200.RESIDENT

    def shared(self, item: int) -> int:
        """Bytes of local memory that the blocks loaded ahead take, at most."""
        return self.stages * (self.m + self.n) * self.k * item

    def tile(self, multiply: float = 1.0) -> Tile:
        """As the planner knows it, where a unit multiplies so many times as fast as an H200's."""
        slots = h200.UNITS * self.resident
        found = Tile.timed(self.m, self.n, self.k, self.fixed, self.slope, slots)
        rate = found.rate * multiply
        return replace(found, rate=rate, trim=self.trim, kept=self.kept, whole=self.whole)


_Cut = tuple[int, int, int, int, int]  # rows, columns, steps of k; warps, stages


def _timed(seconds: h200.TileSeconds, *cuts: _Cut) -> tuple[TileShape, ...]:
    return tuple(TileShape(*cut, *seconds[cut[:2]]) for cut in cuts)


def _single(seconds: h200.TileSeconds) -> tuple[TileShape, ...]:
    """grouped_single.cu's shape, whose blocks add parts up, and Triton's, then cut by none."""
    first = TileShape(
        *(64, 64, 16, 2, 2),
        *seconds[64, 64],
        cuda=True,
        trim=(32, 32),
        kept=h200.CUDA_SINGLE_KEPT,
        resident=h200.CUDA_SINGLE_RESIDENT,
    )
    others = _timed(seconds, *_SMALL)
    return (first, *(replace(shape, whole=True, resident=first.resident) for shape in others))


_SMALL: tuple[_Cut, ...] = ((32, 32, 32, 4, 1), (16, 32, 32, 2, 1), (16, 16, 16, 1, 1))
_SINGLE = _timed(h200.TILES_SINGLE, (64, 64, 16, 4, 3), *_SMALL)
_WIDE_SINGLE = _timed(h200.TILES_WIDE_SINGLE, (64, 64, 16, 4, 3), *_SMALL)
_CUDA_SINGLE = _single(h200.TILES_CUDA_SINGLE)
_CUDA_WIDE_SINGLE = _single(h200.TILES_CUDA_WIDE_SINGLE)
_TF32 = _timed(
    h200.TILES_TF32, (64, 64, 16, 4, 3), (32, 32, 32, 2, 2), (16, 32, 32, 2, 1), (16, 16, 16, 1, 1)
)
# Small tiles of halves wait for their loads, number by number, and edges have fewer of them.
_HALF = tuple(
    replace(shape, trim=(shape.m // 2, shape.n // 2)) if shape.m <= 32 else shape
    for shape in _timed(
        h200.TILES_HALF,
        (64, 128, 64, 4, 1),
        (64, 64, 32, 4, 1),
        (32, 32, 32, 2, 1),
        (16, 16, 16, 1, 1),
    )
)
_WIDE_HALF = _timed(
    h200.TILES_WIDE_HALF,
    (128, 256, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (64, 64, 64, 4, 3),
    (32, 32, 32, 2, 2),
    (16, 16, 16, 1, 1),
)
_DOUBLE = _timed(h200.TILES_DOUBLE, (64, 64, 16, 4, 3), (32, 32, 16, 4, 3), (16, 16, 16, 1, 1))
# One shape, as edges take less: with Triton's small ones beside it 800 products of 2 to 900, even
# in logarithms, took 0.242 ms, by it alone 0.221, by Triton's three 0.226 (H200).
_CUDA_DOUBLE = (
    TileShape(
        *(64, 64, 16, 4, 3),
        *h200.TILES_CUDA_DOUBLE[64, 64],
        cuda=True,
        resident=h200.CUDA_DOUBLE_RESIDENT,
    ),
)
_COMPLEX = _timed(h200.TILES_COMPLEX, (32, 64, 16, 4, 3), (32, 32, 16, 4, 3), (16, 16, 16, 1, 1))
_COMPLEX_DOUBLE = _timed(h200.TILES_COMPLEX_DOUBLE, (32, 32, 16, 4, 2), (16, 16, 16, 1, 1))


def shapes_of(
    dtype: str, device: Device, precision: str = "ieee", *, wide: bool = False, cuda: bool = False
) -> tuple[TileShape, ...]:
    """The shapes for a dtype that fit the device's local memory, largest first.

    `wide` says that most of the work can be loaded by 16 bytes, `cuda` that the large ones are
    those of kernels in CUDA C++.
    """
    shapes: tuple[TileShape, ...]
    if cuda and dtype == "float64":
        shapes = _CUDA_DOUBLE
    elif cuda:
        shapes = _CUDA_WIDE_SINGLE if wide else _CUDA_SINGLE
    elif dtype == "float32":
        shapes = _TF32 if precision == "tf32" else _WIDE_SINGLE if wide else _SINGLE
    elif dtype == "float64":
        shapes = _DOUBLE
    elif dtype in PARTS:
        shapes = _COMPLEX if dtype == "complex64" else _COMPLEX_DOUBLE
    else:
        shapes = _WIDE_HALF if wide else _HALF
    item = ITEMSIZE[dtype]
    return tuple(shape for shape in shapes if shape.shared(item) <= device.local_memory)


def slots_of(
    device: Device, *, cut: bool = True, adds: bool = True, resident: int = h200.RESIDENT
) -> Slots:
    """The device's scheduler: a launch deals tiles to compute units as they come free.

    An element of a partial result is written and read once, in a launch of its own where that
    `adds` parts; without `cut` none may be made.
    """
    merge = h200.TILE_MERGE * h200.UNITS * resident if cut else np.inf
    units = device.compute_units
    return Slots(units, resident, launch=h200.TILE_LAUNCH, merge=merge, adds=adds)


@dataclass(frozen=True)
class GroupedTiles:
    """What `plan_grouped` needs to lay a batch out from sizes alone."""

    device: Device
    dtype: str

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Of the dtype's own arithmetic."""
        faster = scale(self.device, self.dtype).multiply
        return tuple(shape.tile(faster) for shape in shapes_of(self.dtype, self.device))

    @property
    def slots(self) -> Slots:
        """The device's scheduler."""
        return slots_of(self.device)

    @property
    def launch(self) -> float:
        """Counted in `slots`: engines of the host's arrays are not compared with it."""
        return 0.0

    @property
    def is_built(self) -> bool:
        """Nothing is launched here."""
        return True

    def bind(self, layout: GroupedLayout, operands: GroupedOperands) -> Callable[[], None]:
        """Refused: operands of these devices are bound by their addresses, through engines."""
        raise NotImplementedError("arrays on a GPU are bound through tilewright.calls.grouped_gpu")
