"""The engine of half-precision batches on Hopper: predicts their seconds, and binds their launches.

Problems that are stored alike share a launch. For each such bucket it is decided, by predicted
seconds, which operand gives the rows and which configuration of the kernel runs; operands that the
copy engine cannot read (an odd stride, an odd address) go through the packing pass first.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from tilewright.backends.cuda.hopper import cost, records
from tilewright.backends.cuda.hopper.blocks import SHAPES, HopperTile
from tilewright.backends.cuda.hopper.orient import Oriented, orient, plain, why_not
from tilewright.backends.cuda.hopper.packing import FILL, SPLIT_FILL, deep, lay_out, packed_bytes
from tilewright.backends.cuda.hopper.records import Bucket
from tilewright.backends.cuda.hopper.ways import fastest, moved_bytes
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.work import Ints, Moving, Prepared, Work
from tilewright.facts.device import Device
from tilewright.facts.measured.scale import Scale, scale
from tilewright.facts.verdict import Proposal
from tilewright.remember import Shelf

DTYPES = ("bfloat16", "float16")
_HALF = {"float32": "float16"}  # what the tensor cores are given of it
# A map takes some microseconds to make: of more matrices than this, copies are made instead.
_MAPS = 8192
_plans: Shelf[bytes, tuple[Bucket, ...]] = Shelf("plans of the Hopper engines", most=64 << 20)


class HopperHalf:
    """fp16 and bf16 on wgmma, accumulated in fp32."""

    name = "hopper"
    effort = 0  # all but half precision is refused at once
    shapes: tuple[HopperTile, ...] = SHAPES

    def why_not(self, work: Work, device: Device) -> str | None:
        """Takes what the copy engine can read, or the packing pass lay out for it."""
        if work.dtype not in DTYPES:
            return f"{work.dtype} is not half precision"
        return unready(work, device)

    def least(self, work: Work, device: Device) -> float:
        """Nothing is known before: halves are asked first, as others are seldom faster."""
        return 0.0

    def propose(self, work: Work, device: Device) -> Proposal:
        """A launch for each kind of storage."""
        buckets = recalled(work, self.shapes, scale(device, _HALF.get(work.dtype, work.dtype)))
        seconds = sum(bucket.seconds for bucket in buckets)
        words = "; ".join(map(_words, buckets)) or "nothing to multiply"
        scratch = max((bucket.scratch for bucket in buckets), default=0)
        return Proposal(self.name, device, seconds, words, scratch, decisions=buckets)

    def bind(self, proposal: Proposal, work: Work) -> Prepared:
        """Tables and maps for these addresses."""
        from tilewright.backends.cuda.hopper.bind import bound

        return bound(work, proposal.decisions)

    def move(self, proposal: Proposal, work: Work) -> Moving:
        """Tables and maps that travel at each launch."""
        from tilewright.backends.cuda.hopper.bind import moving

        return moving(work, proposal.decisions)


def unready(work: Work, device: Device) -> str | None:
    """Why no kernel of this folder can run here, or none read such a batch, if so."""
    if not device.has("wgmma"):
        return "needs wgmma: compute capability 9.0"
    return nvrtc.missing() or why_not(work)


def plan(
    work: Work, shapes: tuple[HopperTile, ...] = SHAPES, there: Scale = records.AS_MEASURED
) -> tuple[Bucket, ...]:
    """The buckets of a batch, each with the choice predicted fastest.

    Operands to be split are all packed, and the one that gives C's rows is then on the left. Tiles
    of two strips are for plain results whose columns may be cut close.
    """
    split = shapes[0].planes > 1
    ways = tuple(_capped(orient(work, turned=turned), split) for turned in (False, True))
    filled = np.flatnonzero((work.m > 0) & (work.n > 0))
    straight, simple = ways[0], plain(work)
    if not simple:
        shapes = tuple(shape.coarsely for shape in shapes)
    kinds = straight.left.mn * 4 + straight.right.mn * 2 + straight.transposed
    buckets = []
    for kind in np.unique(kinds[filled]):
        which = filled[kinds[filled] == kind]
        every = [
            (batch, shape)
            for batch in ways
            for shape in shapes
            if not (split and batch.transposed[which[0]])
            and (shape.strips == 1 or (simple and records.cut_close(batch)[which].all()))
        ]
        batch, shape = fastest(every, which, work.order, there)
        buckets.append(bucket_of(batch, which, shape, work.order, there))
    return tuple(buckets)


def recalled(work: Work, shapes: tuple[HopperTile, ...], there: Scale) -> tuple[Bucket, ...]:
    """`plan`, kept by all that it looks at: training repeats sizes and strides in other memory."""
    key = _signature(work, shapes, there)
    found = _plans.get(key)
    if found is None:
        found = plan(work, shapes, there)
        # Not what is kept: that may be another thread's, whose operands lie elsewhere.
        _plans.keep(key, found, size=_bytes(found))
        return found
    split = shapes[0].planes > 1
    ways = {
        turned: _capped(orient(work, turned=turned), split)
        for turned in {bucket.batch.turned for bucket in found}
    }
    return tuple(replace(bucket, batch=ways[bucket.batch.turned]) for bucket in found)


def _bytes(buckets: tuple[Bucket, ...]) -> int:
    """What a plan holds: columns over problems and over tiles."""
    return sum(160 * len(x.batch.k) + 56 * len(x.tiles.problem) + 512 for x in buckets)


def _signature(work: Work, shapes: tuple[HopperTile, ...], there: Scale) -> bytes:
    """Of addresses only how far they are aligned, up to 256 bytes."""
    digest = hashlib.blake2b(repr((len(work.m), shapes, there, work.order, plain(work))).encode())
    columns = [work.m, work.n, work.k]
    for part in (work.a, work.b, work.c):
        columns += [part.row, part.col, np.minimum(part.address & -part.address, 256)]
    for column in columns:
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.digest()


def bucket_of(batch: Oriented, which: Ints, shape: HopperTile, order: str, there: Scale) -> Bucket:
    """One launch: cut, balanced, its panels laid out, its seconds predicted."""
    clusters = shape.clusters(there.units)
    found, turns, busiest = records.balanced(
        batch, records.cut(batch, which, shape, order, there), shape, clusters, there
    )
    taken = shape.planes == 1 and records.are_taken(batch, found, shape, order, there)
    if taken:
        turns = records.in_turn(len(found.problem), clusters)
    k, fill, each = records.depths(batch, which), FILL, 4
    if shape.planes > 1:
        k, fill, each = deep(k), SPLIT_FILL, 4 + 2 * shape.planes
    left = lay_out(batch.left, k, 0, fill)
    right = lay_out(batch.right, k, left.rows, fill)
    packed = packed_bytes(batch.left, k, each) + packed_bytes(batch.right, k, each)
    moved = moved_bytes(batch, which) * shape.planes
    waiting = cost.memory_seconds(shape, moved, len(found.problem) / clusters, there)
    seconds = cost.batch_seconds(busiest, waiting, packed, there)
    return Bucket(batch, which, shape, found, turns, (left, right), seconds, taken)


def _capped(batch: Oriented, split: bool) -> Oriented:
    """With a packing pass for all to be split, or where maps would take too long to make."""
    if len(batch.k) <= _MAPS and not split:
        return batch
    none = np.zeros(len(batch.k), bool)
    left, right = replace(batch.left, direct=none), replace(batch.right, direct=none)
    return replace(batch, left=left, right=right, engine_stores=none)


def _words(bucket: Bucket) -> str:
    packed = (bucket.scratch and f", packs {bucket.scratch / 2**20:.1f} MiB") or ""
    turned = ", turned" if bucket.batch.turned else ""
    count = len(bucket.tiles.problem) * bucket.shape.cluster
    taken = (bucket.taken and ", taken in turn") or ""
    what = f"{len(bucket.which)} problems as {count} tiles of {bucket.shape.name}"
    return what + turned + taken + packed
