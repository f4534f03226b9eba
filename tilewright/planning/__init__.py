"""Planning: a problem and a device's facts in, a plan out. Pure: no device is touched here.

candidates = every kernel's default legal configuration, and the host where operands are its own
chosen     = the least predicted seconds; without measurements, the vendor rules' first choice
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.batch import Problem
from tilewright.device import Device
from tilewright.errors import KernelError
from tilewright.kernel import Config, Kernel, Plan, Priors, Rejected, Step
from tilewright.planning.cost import MARGIN, Measured, device_seconds, host_seconds
from tilewright.planning.tiles import legal_configs, why_illegal

HOST_STEP = Step("host", Config(), ())
NO_PRIORS = Priors()


def plan(
    problem: Problem,
    device: Device,
    kernels: Sequence[Kernel],
    *,
    priors: Priors = NO_PRIORS,
    measured: Measured | None = None,
    host_operands: bool = True,
) -> Plan:
    """The plan for one problem on one device.

    `host_operands` says that the arrays lie in the host's memory, so that NumPy's BLAS is an
    alternative. Raises KernelError where no kernel takes the problem and the host cannot either.
    """
    steps, rejected = _candidates(problem, device, kernels)
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
    problem: Problem, device: Device, kernel: Kernel, config: Config | None = None
) -> Plan:
    """The plan that uses this kernel whatever it costs. Raises KernelError where it cannot."""
    verdict = kernel.supports(problem, device)
    if verdict is not True:
        raise KernelError(f"kernel={kernel.name!r}: {device.name}: {verdict}")
    if config is None:
        legal = legal_configs(kernel, problem, device)
        if not legal:
            first = kernel.configs(problem, device)[0]
            why = why_illegal(kernel, first, problem, device)
            raise KernelError(f"kernel={kernel.name!r}: {device.name}: {why}")
        config = legal[0]
    step = kernel.lower(problem, device, config)
    return Plan(device, problem, step, None, "the caller chose it")


def plan_host(problem: Problem, device: Device, reason: str) -> Plan:
    """The plan that leaves the product to NumPy's BLAS."""
    return Plan(device, problem, HOST_STEP, None, reason)


def _candidates(
    problem: Problem, device: Device, kernels: Sequence[Kernel]
) -> tuple[dict[str, Step], list[Rejected]]:
    steps, rejected = {}, []
    for kernel in kernels:
        verdict = kernel.supports(problem, device)
        legal = legal_configs(kernel, problem, device) if verdict is True else ()
        if legal:
            steps[kernel.name] = kernel.lower(problem, device, legal[0])
        else:
            first = kernel.configs(problem, device)[0]
            why = verdict if verdict is not True else why_illegal(kernel, first, problem, device)
            rejected.append(Rejected(kernel.name, str(why)))
    return steps, rejected


def _by_rule(
    problem: Problem,
    device: Device,
    steps: dict[str, Step],
    rejected: list[Rejected],
    priors: Priors,
) -> Plan:
    preferred = next((name for name in priors.kernels if name in steps), next(iter(steps)))
    rejected += [Rejected(name, "later in the rules") for name in steps if name != preferred]
    why = "first choice of the rules; nothing was measured on this device yet"
    return Plan(device, problem, steps[preferred], None, why, tuple(rejected), priors.notes)


def _by_time(
    problem: Problem,
    device: Device,
    steps: dict[str, Step],
    rejected: list[Rejected],
    priors: Priors,
    measured: Measured,
    host_operands: bool,
) -> Plan:
    times = {
        name: device_seconds(step, problem, measured, host=host_operands)
        for name, step in steps.items()
    }
    known = {name: seconds for name, seconds in times.items() if seconds is not None}
    best = min(known, key=lambda name: known[name], default=None)
    host = host_seconds(problem, measured) if host_operands else None
    rejected += [
        Rejected(name, "slower" if seconds is not None else "lost the probe", seconds)
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
    why = "predicted fastest"
    return Plan(device, problem, steps[best], known[best], why, tuple(rejected), priors.notes)
