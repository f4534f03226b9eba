"""The engines of one product of the host's arrays: a device's kernels, and NumPy's BLAS.

A kernel proposes its tuned configuration where there is one, else its default legal one; the host
proposes itself where operands are its own. The least predicted seconds win; without measurements,
the vendor rules' first choice. Pure: no device is touched here, and the plan goes to `Backend.run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.engines.choose import choose
from tilewright.engines.contract import Planner
from tilewright.errors import KernelError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Config, Kernel, Plan, Priors, Step
from tilewright.facts.problem import Problem
from tilewright.facts.verdict import Proposal
from tilewright.planning.classes import UNMEASURED, Tuned, describe
from tilewright.planning.cost import (
    CALL,
    MARGIN,
    Measured,
    device_seconds,
    epilogue_seconds,
    host_seconds,
    roof_seconds,
)
from tilewright.planning.tiles import legal_configs, why_not

HOST_STEP = Step("host", Config(), ())
NO_PRIORS = Priors()
NOTHING_TUNED: Mapping[str, Tuned] = {}
_BY_RULE = "first choice of the rules; nothing was measured on this device yet"
_FORCED = "the caller chose it"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel's step for a problem, its default one beside it, and where the former is from.

    Curves were measured with defaults, so times are predicted from the default step, times `ratio`.
    """

    step: Step
    default: Step
    ratio: float = 1.0
    origin: str = "the kernel's default; nothing was tuned for this class"

    def seconds(
        self, problem: Problem, measured: Measured, *, host: bool, least: float = 0.0
    ) -> float | None:
        """Predicted seconds, `least` or more; None where the kernel was not measured."""
        predicted = device_seconds(self.default, problem, measured, host=host)
        curve = measured.curve(self.default.kernel)
        if predicted is None or curve is None:
            return None
        # Launches and bytes cost what they cost: a better configuration takes nothing off them.
        bytes_ = problem.traffic + self.default.moved_bytes
        launched = max(curve.points[0][1], bytes_ / measured.bandwidth) + (CALL if host else 0.0)
        fixed = min(predicted, launched)
        return max(fixed + (predicted - fixed) * self.ratio, least)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel, asked with what is known of the device, or for the configuration that is given."""

    kernel: Kernel
    measured: Measured | None = None
    host_operands: bool = False
    tuned: Tuned | None = None
    config: Config | None = None

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.kernel.name

    def why_not(self, problem: Problem, device: Device) -> str | None:
        """What the kernel says, or that the driver computes it wrongly."""
        if self.measured is not None and self.name in self.measured.wrong:
            return "this driver computes it wrongly"
        return self.kernel.why_not(problem, device)

    def propose(self, problem: Problem, device: Device) -> Proposal:
        """Its step, and the seconds that its curve gives."""
        found = self._candidate(problem, device)
        seconds = self._seconds(found, problem, device)
        why = _BY_RULE if seconds is None else "predicted fastest"
        return Proposal(self.name, device, seconds, why, margin=MARGIN, decisions=found)

    def _candidate(self, problem: Problem, device: Device) -> Candidate:
        kernel = self.kernel
        if self.config is not None:
            step = kernel.lower(problem, device, self.config)
            return Candidate(step, step, origin="the caller")
        legal = legal_configs(kernel, problem, device)
        if not legal:
            why = why_not(kernel, kernel.configs(problem, device)[0], problem, device)
            raise KernelError(str(why))
        default = kernel.lower(problem, device, legal[0])
        tuned = self.tuned
        if tuned is None or why_not(kernel, tuned.config, problem, device) is not None:
            return Candidate(default, default)
        step = kernel.lower(problem, device, tuned.config)
        return Candidate(step, default, tuned.ratio, tuned.origin)

    def _seconds(self, found: Candidate, problem: Problem, device: Device) -> float | None:
        if self.measured is None:
            return None
        least = roof_seconds(problem, device)
        seconds = found.seconds(problem, self.measured, host=self.host_operands, least=least)
        return None if seconds is None else seconds + epilogue_seconds(problem, device)


@dataclass(frozen=True, slots=True)
class _HostBlas:
    """NumPy's BLAS, where the operands are the host's; it wins ties within 3 %."""

    measured: Measured
    name: str = "host"

    def why_not(self, problem: Problem, device: Device) -> None:
        return None

    def propose(self, problem: Problem, device: Device) -> Proposal:
        why = "NumPy's BLAS is predicted fastest, transfer included"
        seconds = host_seconds(problem, self.measured)
        return Proposal(self.name, device, seconds, why, decisions=Candidate(HOST_STEP, HOST_STEP))


def plan(
    problem: Problem,
    device: Device,
    kernels: Sequence[Kernel],
    *,
    priors: Priors = NO_PRIORS,
    measured: Measured | None = None,
    host_operands: bool = True,
    tuned: Mapping[str, Tuned] = NOTHING_TUNED,
) -> Plan:
    """The plan for one problem on one device.

    `host_operands` says that the arrays lie in the host's memory, so that NumPy's BLAS is an
    alternative. `tuned` has configurations for this problem by kernel; one that is not legal here
    is passed over. Raises KernelError where no kernel takes the problem and the host cannot either.
    """
    shape_class = describe(problem, UNMEASURED if measured is None else measured.boundaries)
    engines: list[Planner[Problem]] = [
        Lowered(kernel, measured, host_operands, tuned.get(kernel.name)) for kernel in kernels
    ]
    if measured is not None and host_operands:
        engines.append(_HostBlas(measured))
    verdict = choose(problem, device, engines)
    if len(verdict.refusals) == len(kernels):
        if not host_operands:
            reasons = verdict.reasons
            raise KernelError(f"device={device.id!r}: no kernel takes this product ({reasons})")
        host = plan_host(problem, device, "no kernel of the device takes this product")
        return replace(host, rejected=verdict.refusals, notes=priors.notes, shape_class=shape_class)
    if verdict.best.seconds is None:
        verdict = replace(verdict, proposals=_by_rule(verdict.proposals, priors))
    made = planned_by(problem, verdict.best)
    return replace(made, rejected=verdict.rejected, notes=priors.notes, shape_class=shape_class)


def plan_kernel(
    problem: Problem,
    device: Device,
    kernel: Kernel,
    config: Config | None = None,
    tuned: Tuned | None = None,
) -> Plan:
    """The plan that uses this kernel whatever it costs. Raises KernelError where it cannot.

    Its configuration is `config`, else the tuned one where that is legal, else the default.
    """
    engine = Lowered(kernel, tuned=tuned, config=config)
    best = choose(problem, device, (engine,), kernel.name).best
    return replace(planned_by(problem, best), reason=_FORCED, seconds=None, forced=True)


def planned_by(problem: Problem, proposal: Proposal) -> Plan:
    """The plan that follows a kernel's own proposal."""
    found: Candidate = proposal.decisions
    origin, ratio = "" if found.step is HOST_STEP else found.origin, found.ratio
    seconds, reason = proposal.seconds, proposal.reason
    return Plan(proposal.device, problem, found.step, seconds, reason, origin=origin, ratio=ratio)


def plan_host(problem: Problem, device: Device, reason: str) -> Plan:
    """The plan that leaves the product to NumPy's BLAS."""
    return Plan(device, problem, HOST_STEP, None, reason)


def _by_rule(proposals: Sequence[Proposal], priors: Priors) -> tuple[Proposal, ...]:
    """In the order of the vendor rules, those that no rule names behind them."""
    ranks = {name: rank for rank, name in enumerate(priors.kernels)}
    return tuple(sorted(proposals, key=lambda one: ranks.get(one.engine, len(ranks))))
