"""Ragged products in Triton, on every GPU: programs of a fixed number share what tiles there are.

rows      a table of entries, one launch behind it (plan.py)
depths    each program finds its group in the offsets; of an x of one row, sums of rows of y
"""

from __future__ import annotations

from typing import Any

from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.backends.cuda.ragged.plan import RowPlan, memory, ordinal_of
from tilewright.backends.cuda.ragged.tiles import RaggedTile, tile_of
from tilewright.backends.cuda.ragged.work import RaggedWork, Way
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

# Tiles down that follow one another, so that they find the matrix of their group in cache.
_BAND = 8
_SUMMED = 64  # columns that one program sums


class TritonRows:
    """`multiply_rows` behind a table of rows."""

    name = "triton"

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes everything whose rows lie in order."""
        return None if work.index is None else "rows are found by index"

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """A tile for as many rows as a group has on average."""
        rows, groups, tiny = work.rows_for_tiles, work.w.shape[0], work.is_tiny
        tile = tile_of(work.x.element_size(), rows, groups, device.local_memory, tiny=tiny)
        return Proposal(self.name, device, None, _words(tile), decisions=tile)

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying one."""
        from tilewright.backends.cuda.kernels.triton.ragged import multiply_rows

        tile: RaggedTile = proposal.decisions
        x, w, bias, out = work.x, work.w, work.bias, work.out
        groups, k, n = w.shape
        plan = RowPlan(work.offsets, out, groups, tile.m, clear=work.clear, rests_last=False)
        extra = (0, 0) if bias is None else bias.stride()
        tensors = (x, w, out, out if bias is None else bias, memory(x, 4))
        numbers = (n, k, *x.stride(), *w.stride(), *out.stride(), *extra)
        constants = {"BAND": _BAND, "BIAS": bias is not None}
        constants |= constants_of(x, tile, work.precision, proposal.device)
        task = Task(multiply_rows, 1, (*tensors, *numbers), constants, options_of(tile))
        launch = reusable(task, ordinal_of(x))
        across, most = -(-n // tile.n), proposal.device.compute_units * tile.resident

        def way(stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any, *_: Any) -> None:
            entries = groups + x.shape[0] // tile.m
            table = memory(x, 4 + 4 * entries)
            plan.launch(stream, offsets, table, out)
            programs = min(entries * across, most)
            launch(stream, programs, x, w, out, out if bias is None else bias, table)

        return way


class TritonDepths(TritonRows):
    """`multiply_depths`, or `sum_depths` where x has one row; both read the offsets themselves."""

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """A tile for m; none where rows of y are only added up."""
        if work.x.shape[0] == 1:
            return Proposal(self.name, device, None, "sums of rows")
        item, m = work.x.element_size(), work.out.shape[1]
        tile = tile_of(item, m, 1, device.local_memory, tiny=work.is_tiny)
        return Proposal(self.name, device, None, _words(tile), decisions=tile)

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """One launch."""
        tile: RaggedTile | None = proposal.decisions
        x, y, offsets, out = work.x, work.w, work.offsets, work.out
        programs, task = _sums(work) if tile is None else _products(work, tile, proposal.device)
        flag = faults.flag(ordinal_of(x))
        kernel, numbers, constants, options = task
        arguments = (x, y, out, offsets, flag, y.shape[0], *numbers)
        launch = reusable(Task(kernel, 1, arguments, constants, options), ordinal_of(x))

        def way(stream: int, x: Any, y: Any, offsets: Any, bias: Any, out: Any, *_: Any) -> None:
            launch(stream, programs, x, y, out, offsets, flag, y.shape[0])

        return way


# A kernel, the numbers it is given, what is compiled in, and how it is launched.
_Task = tuple[Any, tuple[int, ...], dict[str, Any], dict[str, int]]


def _products(work: RaggedWork, tile: RaggedTile, device: Device) -> tuple[int, _Task]:
    from tilewright.backends.cuda.kernels.triton.ragged import multiply_depths

    x, offsets, out = work.x, work.offsets, work.out
    groups, m, n = out.shape
    numbers = (offsets.stride(0), m, n, *x.stride(), *work.w.stride(), *out.stride())
    constants = {"LEADING": offsets.shape[0] - groups}
    constants |= constants_of(x, tile, work.precision, device)
    programs = groups * -(-m // tile.m) * -(-n // tile.n)
    return programs, (multiply_depths, numbers, constants, options_of(tile))


def _sums(work: RaggedWork) -> tuple[int, _Task]:
    """Depths of an x of one row: sums of the rows of y, each times an element of x."""
    from tilewright.backends.cuda.kernels.triton.ragged import sum_depths

    x, y, offsets, out = work.x, work.w, work.offsets, work.out
    groups, n = out.shape[0], y.shape[1]
    numbers = (offsets.stride(0), n, x.stride(1), *y.stride(), out.stride(0), out.stride(2))
    constants = {
        "LEADING": offsets.shape[0] - groups,
        "SUM": sum_type(x),
        "TILE_N": _SUMMED,
        "TILE_K": 64,
    }
    return groups * -(-n // _SUMMED), (sum_depths, numbers, constants, {})


def _words(tile: RaggedTile) -> str:
    return f"tiles of {tile.m} x {tile.n}"


def sum_type(x: Any) -> Any:
    """What products of x's dtype are added in."""
    import torch
    import triton.language as tl

    return tl.float64 if x.dtype == torch.float64 else tl.float32


def constants_of(x: Any, tile: RaggedTile, precision: str, device: Device) -> dict[str, Any]:
    """What is compiled in; where a device has no tf32, IEEE float32 is what is computed."""
    import torch

    exact = precision != "tf32" or not device.has("tf32")
    return {
        "SUM": sum_type(x),
        "TILE_M": tile.m,
        "TILE_N": tile.n,
        "TILE_K": tile.k,
        "PRECISION": "ieee" if exact else "tf32",
        "EXACT": exact and x.dtype == torch.float32,
    }


def options_of(tile: RaggedTile) -> dict[str, int]:
    """How Triton compiles for a tile."""
    return {"num_warps": tile.warps, "num_stages": tile.stages}
