"""8-bit products in Triton: on every GPU, in any layout; floats by halves where it has no fp8."""

from __future__ import annotations

from typing import Any

from tilewright.backends.cuda.fp8.work import BLOCK, Fp8Work, Operands, Scales, Way
from tilewright.backends.cuda.machine import faults
from tilewright.backends.cuda.machine.triton_launch import Task, reusable
from tilewright.backends.cuda.ragged.plan import RowPlan, memory, ordinal_of
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal

_BAND = 8
# Rows, columns and k of a tile for few rows a group, and for many.
_FEW, _MANY = (32, 128, 64), (128, 128, 64)
NATIVE = (8, 9)  # the compute capability of the first NVIDIA GPUs with these two types


class Triton:
    """Takes everything."""

    name = "triton"

    def why_not(self, work: Fp8Work, device: Device) -> None:
        """Takes everything."""

    def propose(self, work: Fp8Work, device: Device) -> Proposal:
        """A tile for as many rows as a group has on average."""
        given = work.operands
        rows = given.out.shape[1] if work.depths else given.a.shape[0] // max(work.groups, 1)
        tile = _MANY if rows >= _MANY[0] // 2 and device.local_memory > 2**16 else _FEW
        words = f"tiles of {tile[0]} x {tile[1]}"
        return Proposal(self.name, device, None, words, decisions=tile)

    def bind(self, proposal: Proposal, work: Fp8Work) -> Way:
        """The planning launch, if any, and the multiplying one. Raises BuildError."""
        constants = constants_of(work, proposal.decisions, proposal.device)
        return _depths(work, constants) if work.depths else _rows(work, constants, proposal.device)


def constants_of(work: Fp8Work, tile: tuple[int, int, int], device: Device) -> dict[str, Any]:
    """What is compiled in."""
    a, b = ("e5m2" in str(one.dtype) for one in (work.operands.a, work.operands.b))
    native = device.platform == "CUDA" and int(device.version.removeprefix("sm_")) >= 89
    sizes = dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile, strict=True))
    shared = BLOCK if work.scales == Scales.BLOCKS else 1
    types = {"A_E5M2": a, "B_E5M2": b, "NATIVE": native and a == b}
    return {"SHARED": shared, **types, **sizes}


def _rows(work: Fp8Work, constants: dict[str, Any], device: Device) -> Way:
    from tilewright.backends.cuda.kernels.triton.fp8 import multiply_fp8_rows

    given, groups = work.operands, work.groups
    height, width = constants["TILE_M"], constants["TILE_N"]
    plan = RowPlan(given.offsets, given.out, groups, height, clear=work.clear, rests_last=False)
    more = {
        "BAND": _BAND,
        "ROWS": work.scales == Scales.ROWS,
        "INT8": work.of_integers,
        **constants,
    }
    table = memory(given.a, 4)
    launch = reusable(
        Task(multiply_fp8_rows, 1, _of_rows(given, table), more, _options(height)),
        ordinal_of(given.a),
    )
    across, most = -(-given.out.shape[1] // width), device.compute_units * 2

    def way(stream: int, now: Operands) -> None:
        entries = groups + now.a.shape[0] // height
        table = memory(now.a, 4 + 4 * entries)
        plan.launch(stream, now.offsets, table, now.out)
        launch(stream, min(entries * across, most), *_of_rows(now, table))

    return way


def _of_rows(given: Operands, table: Any) -> tuple[Any, ...]:
    a, b, _, of_a, of_b, out = given
    strides = (*a.stride(), *b.stride(), *of_a.stride(), *of_b.stride(), *out.stride())
    return (*_bits(a, b), of_a, of_b, out, table, out.shape[1], a.shape[1], *strides)


def _depths(work: Fp8Work, constants: dict[str, Any]) -> Way:
    from tilewright.backends.cuda.kernels.triton.fp8 import multiply_fp8_depths

    given, groups = work.operands, work.groups
    _, m, n = given.out.shape
    flag = faults.flag(ordinal_of(given.a))
    more = {"LEADING": given.offsets.shape[0] - groups, **constants}
    task = Task(
        multiply_fp8_depths, 1, _of_depths(given, flag), more, _options(constants["TILE_M"])
    )
    launch = reusable(task, ordinal_of(given.a))
    programs = groups * -(-m // constants["TILE_M"]) * -(-n // constants["TILE_N"])

    def way(stream: int, now: Operands) -> None:
        launch(stream, programs, *_of_depths(now, flag))

    return way


def _of_depths(given: Operands, flag: Any) -> tuple[Any, ...]:
    a, b, offsets, of_a, of_b, out = given
    strides = (*a.stride(), *b.stride(), *of_a.stride(), *of_b.stride()[1:], *out.stride())
    sizes = (b.shape[0], offsets.stride(0), *out.shape[1:])
    return (*_bits(a, b), of_a, of_b, out, offsets, flag, *sizes, *strides)


def _bits(*values: Any) -> tuple[Any, ...]:
    import torch

    return tuple(value.view(torch.uint8) for value in values)


def _options(height: int) -> dict[str, int]:
    return {"num_warps": 8 if height > 64 else 4, "num_stages": 3}
