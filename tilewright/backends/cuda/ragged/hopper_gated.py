"""The first product of a layer of experts on Hopper: rows by index, gated before they are stored.

kernels/hopper/hopper_gated.cu behind a table of rows as hopper_rows.py draws it, its entries of at
most ROWS rows. x gives the rows of wgmma's tiles here, for gate and what it is multiplied by must
meet in one thread.
"""

from __future__ import annotations

from typing import Any

from tilewright.backends.cuda.hopper import maps
from tilewright.backends.cuda.hopper.bind import Ragged, defines
from tilewright.backends.cuda.hopper.blocks import WIDE
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.ragged import hopper_rows
from tilewright.backends.cuda.ragged.moving import LEFT, OTHER, OUT, RIGHT, Moving
from tilewright.backends.cuda.ragged.plan import RowPlan, memory
from tilewright.backends.cuda.ragged.work import RaggedWork, Way
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

ROWS = WIDE.rows  # of x that one entry may have
_FEATURES = WIDE.width // 2  # columns of the result that a tile has
_RAGGED_ROWS, _CHOSEN = 1, 1  # hopper_tiles.cuh, hopper_gather.cuh: x is on the left
_BAND = 8  # entries, at most, whose tiles follow one another


class HopperGated:
    """f(gate) · up of two halves, and the halves where they are wanted."""

    name = "hopper gated"

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes what `HopperRows` does, with two halves of a multiple of 128 columns."""
        gate = work.gate
        if gate is None or not gate.is_pair or work.index is None:
            return "has no gate of two halves, or rows lie in order"
        if work.out.shape[1] % _FEATURES:
            return f"columns are no multiple of {_FEATURES}"
        nothing = work.why_not_large() or nvrtc.missing()
        results = (work.out,) if work.h is None else (work.out, work.h)
        if any(not one.is_contiguous() or one.data_ptr() % 16 for one in results):
            return "results are not dense, or begin at no multiple of 16 bytes"
        like_h = work.x.new_empty((1, work.w.shape[2]))
        return nothing or hopper_rows.why_not(work.x, work.w, like_h, None, device)

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """As it is: two launches less, and h not read again."""
        return Proposal(self.name, device, None, "half precision on wgmma, gated in registers")

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying one. Raises DeviceError."""
        moving, groups = _prepared(work), work.w.shape[0]
        last = work.rows >= hopper_rows.LONG * groups * ROWS
        plan = RowPlan(work.offsets, work.out, groups, ROWS, clear=work.clear, rests_last=last)

        def way(
            stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any, index: Any, h: Any
        ) -> None:
            rows = out.shape[0]
            table = memory(x, 4 + 4 * (rows // ROWS + groups))
            plan.launch(stream, offsets, table, out)
            moving.launch(stream, table, x, w, out, None, rows, index, h)

        return way


def _prepared(work: RaggedWork) -> Moving:
    import torch

    x, w, out, h, gate = work.x, work.w, work.out, work.h, work.gate
    groups, k, n = w.shape
    dtype, dense = str(x.dtype).removeprefix("torch."), w.stride(1) == 1
    weights = (groups * n, k, 2 * k) if dense else (groups * k, n, 2 * n)
    matrices = [
        (RIGHT, maps.Matrix(w.data_ptr(), *weights)),
        (OUT, maps.Matrix(out.data_ptr(), out.shape[0], n // 2, n)),
    ]
    if h is not None:
        matrices.append((OTHER, maps.Matrix(h.data_ptr(), h.shape[0], n, 2 * n)))
    macros = defines(dtype, WIDE, (False, not dense, False), None, _RAGGED_ROWS, _CHOSEN)
    macros = (*macros, ("KEEP", int(h is not None)), ("KIND", gate.kind if gate else 0))
    shared = Ragged(n=n, k=k, stride=n // 2, across=n // 2 // _FEATURES)
    shared.band = min(max(out.shape[0] // (groups * ROWS), 1), _BAND)
    shared.source_stride = 2 * x.stride(0)
    kernel = nvrtc.function("hopper_gated", macros, x.device.index, shared=WIDE.shared)
    units = torch.cuda.get_device_properties(x.device.index).multi_processor_count
    grow = {OUT, OTHER}
    return Moving(kernel, units, WIDE.threads, 0, matrices, dtype, shared, grow, LEFT)
