"""8-bit products on Hopper's tensor cores: `hopper_fp8` behind a table of rows or of depths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.backends.cuda.fp8 import launch
from tilewright.backends.cuda.fp8.work import Fp8Work, Operands, Places, Scales, Way
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.ragged.plan import DepthPlan, RowPlan, memory
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal


class Hopper:
    """Takes operands with k contiguous, rows at multiples of 16 bytes."""

    name = "hopper"

    def why_not(self, work: Fp8Work, device: Device) -> str | None:
        """What the copy engine or the tensor cores cannot read."""
        if not device.has("wgmma"):
            return "needs wgmma: compute capability 9.0"
        if not work.operands.a.is_cuda:
            return "runs on a GPU only"
        given = work.operands
        if not (given.a.numel() and given.b.numel() and given.out.shape[-1]):
            return "there is nothing to multiply"
        return nvrtc.missing() or _why_not_read(given) or why_not_scaled(work)

    def propose(self, work: Fp8Work, device: Device) -> Proposal:
        """As it is: what it takes, no other kernel does faster."""
        how = "exact in int32" if work.of_integers else "promoted every 128 of k"
        return Proposal(self.name, device, None, f"8-bit wgmma, {how}")

    def bind(self, proposal: Proposal, work: Fp8Work) -> Way:
        """The planning launch and the multiplying one. Raises DeviceError."""
        given, groups = work.operands, work.groups
        if work.depths:
            return _Depths(DepthPlan(given.a, given.offsets, groups), launch.Launch(work), groups)
        last = launch.is_long(given.a.shape[0], groups)
        plan = RowPlan(
            *(given.offsets, given.out, groups, launch.ROWS),
            clear=work.clear,
            rests_last=last,
            long_first=True,
            turns=launch.BAND,
        )
        return _Rows(plan, launch.Launch(work), groups)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A Way of groups of rows: plan, then multiply."""

    plan: RowPlan
    multiply: launch.Launch
    groups: int

    def __call__(self, stream: int, now: Operands) -> None:
        table = memory(now.a, self._words(now.a.shape[0]))
        self.plan.launch(stream, now.offsets, table, now.out)
        self.multiply.launch(stream, table, now)

    def settled(self, work: Fp8Work) -> Callable[[int, Any, Any, Places], None]:
        """As `Settling` has it."""
        return _settled(work, self._words(work.operands.a.shape[0]), self.plan.launch)

    def _words(self, rows: int) -> int:
        return 4 + 4 * (rows // launch.ROWS + self.groups)


@dataclass(frozen=True, slots=True)
class _Depths:
    """The same of groups of k."""

    plan: DepthPlan
    multiply: launch.Launch
    groups: int

    def __call__(self, stream: int, now: Operands) -> None:
        table = memory(now.a, 4 + 4 * self.groups)
        self.plan.launch(stream, now.offsets, table, now.b.shape[0])
        self.multiply.launch(stream, table, now)

    def settled(self, work: Fp8Work) -> Callable[[int, Any, Any, Places], None]:
        """As `Settling` has it."""
        rows = work.operands.b.shape[0]
        return _settled(work, 4 + 4 * self.groups, self.plan.launch, rows)


def _settled(
    work: Fp8Work, words: int, plan: Callable[[int, Any, Any, Any], None], rows: int | None = None
) -> Callable[[int, Any, Any, Places], None]:
    """Plan a table of so many words, of `out` or of so many rows, then multiply by it."""
    multiply = launch.Launch(work).settle(work.operands)

    def run(stream: int, offsets: Any, out: Any, places: Places) -> None:
        table = memory(out, words)
        plan(stream, offsets, table, out if rows is None else rows)
        multiply(stream, table, places)

    return run


def _why_not_read(given: Operands) -> str | None:
    a, b, out = given.a, given.b, given.out
    if a.stride(1) != 1 or b.stride(-2) != 1:
        return "k of both operands must be contiguous"
    if b.dim() == 3 and b.shape[0] > 1 and b.stride(0) != b.shape[2] * b.stride(2):
        return "groups of the second operand do not follow one another"
    starts = (a.data_ptr(), b.data_ptr(), a.stride(0), b.stride(-1))
    if any(start % 16 for start in starts) or min(starts) <= 0:
        return "rows must begin at multiples of 16 bytes"
    if out.stride(-1) != 1 or out.stride(-2) <= 0:
        return "rows of out must be contiguous"
    sizes = (a.shape[0], a.shape[1], b[..., 0, :].numel())
    return "an operand has 2^31 rows or more" if max(sizes) >= 2**31 - 512 else None


def why_not_scaled(work: Fp8Work) -> str | None:
    """What of the scales the kernel cannot read."""
    a, b = work.operands.scale_a, work.operands.scale_b
    if max(_reach(a), _reach(b)) >= 2**31:
        return "scales reach over 2^31 elements or more"
    if work.scales != Scales.STRIPS:
        return None
    at = b.data_ptr() % 16 == 0 and b.stride(2) == 1 and b.stride(1) % 4 == 0
    room = -(-b.shape[2] // 4) * 4 <= b.stride(1) or (b.shape[1] == 1 and b.shape[2] % 4 == 0)
    return None if at and room else "strips of scales must begin at multiples of 16 bytes"


def _reach(scales: Any) -> int:
    """Elements from a tensor's first to past its last."""
    steps = zip(scales.shape, scales.stride(), strict=True)
    return 1 + sum((int(size) - 1) * int(step) for size, step in steps)
