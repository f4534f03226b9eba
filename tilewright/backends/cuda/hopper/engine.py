"""The engine of half-precision batches on Hopper: what it would take, and the bound launch.

Problems that are stored alike share a launch. For each such bucket it is decided, by predicted
seconds, which operand gives the rows and which configuration of the kernel runs; operands that the
copy engine cannot read (an odd stride, an odd address) go through the packing pass first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.backends.cuda import nvrtc
from tilewright.backends.cuda.engine import Ints, Launch, Proposal, Work
from tilewright.backends.cuda.hopper import cost, tiles
from tilewright.backends.cuda.hopper.orient import Oriented, orient, unsuited
from tilewright.backends.cuda.hopper.packing import ROW, Panels, lay_out, packed_bytes
from tilewright.backends.cuda.hopper.shapes import SHAPES, SPLIT, Shape
from tilewright.device import Device

DTYPES = ("bfloat16", "float16")
# A map takes some microseconds to make: of more matrices than this, copies are made instead.
_MAPS = 8192


@dataclass(frozen=True, slots=True)
class Bucket:
    """Problems of one launch: how they are turned, cut and dealt, and what is packed."""

    batch: Oriented
    which: Ints
    shape: Shape
    tiles: tiles.Tiles
    turns: Ints
    panels: tuple[Panels, Panels]
    seconds: float

    @property
    def scratch(self) -> int:
        """Bytes that the packed operands take."""
        return self.plane_rows * self.shape.planes * ROW

    @property
    def plane_rows(self) -> int:
        """Rows of one plane of the scratch, 128 bytes each."""
        return self.panels[0].rows + self.panels[1].rows


@dataclass(frozen=True, slots=True)
class HopperHalf:
    """fp16 and bf16 on wgmma, accumulated in fp32."""

    name: str = "hopper"

    def propose(self, work: Work, device: Device) -> Proposal | str:
        """Seconds and scratch, or the reason why not."""
        if work.dtype not in DTYPES:
            return f"{work.dtype} is not half precision"
        return _proposal(self.name, work, device, SHAPES)


@dataclass(frozen=True, slots=True)
class HopperSplit:
    """fp32 as accurate as fp32's own products: three bfloat16 parts an operand, six products.

    Summed in fp32 outside wgmma. Errors on an H200, relative in the Frobenius norm, were 0.9e-7 to
    1.7e-7 where cuBLAS's fp32 had 0.8e-7 to 1.1e-6: uniform, normal, and scaled by 2^-30 to 2^30
    element by element. bfloat16 has fp32's exponents, so no scale fails but the smallest: parts
    below 1e-40 are lost. A result that an infinity enters is NaN.
    """

    name: str = "hopper-split"

    def propose(self, work: Work, device: Device) -> Proposal | str:
        """Seconds and scratch, or the reason why not."""
        if (work.dtype, work.precision) != ("float32", "fp32x"):
            return "takes float32 with precision='fp32x' only"
        return _proposal(self.name, work, device, (SPLIT,))


def plan(
    work: Work, shapes: tuple[Shape, ...] = SHAPES, processors: int = cost.PROCESSORS
) -> tuple[Bucket, ...]:
    """The buckets of a batch, each with the choice predicted fastest.

    Operands to be split are all packed, and the one that gives C's rows is then on the left.
    """
    split = shapes == (SPLIT,)
    ways = tuple(_capped(orient(work, turned=turned), split) for turned in (False, True))
    filled = np.flatnonzero((work.m > 0) & (work.n > 0))
    straight = ways[0]
    kinds = straight.left.mn * 4 + straight.right.mn * 2 + straight.transposed
    buckets = []
    for kind in np.unique(kinds[filled]):
        which = filled[kinds[filled] == kind]
        guesses = [
            (_guess(batch, which, shape, work.order, processors), batch, shape)
            for batch in ways
            for shape in shapes
            if not (split and batch.transposed[which[0]])
        ]
        _, batch, shape = min(guesses, key=lambda guess: guess[0])
        buckets.append(bucket_of(batch, which, shape, work.order, processors))
    return tuple(buckets)


def bucket_of(batch: Oriented, which: Ints, shape: Shape, order: str, processors: int) -> Bucket:
    """One launch: cut, balanced, its panels laid out, its seconds predicted."""
    blocks = processors * shape.blocks
    found, turns, busiest = tiles.balanced(
        batch, tiles.cut(batch, which, shape, order), shape, blocks
    )
    k = tiles.depths(batch, which)
    fill, each = (16, 4) if shape.planes == 1 else (64, 4 + 2 * shape.planes)
    left = lay_out(batch.left, k, 0, fill)
    right = lay_out(batch.right, k, left.rows, fill)
    packed = packed_bytes(batch.left, k, each) + packed_bytes(batch.right, k, each)
    seconds = cost.batch_seconds(busiest, _moved(batch, which) * shape.planes, packed)
    return Bucket(batch, which, shape, found, turns, (left, right), seconds)


def _guess(batch: Oriented, which: Ints, shape: Shape, order: str, processors: int) -> float:
    """Seconds of the multiplying launch if its tiles could be dealt evenly."""
    blocks = processors * shape.blocks
    found = tiles.cut(batch, which, shape, order)
    even = found.seconds.sum() / blocks
    bound = max(even, found.seconds.max(initial=0.0), _moved(batch, which) / cost.MEMORY)
    return float(bound + even / 1000)  # of two that wait for memory, the one with less to do


def _moved(batch: Oriented, which: Ints) -> float:
    m, n, k = (x[which].astype(float) for x in (batch.rows, batch.columns, batch.k))
    return float(2.0 * (m * k + k * n + m * n).sum())


def _capped(batch: Oriented, split: bool) -> Oriented:
    """With a packing pass for all to be split, or where maps would take too long to make."""
    if len(batch.k) <= _MAPS and not split:
        return batch
    none = np.zeros(len(batch.k), bool)
    left, right = replace(batch.left, direct=none), replace(batch.right, direct=none)
    return replace(batch, left=left, right=right, engine_stores=none)


def _proposal(name: str, work: Work, device: Device, shapes: tuple[Shape, ...]) -> Proposal | str:
    reason = _unsuited(work, device)
    if reason:
        return reason
    buckets = plan(work, shapes, device.compute_units)
    return Proposal(
        engine=name,
        seconds=sum(bucket.seconds for bucket in buckets),
        scratch=sum(bucket.scratch for bucket in buckets),
        why="; ".join(_words(bucket) for bucket in buckets) or "nothing to multiply",
        bind=partial(_bind, work, buckets),
    )


def _unsuited(work: Work, device: Device) -> str | None:
    if not device.has("wgmma"):
        return "needs wgmma: compute capability 9.0"
    usable = nvrtc.available()
    return unsuited(work) if usable is True else str(usable)


def _words(bucket: Bucket) -> str:
    packed = (bucket.scratch and f", packs {bucket.scratch / 1e6:.0f} MB") or ""
    turned = ", turned" if bucket.batch.turned else ""
    count = len(bucket.tiles.problem)
    return f"{len(bucket.which)} problems as {count} tiles of {bucket.shape.name}{turned}{packed}"


def _bind(work: Work, buckets: tuple[Bucket, ...]) -> Launch:
    from tilewright.backends.cuda.hopper.bind import bound

    return bound(work, buckets)
