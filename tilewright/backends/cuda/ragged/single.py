"""fp32 products of ragged rows and depths by ragged_single.cu: IEEE arithmetic, and fp32x.

    x, w   k along the rows or across them, whichever memory has contiguous; no copy is made
    out    columns contiguous

Tiles of 64 x 64 as batches of fp32 have them (tiled/simt.py). Triton reads x out of shared memory a
number at a time: 64 groups of 64 rows, k 2048 and n 1024 took it 2.24 ms on an H200, where a loop
of cuBLAS takes 1.52. With precision "fp32x" tiles of rows are made on tensor cores, of numbers as
three bf16 each (thirds.cuh): of 16,384 rows, 64 groups, k 2048 and n 2816 in 4.59 ms where IEEE
fp32 takes 5.18, by turned weights 4.38 and 6.10. Depths were not faster so, 5.18 ms and 4.60.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.ragged.plan import DepthPlan, RowPlan, memory
from tilewright.backends.cuda.ragged.work import RaggedWork, Way
from tilewright.backends.cuda.tiled.simt import why_no_tiles
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

SIDE = 64  # rows and columns of a tile
FEW = SIDE // 2  # rows a group, on average, below which Triton's lower tiles waste less
_BAND = 8
_CHAIN = 128  # of k in a sum: with 256 constants were 2.9e-6 off where k is not cut, cuBLAS 0.3e-6
_ROWS, _DEPTHS = 1, 2
# Compute capabilities whose tensor cores multiply bf16 more than six times as fast as CUDA cores do
# fp32: 16 and 15 times by their datasheets. Others stay at 2 to 8.
_FAST_THIRDS = frozenset({"sm_80", "sm_90"})


@dataclass(frozen=True, slots=True)
class _Tiles:
    """How a kernel makes its tiles.

    Of thirds.cuh also words of shared memory: a stage of an operand with k along its rows, or
    across them, and what both are split into.
    """

    threads: int
    resident: int
    stages: int = 2
    thirds: bool = False
    along: int = 0
    across: int = 0
    split: int = 0

    def shared(self, *across: bool) -> int:
        """Bytes of dynamic shared memory for operands with k across their rows, or along them."""
        if not self.thirds:
            return 0
        blocks = self.stages * sum(self.across if one else self.along for one in across)
        return 4 * max(blocks + self.split, SIDE * (SIDE + 1))


_SINGLE = _Tiles(64, resident=6)
_THIRDS = _Tiles(
    128, resident=3, thirds=True, along=SIDE * 40, across=32 * (SIDE + 4), split=6 * SIDE * 20
)


class _Given(ctypes.Structure):
    """`Ragged` of ragged_single.cu."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "w", "c", "bias", "table")),
        *((name, ctypes.c_int64) for name in ("x_step", "w_group", "w_step", "c_group", "c_row")),
        *((name, ctypes.c_int64) for name in ("bias_group", "bias_step")),
        *((name, ctypes.c_int) for name in ("m", "n", "k", "groups")),
    ]


class SingleRows:
    """The kernel behind a table of rows."""

    name = "single"

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes fp32 in IEEE arithmetic whose rows lie in order and element by element."""
        if work.index is not None:
            return "rows are found by index"
        nothing = work.why_not_large() or why_not(work, device)
        if nothing is None and work.rows_for_tiles < work.w.shape[0] * FEW:
            nothing = f"groups have fewer than {FEW} rows on average"
        return nothing or _why_not_laid(work.x, work.w[0], work.out)

    def propose(self, work: RaggedWork, device: Device) -> Proposal:
        """As it is: what it takes, Triton does no faster."""
        tiles = _tiles(work, device)
        how = "fp32x on tensor cores" if tiles.thirds else "float32"
        return Proposal(
            self.name, device, None, f"{how}, tiles of {SIDE} x {SIDE}", decisions=tiles
        )

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying one. Raises DeviceError."""
        x, w, bias, out = work.x, work.w, work.bias, work.out
        groups, k, n = w.shape
        plan = RowPlan(work.offsets, out, groups, SIDE, clear=work.clear, rests_last=False)
        given = _Given(n=n, k=k, w_group=w.stride(0), c_row=out.stride(0))
        if bias is not None:
            given.bias_group, given.bias_step = bias.stride()
        launch = _launcher(x, w[0], _ROWS, given, proposal.decisions)
        across = -(-n // SIDE)

        def way(stream: int, x: Any, w: Any, offsets: Any, bias: Any, out: Any, *_: Any) -> None:
            entries = groups + x.shape[0] // SIDE
            table = memory(x, 4 + 4 * entries)
            plan.launch(stream, offsets, table, out)
            launch(stream, entries * across, table, x, w, out, bias)

        return way


class SingleDepths(SingleRows):
    """The kernel behind a table of depths."""

    def why_not(self, work: RaggedWork, device: Device) -> str | None:
        """Takes fp32 in IEEE arithmetic whose rows or columns lie element by element."""
        if work.index is not None:
            return "rows are found by index"
        nothing = work.why_not_large() or why_not(work, device)
        if nothing is None and min(work.out.shape[1:]) < FEW:
            nothing = f"results have fewer than {FEW} rows or columns"
        return nothing or _why_not_laid(work.x, work.w, work.out[0])

    def bind(self, proposal: Proposal, work: RaggedWork) -> Way:
        """The planning launch and the multiplying one. Raises DeviceError."""
        x, y, out = work.x, work.w, work.out
        groups, m, n = out.shape
        plan = DepthPlan(x, work.offsets, groups)
        given = _Given(m=m, n=n, groups=groups, c_group=out.stride(0), c_row=out.stride(1))
        launch = _launcher(x, y, _DEPTHS, given, proposal.decisions)
        tiles = groups * -(-m // SIDE) * -(-n // SIDE)

        def way(stream: int, x: Any, y: Any, offsets: Any, bias: Any, out: Any, *_: Any) -> None:
            table = memory(x, 4 + 4 * groups)
            plan.launch(stream, offsets, table, y.shape[0])
            launch(stream, tiles, table, x, y, out, None)

        return way


def why_not(work: RaggedWork, device: Device) -> str | None:
    """Why the kernel cannot multiply these here, wherever their elements lie."""
    return why_no_tiles(str(work.x.dtype).removeprefix("torch."), work.precision, device)


def _tiles(work: RaggedWork, device: Device) -> _Tiles:
    fast = work.w.dim() == 3 and device.version.rstrip("af") in _FAST_THIRDS
    return _THIRDS if work.precision == "fp32x" and fast else _SINGLE


def _why_not_laid(x: Any, w: Any, out: Any) -> str | None:
    """The same where they lie: a matrix each of x, of what it meets and of the result."""
    if 1 not in x.stride() or 1 not in w.stride():
        return "neither rows nor columns of an operand lie element by element"
    return None if out.stride(1) == 1 else "columns of the result do not lie element by element"


def _launcher(x: Any, w: Any, form: int, given: _Given, tiles: _Tiles) -> Callable[..., None]:
    """Enqueues for operands that lie as x and w, a matrix of the right one: any addresses."""
    import torch

    across, along = x.stride(1) != 1, w.stride(1) != 1  # where k lies
    given.x_step = x.stride(1) if across else x.stride(0)
    given.w_step = w.stride(1) if along else w.stride(0)
    macros = _macros(x, w, form, given, tiles)
    ordinal, shared = x.device.index, tiles.shared(across, not along)
    kernel = nvrtc.function("ragged_single", macros, ordinal, shared=shared)
    units = torch.cuda.get_device_properties(ordinal).multi_processor_count
    most, lock = units * tiles.resident, threading.Lock()
    known: dict[int, Callable[[int], None]] = {}

    def launch(stream: int, count: int, table: Any, x: Any, w: Any, out: Any, bias: Any) -> None:
        blocks = min(count, most)
        with lock:
            given.x, given.w, given.c = x.data_ptr(), w.data_ptr(), out.data_ptr()
            given.table = table.data_ptr()
            given.bias = None if bias is None else bias.data_ptr()
            if blocks not in known:
                known.clear()  # of one number of rows at a time, as it changes with batches
                arguments = nvrtc.Arguments([given])
                known[blocks] = nvrtc.launcher((kernel, blocks, tiles.threads, arguments))
            known[blocks](stream)

    return launch


def _macros(x: Any, w: Any, form: int, given: _Given, tiles: _Tiles) -> nvrtc.Defines:
    """What is compiled in. Operands whose k is cut into groups begin anywhere along it."""
    across, along = x.stride(1) != 1, w.stride(1) != 1
    rows, x_each, w_each = form == _ROWS, 1, 1
    if across != rows and (across or tiles.thirds):
        x_each = _copied(x, given.x_step, given.m if across else given.k)
    if not along or (rows and tiles.thirds):
        w_each = _copied(w, given.w_step, given.k if along else given.n, given.w_group)
    return (
        ("STAGES", tiles.stages),
        ("RESIDENT", tiles.resident),
        ("BAND", _BAND),
        ("FORM", form),
        ("X_ACROSS", int(across)),
        ("W_ALONG", int(along)),
        ("X_EACH", x_each),
        ("W_EACH", w_each),
        *((("THIRDS", 1), ("SIDE", SIDE)) if tiles.thirds else (("CHAIN", _CHAIN),)),
    )


def _copied(matrix: Any, step: int, columns: int, apart: int = 0) -> int:
    """How many numbers can be copied at a time: four where all begins at multiples of them."""
    whole = matrix.data_ptr() % 16 == step % 4 == columns % 4 == apart % 4 == 0
    return 4 if whole else 1
