"""The engine `cuda_deep`: halves of few tiles and a long k, in CUDA C++ (kernels/deep/).

propose   all k dealt out evenly to the blocks that run at once (shares.py)
kernels   one launch of 64 x 64 tiles, deep_half.cu, and, where tiles are cut along k, one more that
          adds their parts in order (sum_parts.py)

500 products of 64 x 64 by 1,000 to 20,000 in bfloat16 take 0.370 ms where Triton's tiles take 0.610
(H200). The same shares in float32 took 1.44 ms where cuda_grouped takes 1.36: they are not here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.arrays.record import BIAS, C_COL, C_ROW, C, M, N
from tilewright.backends.cuda.deep.shares import SIDE, Shares, shared_out
from tilewright.backends.cuda.machine import nvrtc, placing
from tilewright.backends.cuda.machine.fixed import moving
from tilewright.backends.cuda.machine.placing import At, Draft, Kernels, Step, bound
from tilewright.backends.cuda.machine.streams import in_turn
from tilewright.backends.cuda.machine.tables import records
from tilewright.backends.cuda.machine.triton_launch import Pointer, placed
from tilewright.backends.cuda.tiled.parts import CHUNK, adding
from tilewright.backends.cuda.tiled.simt import why_no_ampere, why_no_rows
from tilewright.backends.cuda.work import Ints, Moving, Prepared, Work
from tilewright.facts.device import Device
from tilewright.facts.dtypes import ITEMSIZE, sums_of
from tilewright.facts.measured import h200
from tilewright.facts.measured.scale import scale
from tilewright.facts.problem import ACTIVATIONS
from tilewright.facts.verdict import Proposal
from tilewright.planning.grouped import signature
from tilewright.planning.within import within
from tilewright.remember import Shelf

# Of k and of tiles: which products the engine is meant for. The tiles of larger ones share operands
# in L2, which nobody measured here.
_DEEP, _FEW = 1024, 128
_ALIGNED = 16  # bytes, at which rows of B should begin
_WARPS, _STEP = 4, 128  # of a block; of k, at whose multiples tiles are cut
_shares: Shelf[bytes, Shares] = Shelf("shares of deep products", most=32 << 20)


@dataclass(frozen=True, slots=True)
class DeepTile:
    """How deep_half.cu is compiled: `stages` steps of k are on their way or in use.

    At most `blocks` run on a unit at once. A copy brings `ahead` bytes of what follows it, 0, 128
    or 256, into L2.
    """

    stages: int
    blocks: int
    ahead: int

    @property
    def shared(self) -> int:
        """Bytes a block needs: a step of A is 64 rows of 288 bytes, of B 128 rows of 128."""
        return self.stages * (64 * 288 + _STEP * 128)

    @property
    def defines(self) -> nvrtc.Defines:
        """The kernel's macros that follow from this."""
        each = (("RESIDENT", self.blocks), ("STAGES", self.stages), ("AHEAD", self.ahead))
        return (("WARPS", _WARPS), *each)

    def resident(self, device: Device) -> int:
        """Blocks that run at once on a unit of this device."""
        return min(self.blocks, device.local_memory // self.shared)


# Of 12 kinds on an H200 the fastest, 0.370 ms: three stages and two blocks took 0.370 to 0.386,
# nothing brought ahead 0.381 to 0.386, shares for twice as many blocks as run at once 0.380, 0.385.
TILE = DeepTile(stages=2, blocks=3, ahead=256)
DTYPES = ("float16", "bfloat16")
_LEAST = 2  # blocks on a unit: what one alone takes nobody measured


class DeepTiles:
    """Halves of which most work is in products of a long k."""

    name = "cuda_deep"
    effort = 0  # most batches are refused at once

    def why_not(self, work: Work, device: Device) -> str | None:
        """Takes rows of A and B that lie element by element, B's at multiples of 16 bytes."""
        if work.dtype not in DTYPES:
            return f"computes {' and '.join(DTYPES)}, not {work.dtype}"
        if (nothing := why_no_ampere(device)) is not None:
            return nothing
        if TILE.resident(device) < _LEAST:
            return f"needs {_LEAST * TILE.shared} bytes of shared memory"
        return nvrtc.missing() or _lies_otherwise(work)

    def least(self, work: Work, device: Device) -> float:
        """Nothing is known before: planning is quick."""
        return 0.0

    def propose(self, work: Work, device: Device) -> Proposal:
        """What the longest share takes, or memory, and adding parts."""
        resident = TILE.resident(device)
        shares = _shared(work, device.compute_units * resident)
        there = scale(device, work.dtype)
        busy = shares.longest * h200.DEEP_STEP * h200.UNITS * resident / there.multiply
        waiting = _moved(work) / h200.DEEP_MEMORY / there.bandwidth
        adding_up = 0.0
        if shares.elements:
            adding_up = h200.TILE_LAUNCH + shares.elements * h200.TILE_MERGE / there.share
        seconds = max(busy, waiting) + adding_up + h200.TILE_LAUNCH + h200.TILE_START
        blocks, count = len(shares.starts) - 1, len(np.unique(shares.entries["problem"]))
        words = f"{count} problems, k dealt evenly to {blocks} blocks, {len(shares.cut)} tiles cut"
        size = shares.elements * ITEMSIZE[sums_of(work.dtype)]
        return Proposal(self.name, device, seconds, words, size, decisions=shares)

    def bind(self, proposal: Proposal, work: Work) -> Prepared:
        """Tables uploaded, for these addresses."""
        return bound(kernels(work, proposal.decisions), work)

    def move(self, proposal: Proposal, work: Work) -> Moving:
        """Tables that travel at each launch."""
        return moving(kernels(work, proposal.decisions), work)


def kernels(work: Work, shares: Shares) -> Kernels:
    """Both launches, for any addresses."""
    draft, where = Draft(placing.places(work)), placing.sources(work)
    table, cut = records(work), shares.entries[shares.cut]
    columns = [where.a, where.b, where.c, where.bias]
    if len(cut):
        table = np.concatenate((table, _of_tiles(table, cut, ITEMSIZE[work.dtype])))
        columns = [np.concatenate((x, x[cut["problem"]])) for x in columns]
    table_at = draft.add(table, *enumerate(columns))
    entries_at, starts_at = draft.add(shares.entries), draft.add(shares.starts)
    kind = (("BF16", int(work.dtype == "bfloat16")),)
    macros = (*kind, ("ACTIVATION", ACTIVATIONS.index(work.activation)), *TILE.defines)
    function = nvrtc.function("deep_half", macros, work.ordinal, shared=TILE.shared)
    values = (At(table_at), At(entries_at), At(starts_at), At(0, scratch=True))
    if not len(cut):
        values = (*values[:3], At(table_at))  # there is no scratch, and nothing is written there
    launches = [placing.in_order([Step(function, len(shares.starts) - 1, 32 * _WARPS, values)])]
    size = shares.elements * ITEMSIZE[sums_of(work.dtype)]
    if len(cut):
        splits, pieces = _sums(shares, len(work.m), table)
        lists = (Pointer("int64", table_at), Pointer("int64", draft.add(splits)))
        task = adding(work, (*lists, Pointer("int32", draft.add(pieces))), size, len(pieces))
        launches.append(placed(task, work.ordinal))
    return Kernels(draft.template(size), in_turn(launches), len(launches))


def _of_tiles(table: Ints, cut: npt.NDArray[np.void], item: int) -> Ints:
    """Records of single tiles, as the second launch reads them."""
    made: Ints = table[cut["problem"]]
    row, column = cut["row"].astype(np.int64), cut["column"].astype(np.int64)
    made[:, C] += item * (row * made[:, C_ROW] + column * made[:, C_COL])
    made[:, BIAS] += np.where(made[:, BIAS] != 0, item * column, 0)
    made[:, M] = np.minimum(made[:, M] - row, SIDE)
    made[:, N] = np.minimum(made[:, N] - column, SIDE)
    return made


def _sums(shares: Shares, problems: int, table: Ints) -> tuple[Ints, Ints]:
    """The tables of sum_parts: what each cut tile adds, and chunks of their elements."""
    count = len(shares.cut)
    first = shares.entries["to"][shares.cut]
    splits = np.stack((problems + np.arange(count), shares.parts, first), axis=1)
    chunks = -(-(table[problems:, M] * table[problems:, N]) // CHUNK)
    which = np.repeat(np.arange(count), chunks)
    return splits, np.stack((which, within(chunks)), axis=1).astype(np.int32)


def _shared(work: Work, blocks: int) -> Shares:
    key = signature(work.m, work.n, work.k, "deep", blocks)

    def made() -> Shares:
        return shared_out(work.m, work.n, work.k, step=_STEP, blocks=blocks)

    return _shares.found(key, made, lambda shares: shares.bytes)


def _moved(work: Work) -> float:
    m, n, k = (x.astype(np.float64) for x in (work.m, work.n, work.k))
    return float((m * k + k * n + m * n).sum()) * ITEMSIZE[work.dtype]


def _lies_otherwise(work: Work) -> str | None:
    """Why the kernel does not suit how operands lie, or their sizes, if so."""
    if (nothing := why_no_rows(work)) is not None:
        return nothing
    flops = work.m.astype(np.float64) * work.n * work.k
    tiles = -(-work.m // SIDE) * -(-work.n // SIDE)
    if 2 * flops[(work.k >= _DEEP) & (tiles <= _FEW)].sum() <= flops.sum():
        return "most of the work is in products of a short k, or of many tiles"
    within_line = (work.b.address | np.where(work.k > 1, work.b.row, 0)) % _ALIGNED != 0
    if 10 * flops[within_line].sum() > flops.sum():
        return "rows of B do not begin at multiples of 16 bytes"
    return None
