"""Chooses the engine that multiplies bits, and its device: `engines.choose`, all products at once.

A prediction is the engine's own model of its device; on OpenCL devices, of which nobody knows
anything beforehand, it is stretched by what a probe took there (`rates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.backends import places
from tilewright.engines.bits import BitEngine, BitProblem
from tilewright.engines.choose import choose, merged, named
from tilewright.engines.contract import Planner
from tilewright.errors import KernelError, OperandError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Proposal, Verdict
from tilewright.inputs.devices import check_named, host, resolve
from tilewright.onebit import rates

# Below this a wrong choice costs less than the probe: some 50 ms for all engines, and compiling.
WORTH_PROBING = 2**30
# Seconds of the host from which another device is looked at: finding drivers takes about as long.
_WORTH_ANOTHER = 0.05


def engines_of(device: Device) -> tuple[BitEngine, ...]:
    """Every engine of a device."""
    place = places().get(device.backend)
    return () if place is None else place.engines(device)


def engine_of(proposal: Proposal) -> BitEngine:
    """The engine that made a proposal."""
    return named(engines_of(proposal.device), proposal.engine, proposal.device)


def judged(
    problems: Sequence[BitProblem],
    here: Device,
    wanted: Device | str | None,
    kernel: str | None,
) -> Verdict:
    """What the engines say of problems whose operands lie `here`; some engine takes them.

    Without `wanted` that is where they are multiplied, unless the host alone would take long and
    the default device works in the host's own memory.

    Raises KernelError for a kernel that is not there or that cannot; OperandError for a device that
    does not reach the operands.
    """
    if wanted is None:
        check_named()
    device = here if wanted is None else resolve(wanted)
    if device != here and not (here.backend == "host" and _reaches_host(device)):
        raise OperandError(
            f"device={device.id!r}: the operands lie on {here.id!r}; a.to({device.id!r}) copies"
        )
    found = _asked(problems, device, kernel)
    if here.backend == "host" and wanted is None and kernel is None and _is_slow(found):
        other = resolve(None)
        if other != here and _reaches_host(other) and other.has("unified_memory"):
            found = merged(found, _asked(problems, other, None))
    if not found.proposals:
        raise KernelError(
            f"device={device.id!r}: no one-bit kernel for this product ({found.reasons})"
        )
    return found


def _asked(problems: Sequence[BitProblem], device: Device, kernel: str | None) -> Verdict:
    engines: Sequence[Planner[Sequence[BitProblem]]] = engines_of(device)
    if device.backend == "host":
        device = host()  # the same, with its ceilings where they were measured
    if device.backend == "opencl":
        engines = [_Measured(engine, probes=kernel is None) for engine in engines_of(device)]
    return choose(problems, device, engines, kernel)


def _is_slow(verdict: Verdict) -> bool:
    return not verdict.proposals or (verdict.best.seconds or 0.0) > _WORTH_ANOTHER


def _reaches_host(device: Device) -> bool:
    """Whether its engines take NumPy arrays: OpenCL's stage them."""
    return device.backend in ("host", "opencl")


@dataclass(frozen=True, slots=True)
class _Measured:
    """An engine of a device nobody knew, its prediction stretched by what was measured there.

    It `probes` where there are others to compare with: only then is it worth measuring.
    """

    engine: BitEngine
    probes: bool

    @property
    def name(self) -> str:
        return self.engine.name

    def why_not(self, problems: Sequence[BitProblem], device: Device) -> str | None:
        return self.engine.why_not(problems, device)

    def propose(self, problems: Sequence[BitProblem], device: Device) -> Proposal:
        """Raises what a probe raises: the other kernels are as good as they were."""
        found = self.engine.propose(problems, device)
        worth = self.probes and sum(one.operations for one in problems) >= WORTH_PROBING
        stretch = rates.stretch(self.engine, device, measure=worth)
        if stretch is None or found.seconds is None:
            return found
        return replace(found, seconds=found.seconds * stretch, reason="measured on this device")
