"""Products of rows by index on Hopper, gated before they are stored (hopper_chosen.cu).

Behind a table of rows as hopper_rows.py draws it, its entries of at most ROWS rows. x gives the
rows of wgmma's tiles here, for gate and what it is multiplied by must meet in one thread, and so
fewer rows are gathered for as many products.
"""

from __future__ import annotations

from typing import Any

from tilewright.backends.cuda.hopper import maps
from tilewright.backends.cuda.hopper.bind import Ragged, defines
from tilewright.backends.cuda.hopper.blocks import HALF, WIDE, HopperTile
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.ragged import hopper_rows
from tilewright.backends.cuda.ragged.moving import LEFT, OTHER, OUT, RIGHT, Moving
from tilewright.backends.cuda.ragged.plan import RowPlan, memory
from tilewright.backends.cuda.ragged.work import RaggedWork, Way
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

ROWS = WIDE.rows  # of x that one entry may have
_RAGGED_ROWS, _CHOSEN = 1, 1  # hopper_tiles.cuh, hopper_gather.cuh: x is on the left
_BAND = 8  # entries, at most, whose tiles follow one another


class HopperChosen:
    """The product, or what a gate makes of it and the product where that is wanted."""

    name = "hopper by index"

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes what `HopperRows` does, in dense results of multiples of 8 columns."""
        if work.index is None:
            return "rows lie in order"
        columns, pair = work.out.shape[1], work.gate is not None and work.gate.is_pair
        if columns % (64 if pair else 8):
            return f"columns are no multiple of {64 if pair else 8}"
        results = (work.out,) if work.h is None else (work.out, work.h)
        if any(not one.is_contiguous() or one.data_ptr() % 16 for one in results):
            return "results are not dense, or begin at no multiple of 16 bytes"
        if 2 * work.x.stride(0) >= 2**31:
            return "bytes from one row of x to the next are 2^31 or more"
        like_h = work.x.new_empty((1, work.w.shape[2]))
        nothing = work.why_not_large() or nvrtc.missing()
        return nothing or hopper_rows.why_not(work.x, work.w, like_h, None, device)

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """Tiles half as wide where that is enough."""
        pair = work.gate is not None and work.gate.is_pair
        few = work.w.shape[2] <= HALF.width or (pair and work.out.shape[1] <= HALF.width // 2)
        shape = HALF if few else WIDE
        return Proposal(self.name, device, None, "half precision on wgmma", decisions=shape)

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying one. Raises DeviceError."""
        moving, groups = _prepared(work, proposal.decisions), work.w.shape[0]
        last = hopper_rows.is_long(work.rows, groups, ROWS)
        plan = RowPlan(work.offsets, work.out, groups, ROWS, clear=work.clear, rests_last=last)

        def way(
            stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any, index: Any, h: Any
        ) -> None:
            rows = out.shape[0]
            table = memory(x, 4 + 4 * hopper_rows.entries(rows, groups, ROWS))
            plan.launch(stream, offsets, table, out)
            moving.launch(stream, table, x, w, out, None, rows, index, h)

        return way


def _prepared(work: RaggedWork, shape: HopperTile) -> Moving:
    import torch

    x, w, out, h, gate = work.x, work.w, work.out, work.h, work.gate
    (groups, k, n), (rows, columns) = w.shape, out.shape
    dtype, dense = str(x.dtype).removeprefix("torch."), w.stride(1) == 1
    weights = (groups * n, k) if dense else (groups * k, n)
    matrices = [
        (RIGHT, maps.Matrix(w.data_ptr(), *weights, 2 * hopper_rows.row_step(w))),
        (OUT, maps.Matrix(out.data_ptr(), rows, columns, 2 * columns)),
    ]
    if h is not None:
        matrices.append((OTHER, maps.Matrix(h.data_ptr(), rows, n, 2 * n)))
    macros = defines(dtype, shape, (False, not dense, False), None, _RAGGED_ROWS, _CHOSEN)
    ending = (0, 0) if gate is None else (gate.form, gate.kind)
    ends = zip(("FORM", "KIND", "KEEP"), (*ending, int(h is not None)), strict=True)
    features = shape.width // (n // columns)  # columns of the result that a tile has
    shared = Ragged(n=n, k=k, stride=columns, across=-(-columns // features))
    shared.band = min(max(rows // (groups * ROWS), 1), _BAND)
    shared.source_stride = 2 * x.stride(0)
    kernel = nvrtc.function("hopper_chosen", (*macros, *ends), x.device.index, shared=shape.shared)
    units = torch.cuda.get_device_properties(x.device.index).multi_processor_count
    grow = {OUT, OTHER}
    return Moving(kernel, units, shape.threads, 0, matrices, dtype, shared, grow, LEFT)
