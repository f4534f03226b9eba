"""Weight gradients of ragged groups on Hopper: out[g] = x[rows of g]' @ y[rows of g].

Gradients of weights are such products. The launch reads its work from a table on the device, int32
[1 + groups, 4], which whoever plans there writes on the same stream before each launch:

    row 0      not read
    row e      group, first row of x and y, one past the last row, 0

Every group has one entry, also one of no rows, whose product is zero. How many tiles there are does
not depend on the rows: each block takes every so-many-th. With entries of many rows first, blocks
differ by no more than one tile's work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.hopper import maps
from tilewright.backends.cuda.hopper.bind import Ragged, defines
from tilewright.backends.cuda.hopper.blocks import HALF, STAGED, HopperTile
from tilewright.backends.cuda.hopper.records import ENGINE_STORES
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.ragged.hopper_rows import HopperRows
from tilewright.backends.cuda.ragged.moving import LEFT, OUT, RIGHT, Moving
from tilewright.backends.cuda.ragged.plan import DepthPlan, memory
from tilewright.backends.cuda.ragged.work import RaggedWork, Way, in_turn
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

_RAGGED_DEPTHS = 2  # hopper_tiles.cuh
SHORT = 128  # rows of a group, on average, below which narrow tiles are faster


class HopperDepths(HopperRows):
    """The Hopper kernel behind a table of depths."""

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes half precision whose rows the copy engine can read; not thousands of tiny ones."""
        nothing = work.why_not_large() or nvrtc.missing()
        return nothing or why_not(work.x, work.w, work.out, device)

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying one. Raises DeviceError."""
        shape, groups = shape_of(work.rows, work.out.shape[0]), work.out.shape[0]
        moving = prepared(work.x, work.w, work.out, shape, chosen=work.chosen)
        plan = DepthPlan(work.x, work.offsets, groups)
        return _Launches(plan, moving, groups)


@dataclass(frozen=True, slots=True)
class _Launches:
    """A Way of depths: plan, then multiply."""

    plan: DepthPlan
    moving: Moving
    groups: int

    def __call__(
        self,
        stream: int,
        x: Any,
        y: Any,
        offsets: Any,
        bias: Any,
        out: Any,
        index: Any,
        h: Any,
    ) -> None:
        rows = (y if index is None else index).shape[0]
        table = memory(x, 4 + 4 * self.groups)
        self.plan.launch(stream, offsets, table, rows)
        self.moving.launch(stream, table, x, y, out, None, rows, index)

    def standing(self, x: Any, w: Any, offsets: Any, out: Any) -> Callable[[int], None] | None:
        """As `Standing` has it; without an index."""
        rows, table = w.shape[0], memory(x, 4 + 4 * self.groups)
        plan = self.plan.standing(offsets, table, rows)
        return in_turn(plan, [self.moving.standing(table, x, w, out, rows)], [table])


def why_not(x: Any, y: Any, out: Any, device: Device) -> str | None:
    """Why these cannot be had here: [m, rows], [rows, n] and [groups, m, n], torch, one GPU.

    The contiguous dimension must be m of x and n of y and out, rows of x and y must begin at
    multiples of 16 bytes, and groups of out must follow one another without gaps.
    """
    groups, m, n = out.shape
    if str(x.dtype).removeprefix("torch.") not in ("bfloat16", "float16"):
        return f"{x.dtype} is not half precision"
    if not device.has("wgmma"):
        return "needs wgmma: compute capability 9.0"
    if x.stride(0) != 1 or y.stride(1) != 1 or out.stride(2) != 1:
        return "m of x, and n of y and out, must be contiguous"
    if out.stride(1) < n or (groups > 1 and out.stride(0) != m * out.stride(1)):
        return "groups of out do not follow one another"
    if min(x.stride(1), y.stride(0)) <= 0:  # a gradient of a sum over rows is one row, expanded
        return "rows of x or y lie in one place"
    tiles = groups * -(-m // HALF.rows) * -(-n // HALF.width)
    apart = max(out.stride(1), 2 * x.stride(1), 2 * y.stride(0))
    if max(tiles, groups * m, apart) >= 2**31 - 2**16:
        return "tiles, rows of out, or elements between two rows, are 2^31 or more"
    starts = (x.data_ptr(), y.data_ptr(), 2 * x.stride(1), 2 * y.stride(0))
    aligned = all(start % 16 == 0 for start in starts)
    return None if aligned else "rows of x and y must begin at multiples of 16 bytes"


def shape_of(rows: int, groups: int) -> HopperTile:
    """The configuration for groups of so many rows together.

    On an H200 64 rows a group took 2.41 ms with HALF and 2.59 with STAGED, where writing the result
    alone takes 2.22; 256 rows a group 0.434 and 0.392. WIDE was 1 % faster with 256 rows and 2 %
    slower with 1024.
    """
    return HALF if rows < groups * SHORT else STAGED


def prepared(
    x: Any, y: Any, out: Any, shape: HopperTile | None = None, *, chosen: int = 0
) -> Moving:
    """The kernel for these and for all that lie alike; see `why_not`. Launch it on x, y and out.

    x and y have as many rows as the launch says; those of the `chosen` one (work.py) are found by
    index, int32 [rows]. Its table is int32 [1 + groups, 4] on the device,
    as drawn above, read at each launch. `shape` is `shape_of`'s unless given. Raises DeviceError.
    """
    import torch

    groups, m, n = out.shape
    ordinal, dtype = x.device.index, str(x.dtype).removeprefix("torch.")
    stride, rows = out.stride(1), y.shape[0]
    shape = shape or shape_of(rows, groups)
    stores = out.data_ptr() % 16 == 0 and stride % 8 == 0 and n >= 8
    matrices = [
        (LEFT, maps.Matrix(x.data_ptr(), rows, m, 2 * x.stride(1))),
        (RIGHT, maps.Matrix(y.data_ptr(), rows, n, 2 * y.stride(0))),
    ]
    if stores:
        matrices.append((OUT, maps.Matrix(out.data_ptr(), groups * m, n // 8 * 8, 2 * stride)))
    macros = defines(dtype, shape, (True, True, False), ragged=_RAGGED_DEPTHS, chosen=chosen)
    across = -(-n // shape.width)
    tiles = groups * -(-m // shape.rows) * across
    shared = Ragged(n=n, k=m, stride=stride, across=across, flags=ENGINE_STORES * stores)
    shared.source_stride = 2 * {0: 0, 1: x.stride(1), 2: y.stride(0)}[chosen]
    units = torch.cuda.get_device_properties(ordinal).multi_processor_count
    kernel = nvrtc.function("hopper_multiply", macros, ordinal, shared=shape.shared)
    blocks = min(tiles, units * shape.blocks)
    by_index = {0: None, 1: LEFT, 2: RIGHT}[chosen]
    grow = {LEFT, RIGHT}
    return Moving(kernel, blocks, shape.threads, tiles, matrices, dtype, shared, grow, by_index)
