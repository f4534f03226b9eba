"""Ragged products in Triton whose rows are found by index, and what a gate makes of rows.

rows      the table of rows as triton.py has it; one launch multiplies and gates
depths    each program finds its group in the offsets, and its rows in the index
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.backends.cuda.ragged.plan import RowPlan, memory, ordinal_of
from tilewright.backends.cuda.ragged.tiles import RaggedTile, tile_of
from tilewright.backends.cuda.ragged.triton import constants_of, options_of
from tilewright.backends.cuda.ragged.work import RaggedWork, Way
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

# Tiles down that follow one another, so that they find the matrix of their group in cache.
_BAND = 8


class TritonRows:
    """`multiply_chosen` behind a table of rows."""

    name = "triton by index"

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes every product of rows by index."""
        return "rows lie in order" if work.index is None else None

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """A tile for as many rows as a group has on average; of two halves each is half as wide."""
        item, groups = work.x.element_size(), work.w.shape[0]
        tile = tile_of(item, work.rows_for_tiles, groups, device.local_memory)
        if work.gate is not None and work.gate.is_pair:
            tile = replace(tile, n=tile.n // 2)
        return Proposal(self.name, device, None, _words(tile), decisions=tile)

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying one."""
        from tilewright.backends.cuda.kernels.triton.moe import multiply_chosen

        tile: RaggedTile = proposal.decisions
        x, w, h, out, gate = work.x, work.w, work.h, work.out, work.gate
        groups, n = w.shape[0], out.shape[1]
        plan = RowPlan(work.offsets, out, groups, tile.m, clear=work.clear, rests_last=False)
        ending = {"FORM": gate.form if gate else 0, "KIND": gate.kind if gate else 0}
        constants = {**ending, "KEEP": h is not None, "BAND": _BAND}
        constants |= constants_of(x, tile, work.precision, proposal.device)
        tensors = (x, w, out if h is None else h, out, work.index, memory(x, 4))
        numbers = (n, x.shape[1], *x.stride(), *w.stride())
        task = Task(multiply_chosen, 1, (*tensors, *numbers), constants, options_of(tile))
        launch = reusable(task, ordinal_of(x))
        across, most = -(-n // tile.n), proposal.device.compute_units * tile.resident

        def way(
            stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any, index: Any, h: Any
        ) -> None:
            entries = groups + out.shape[0] // tile.m
            table = memory(x, 4 + 4 * entries)
            plan.launch(stream, offsets, table, out)
            programs = min(entries * across, most)
            launch(stream, programs, x, w, out if h is None else h, out, index, table)

        return way


class TritonDepths(TritonRows):
    """`multiply_chosen_depths`, which reads the offsets itself."""

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """A tile for m."""
        tile = tile_of(work.x.element_size(), work.out.shape[1], 1, device.local_memory)
        return Proposal(self.name, device, None, _words(tile), decisions=tile)

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """One launch."""
        from tilewright.backends.cuda.kernels.triton.moe_depths import multiply_chosen_depths

        tile: RaggedTile = proposal.decisions
        x, y, out = work.x, work.w, work.out
        groups, m, n = out.shape
        flag = faults.flag(ordinal_of(x))
        tensors = (x, y, out, work.index, work.offsets, flag)
        numbers = (work.rows, m, n, *x.stride(), *y.stride())
        constants = {"SIDE": work.chosen}
        constants |= constants_of(x, tile, work.precision, proposal.device)
        task = Task(multiply_chosen_depths, 1, (*tensors, *numbers), constants, options_of(tile))
        launch = reusable(task, ordinal_of(x))
        programs = groups * -(-m // tile.m) * -(-n // tile.n)

        def way(
            stream: int, x: Any, y: Any, offsets: Any, bias: Any, out: Any, index: Any, h: Any
        ) -> None:
            launch(stream, programs, x, y, out, index, offsets, flag, index.shape[0])

        return way


def _words(tile: RaggedTile) -> str:
    return f"tiles of {tile.m} x {tile.n}, rows by index"
