"""Which engine multiplies bits: the fewest predicted seconds among those that can.

A prediction is the engine's own model of its device; on OpenCL devices, of which nobody knows
anything beforehand, it is stretched by what a probe took there (`rates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.backends import places
from tilewright.engines.bits import BitEngine, BitProblem
from tilewright.errors import KernelError, OperandError, TilewrightError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Rejected
from tilewright.inputs.devices import resolve
from tilewright.onebit import rates

# Below this a wrong choice costs less than the probe: some 50 ms for all engines, and compiling.
_WORTH_PROBING = 2**30
# Seconds of the host from which another device is looked at: finding drivers takes about as long.
_WORTH_ANOTHER = 0.05


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, its device, and why."""

    engine: BitEngine
    device: Device
    seconds: float
    reason: str
    rejected: tuple[Rejected, ...] = ()


def engines_of(device: Device) -> tuple[BitEngine, ...]:
    """Every engine of a device."""
    place = places().get(device.backend)
    return () if place is None else place.engines(device)


def engine_names(device: Device) -> tuple[str, ...]:
    """Names of the engines of a device."""
    return tuple(engine.name for engine in engines_of(device))


def choose(
    problems: Sequence[BitProblem],
    here: Device,
    wanted: Device | str | None,
    kernel: str | None,
) -> Choice:
    """The engine for problems whose operands lie `here`.

    Without `wanted` that is where they are multiplied, unless the host alone would take long and
    the default device works in the host's own memory.

    Raises KernelError for a kernel that is not there or that cannot; OperandError for a device that
    does not reach the operands.
    """
    device = here if wanted is None else resolve(wanted)
    if device != here and not (here.backend == "host" and _reaches_host(device)):
        raise OperandError(
            f"device={device.id!r}: the operands lie on {here.id!r}; a.to({device.id!r}) copies"
        )
    found, rejected = _able(problems, device, kernel)
    slow = not found or found[0].seconds > _WORTH_ANOTHER
    if here.backend == "host" and wanted is None and kernel is None and slow:
        other = resolve(None)
        if other != here and _reaches_host(other) and other.has("unified_memory"):
            more, others = _able(problems, other, None)
            found = sorted(found + more, key=lambda one: one.seconds)
            rejected += others
    if not found:
        reasons = "; ".join(f"{item.kernel}: {item.reason}" for item in rejected) or "none there"
        raise KernelError(f"device={device.id!r}: no one-bit kernel for this product ({reasons})")
    slower = [Rejected(one.engine.name, one.reason, one.seconds) for one in found[1:]]
    return replace(found[0], rejected=(*slower, *rejected))


def _able(
    problems: Sequence[BitProblem], device: Device, kernel: str | None
) -> tuple[list[Choice], list[Rejected]]:
    """The engines of a device that can, fastest first, and the others."""
    engines = engines_of(device)
    if kernel is not None:
        engines = tuple(engine for engine in engines if engine.name == kernel)
        if not engines:
            names = ", ".join(map(repr, engine_names(device))) or "none"
            raise KernelError(f"kernel={kernel!r}: {device.id!r} knows {names}")
    able, rejected = [], []
    for engine in engines:
        reason = next((r for p in problems if (r := engine.supports(p, device)) is not True), None)
        if reason is not None:
            rejected.append(Rejected(engine.name, str(reason)))
            continue
        alone = len(engines) == 1
        try:
            predicted = _predicted(engine, problems, device, alone=alone)
        except TilewrightError as error:  # of a probe: the other kernels are as good as they were
            rejected.append(Rejected(engine.name, str(error)))
            continue
        able.append(Choice(engine, device, *predicted))
    return sorted(able, key=lambda one: one.seconds), rejected


def _reaches_host(device: Device) -> bool:
    """Whether its engines take NumPy arrays: OpenCL's stage them."""
    return device.backend in ("host", "opencl")


def _predicted(
    engine: BitEngine, problems: Sequence[BitProblem], device: Device, *, alone: bool
) -> tuple[float, str]:
    """Seconds for all problems, and where the number comes from."""
    predicted = [engine.seconds(problem, device) for problem in problems]
    seconds, why = sum(each for each, _ in predicted), predicted[0][1]
    if device.backend != "opencl":
        return seconds, why
    worth = not alone and sum(each.operations for each in problems) >= _WORTH_PROBING
    stretch = rates.stretch(engine, device, measure=worth)
    return (seconds, why) if stretch is None else (seconds * stretch, "measured on this device")


def tell(problem: BitProblem, choice: Choice) -> str:
    """The choice as a text of a few lines."""
    rate = problem.operations / choice.seconds / 1e9 if choice.seconds else 0.0
    lines = [
        f"problem   m={problem.m} n={problem.n} k={problem.k}, {problem.form}, to {problem.out}",
        f"device    {choice.device.id}: {choice.device.name}",
        f"kernel    {choice.engine.name}",
        f"predicted {choice.seconds * 1e6:.1f} µs, {rate:.0f} GOP/s: {choice.reason}",
    ]
    for item in choice.rejected:
        time = "" if item.seconds is None else f"{item.seconds * 1e6:.1f} µs: "
        lines.append(f"not       {item.kernel}: {time}{item.reason}")
    return "\n".join(lines)
