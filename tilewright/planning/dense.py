"""Planning: a problem and a device's facts in, a plan out. Pure: no device is touched here.

candidates = every kernel's tuned configuration where there is one, else its default legal one,
             and the host where operands are its own
chosen     = the least predicted seconds; without measurements, the vendor rules' first choice
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.errors import KernelError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Config, Kernel, Plan, Priors, Step
from tilewright.facts.problem import Problem
from tilewright.facts.verdict import Rejected
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
from tilewright.planning.tiles import legal_configs, why_illegal

HOST_STEP = Step("host", Config(), ())
NO_PRIORS = Priors()
NOTHING_TUNED: Mapping[str, Tuned] = {}


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
    made = _plan(problem, device, kernels, priors, measured, host_operands, tuned)
    boundaries = measured.boundaries if measured is not None else UNMEASURED
    return replace(made, shape_class=describe(problem, boundaries))


def _plan(
    problem: Problem,
    device: Device,
    kernels: Sequence[Kernel],
    priors: Priors,
    measured: Measured | None,
    host_operands: bool,
    tuned: Mapping[str, Tuned],
) -> Plan:
    steps, rejected = _candidates(problem, device, kernels, tuned)
    if not steps:
        if not host_operands:
            reasons = "; ".join(f"{item.kernel}: {item.reason}" for item in rejected)
            raise KernelError(f"device={device.id!r}: no kernel takes this product ({reasons})")
        why = "no kernel of the device takes this product"
        return Plan(device, problem, HOST_STEP, None, why, tuple(rejected), priors.notes)
    if measured is None:
        return _by_rule(problem, device, steps, rejected, priors)
    return _by_time(problem, device, steps, rejected, priors, measured, host_operands)


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
    verdict = kernel.supports(problem, device)
    if verdict is not True:
        raise KernelError(f"kernel={kernel.name!r}: {device.name}: {verdict}")
    if config is not None:
        step = kernel.lower(problem, device, config)
        why = "the caller chose it"
        return Plan(device, problem, step, None, why, origin="the caller", forced=True)
    candidate = _candidate(problem, device, kernel, tuned)
    if isinstance(candidate, str):
        raise KernelError(f"kernel={kernel.name!r}: {device.name}: {candidate}")
    why = "the caller chose it"
    origin, ratio = candidate.origin, candidate.ratio
    step = candidate.step
    return Plan(device, problem, step, None, why, origin=origin, ratio=ratio, forced=True)


def plan_host(problem: Problem, device: Device, reason: str) -> Plan:
    """The plan that leaves the product to NumPy's BLAS."""
    return Plan(device, problem, HOST_STEP, None, reason)


def _candidates(
    problem: Problem, device: Device, kernels: Sequence[Kernel], tuned: Mapping[str, Tuned]
) -> tuple[dict[str, Candidate], list[Rejected]]:
    steps: dict[str, Candidate] = {}
    rejected: list[Rejected] = []
    for kernel in kernels:
        candidate = _candidate(problem, device, kernel, tuned.get(kernel.name))
        if isinstance(candidate, str):
            rejected.append(Rejected(kernel.name, candidate))
        else:
            steps[kernel.name] = candidate
    return steps, rejected


def _candidate(
    problem: Problem, device: Device, kernel: Kernel, tuned: Tuned | None
) -> Candidate | str:
    """The kernel's candidate, or the reason why it has none."""
    verdict = kernel.supports(problem, device)
    if verdict is not True:
        return str(verdict)
    legal = legal_configs(kernel, problem, device)
    if not legal:
        return str(why_illegal(kernel, kernel.configs(problem, device)[0], problem, device))
    default = kernel.lower(problem, device, legal[0])
    if tuned is None or why_illegal(kernel, tuned.config, problem, device) is not None:
        return Candidate(default, default)
    step = kernel.lower(problem, device, tuned.config)
    return Candidate(step, default, tuned.ratio, tuned.origin)


def _by_rule(
    problem: Problem,
    device: Device,
    steps: dict[str, Candidate],
    rejected: list[Rejected],
    priors: Priors,
) -> Plan:
    preferred = next((name for name in priors.kernels if name in steps), next(iter(steps)))
    rejected += [Rejected(name, "later in the rules") for name in steps if name != preferred]
    why = "first choice of the rules; nothing was measured on this device yet"
    chosen = steps[preferred]
    return Plan(
        device,
        problem,
        chosen.step,
        None,
        why,
        tuple(rejected),
        priors.notes,
        chosen.origin,
        chosen.ratio,
    )


def _by_time(
    problem: Problem,
    device: Device,
    steps: dict[str, Candidate],
    rejected: list[Rejected],
    priors: Priors,
    measured: Measured,
    host_operands: bool,
) -> Plan:
    least = roof_seconds(problem, device)
    times = {
        name: candidate.seconds(problem, measured, host=host_operands, least=least)
        for name, candidate in steps.items()
    }
    behind = epilogue_seconds(problem, device)
    times = {name: None if time is None else time + behind for name, time in times.items()}
    known = {name: seconds for name, seconds in times.items() if seconds is not None}
    best = min(known, key=lambda name: known[name], default=None)
    host = host_seconds(problem, measured) if host_operands else None
    rejected += [
        Rejected(name, "slower" if seconds is not None else "the probe left it out", seconds)
        for name, seconds in times.items()
        if name != best
    ]
    if best is None and host is None:
        return _by_rule(problem, device, steps, rejected, priors)
    if host is not None and (best is None or known[best] * MARGIN > host):
        if best is not None:
            rejected.append(Rejected(best, "not faster than the host by 3 %", known[best]))
        why = "NumPy's BLAS is predicted fastest, transfer included"
        return Plan(device, problem, HOST_STEP, host, why, tuple(rejected), priors.notes)
    assert best is not None
    if host is not None:
        rejected.append(Rejected("host", "slower", host))
    why, chosen = "predicted fastest", steps[best]
    return Plan(
        device,
        problem,
        chosen.step,
        known[best],
        why,
        tuple(rejected),
        priors.notes,
        chosen.origin,
        chosen.ratio,
    )
