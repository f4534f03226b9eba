"""The engine `cuda_small`: fp32 batches of small products, a warp a tile, all in one launch.

Triton's programs of one warp fill half a multiprocessor at most, as it holds 32 blocks, and every
shape is a launch of its own. Of grouped_small.cu a block has four warps, each with a tile of one of
four shapes; a tile that would keep a warp for two fifths of what all tiles take, spread evenly,
or longer, is its block's, a part of k a warp. On an H200 2,000 products drawn by a power law took
0.041 ms, by the best of other tiles 0.054, 300 of 1..2000 x 1..24 x 8..128 0.058 and 0.076, sizes
by Zipf's law up to 1024 0.015 and 0.046.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.placing import (
    At,
    Draft,
    Kernels,
    Step,
    in_order,
    places,
    sources,
)
from tilewright.backends.cuda.machine.tables import records
from tilewright.backends.cuda.tiled import simt
from tilewright.backends.cuda.tiled.engine import TritonGrouped, is_plain
from tilewright.backends.cuda.tiled.layouts import is_near
from tilewright.backends.cuda.work import Work
from tilewright.facts.device import Device
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.facts.problem import ACTIVATIONS
from tilewright.facts.verdict import Proposal
from tilewright.planning import together
from tilewright.planning.buckets import Table, Tile
from tilewright.planning.grouped import GroupedLayout, lay_out, signature
from tilewright.planning.makespan import Slots
from tilewright.remember import Shelf

SIDES = ((16, 16), (32, 16), (16, 32), (32, 32))  # as `Shape` of the kernel numbers them
WARPS, RESIDENT, STAGES = 4, 20, 2  # a block, on a multiprocessor; steps of k on their way
LONG = 0.4  # of all tiles' time, spread evenly: a tile that takes more is a whole block's,
LEAST = 64  # where its k is longer than that: a step of it a warp
# Flops of a product, on average, from which on tiles of 64 x 64 are faster: of 1000 products of
# 1..128 it is 0.5e6, of 300 of 1..2000 x 1..24 x 8..128 1.9e6, of 1000 of 1..256 4.2e6.
MOST = 2.5e6
_DEPTH, _STEP = 16, 4  # of k at a time: copied, multiplied
_END = 48  # bytes of what the end of a tile needs, at most

_layouts: Shelf[bytes, GroupedLayout] = Shelf("small tiles of batches on GPUs", most=32 << 20)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was decided: the tiles, and whose are computed by whole blocks."""

    layout: GroupedLayout
    shared: npt.NDArray[np.bool_]


class CudaSmall(TritonGrouped):
    """The kernel `grouped_small`, in CUDA C++."""

    name = "cuda_small"

    def why_not(self, work: Work, device: Device) -> str | None:
        """Takes fp32 whose rows lie element by element, of little work a product."""
        nothing = simt.why_no_tiles(work.dtype, work.precision, device)
        nothing = nothing or simt.why_no_rows(work, (work.c, work.n > 1))
        if nothing is not None:
            return nothing
        mean = 2.0 * float(np.mean(work.m.astype(np.float64) * work.n * work.k))
        if mean > MOST:
            return f"{mean:.2g} flops a product on average, at most {MOST:.2g} are small ones"
        return None

    def least(self, work: Work, device: Device) -> float:
        """All work by the shapes that take least, spread evenly."""
        tiles, slots = _tiles(device), _slots(device)
        table = Table.of(work.m, work.n, work.k, tiles)
        seconds = float((table.counts * table.seconds).min(axis=0).sum()) / slots.count
        return (seconds + slots.launch + h200.TILE_START) * (1 - 1e-9)

    def propose(self, work: Work, device: Device) -> Proposal:
        """The layout predicted fastest by these shapes, all of which are one launch."""
        tiles, slots = _tiles(device), _slots(device)
        key = signature(work.m, work.n, work.k, tiles, slots, work.order)

        def made() -> GroupedLayout:
            return lay_out(work.m, work.n, work.k, tiles, slots, work.order)

        layout = _layouts.found(key, made, lambda layout: layout.bytes)
        shared = together.is_long(layout, LONG) & (work.k > LEAST)
        seconds = together.seconds(layout, shared, WARPS) + slots.launch + h200.TILE_START
        words = [
            f"{m} x {n}: {count}"
            for (m, n), count in zip(SIDES, np.bincount(layout.tile, minlength=4), strict=True)
            if count
        ]
        reason = f"{layout.chosen}, a warp a tile; tiles {', '.join(words)}"
        if shared.any():
            reason += f"; {np.count_nonzero(shared)} products of a long k by whole blocks"
        if work.precision == "fp32x":
            reason += "; in IEEE float32"
        return Proposal(self.name, device, seconds, reason, decisions=_Plan(layout, shared))

    def _kernels(self, proposal: Proposal, work: Work) -> Kernels:
        plan: _Plan = proposal.decisions
        where, draft = sources(work), Draft(places(work))
        columns = (where.a, where.b, where.c, where.bias)
        table_at = draft.add(records(work), *enumerate(columns))
        entries, shared = tile_entries(plan.layout, plan.shared)
        tiles_at = draft.add(entries)
        general = not is_plain(work)
        kernel = nvrtc.function(
            "grouped_small",
            macros(near=is_near(work), activation=work.activation if general else None),
            work.ordinal,
            shared=WARPS * (_END + _each()),
        )
        blocks = shared - (-(len(entries) - shared) // WARPS)
        counts = (ctypes.c_int(len(entries)), ctypes.c_int(shared))
        step = Step(kernel, blocks, 32 * WARPS, (At(table_at), At(tiles_at), *counts))
        return Kernels(draft.template(0), in_order([step]), 1)


def macros(*, near: bool, activation: str | None) -> nvrtc.Defines:
    """What is compiled in; `activation` None: C is the product and nothing else."""
    return (
        ("WARPS", WARPS),
        ("RESIDENT", RESIDENT),
        ("STAGES", STAGES),
        ("NEAR", int(near)),
        ("GENERAL", int(activation is not None)),
        ("ACTIVATION", ACTIVATIONS.index(activation or "none")),
    )


def _each() -> int:
    """Bytes of shared memory of a warp, as grouped_small.cu has them of the largest tile."""
    m, n = SIDES[-1]
    stage = 4 * (m * (_DEPTH + 4) + _DEPTH * n)
    return max(STAGES * stage, 4 * m * (n + 16))


def tile_entries(
    layout: GroupedLayout, shared: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], int]:
    """The tile list, those of whole blocks first, and how many those are."""
    queue = layout.queue
    sides = np.array(SIDES, np.int32)[layout.tile[queue.problem]]
    entries = np.empty((len(queue), 4), np.int32)
    entries[:, 0] = queue.problem
    np.multiply(queue.row, sides[:, 0], out=entries[:, 1])
    np.multiply(queue.col, sides[:, 1], out=entries[:, 2])
    entries[:, 3] = layout.tile[queue.problem]
    long = shared[queue.problem]
    count = int(np.count_nonzero(long))
    return (entries[np.argsort(~long, kind="stable")] if count else entries), count


def _tiles(device: Device) -> tuple[Tile, ...]:
    faster = scale(device, "float32").multiply
    slots = h200.UNITS * h200.SMALL_RESIDENT
    found = (
        Tile.timed(*side, _STEP, *h200.TILES_SMALL_SINGLE[side], slots, "grouped_small")
        for side in SIDES
    )
    return tuple(replace(tile, rate=tile.rate * faster) for tile in found)


def _slots(device: Device) -> Slots:
    units = device.compute_units
    return Slots(units, h200.SMALL_RESIDENT, launch=h200.TILE_LAUNCH, merge=np.inf)
