"""Plans a product on the host or an OpenCL device, by all that was measured and tuned of them.

product -> problem: sizes, and how the operands lie there -> plan, found again by both
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright import remember, settings
from tilewright.arrays.views import NO_COMPLEX
from tilewright.engines.choose import named
from tilewright.engines.dense import plan, plan_host, plan_kernel
from tilewright.facts.device import Device
from tilewright.facts.dtypes import COMPLEX
from tilewright.facts.kernel import Plan
from tilewright.facts.problem import Problem
from tilewright.inputs.devices import backend_of
from tilewright.inputs.product import Product
from tilewright.planning.classes import UNMEASURED, Boundaries, describe
from tilewright.planning.cost import Measured
from tilewright.planning.explain import NOT_MEASURED
from tilewright.planning.quick import HOST_ALONE, Bounds
from tilewright.remember import Shelf
from tilewright.tuning import crossover, tuned

# No launch of any device is cheaper than 64 x 64 x 64 in a BLAS (about 5 µs): never ask.
ALWAYS_HOST = 2 * 64**3

_PlanKey = tuple[Problem, Device, str | None, bool]
_plans: Shelf[_PlanKey, Plan] = Shelf("plans of products", most=8 << 20)
_PLAN_BYTES = 6000  # measured: a plan of three launches with its rejected alternatives
# Bounds, and whether they hold until somebody forgets them.
_bounds: Shelf[tuple[str, str | None], tuple[Bounds, bool]] = Shelf(
    "bounds of plain products", most=1 << 18
)


def problem_of(product: Product) -> Problem:
    """Sizes and strides as the device's kernels will see them."""
    views, device = product.views, product.device
    layout = backend_of(device).layout
    a, b, c = (layout(views[name], device) for name in "abc")
    (m, n), k = views["c"].shape[-2:], views["a"].shape[-1]
    return Problem(
        m,
        n,
        k,
        *_dense(m, k, a.strides),
        *_dense(k, n, b.strides),
        *_dense(m, n, c.strides),
        dtype=product.dtype,
        accumulate=product.sums,
        bias="bias" in views,
        activation=product.activation,
        aligned=a.aligned and b.aligned,
    )


def _dense(rows: int, cols: int, strides: tuple[int, ...]) -> tuple[int, int]:
    """Strides of dimensions of one element mean nothing; they become those of a dense matrix."""
    row, col = strides[-2:]
    return (cols if rows <= 1 else row), (1 if cols <= 1 else col)


def plan_problem(
    problem: Problem, device: Device, kernel: str | None = None, host_operands: bool = True
) -> Plan:
    """What `matmul` does with a problem: planned once, with all that was measured and tuned."""
    key = (problem, device, kernel, host_operands)
    return _plans.found(key, lambda: _plan_problem(*key), lambda _: _PLAN_BYTES)


def _plan_problem(
    problem: Problem, device: Device, kernel: str | None, host_operands: bool
) -> Plan:
    available = backend_of(device).kernels(device)
    wanted = None if kernel is None else named(available, kernel, device)
    if problem.m == 0 or problem.n == 0:
        return plan_host(problem, device, "the result is empty: nothing is computed")
    priors = backend_of(device).priors(device)
    if wanted is not None:
        boundaries = boundaries_of(device, problem)
        found = tuned.lookup(problem, device, (wanted,), priors, boundaries)
        forced = plan_kernel(problem, device, wanted, tuned=found.get(wanted.name))
        return replace(forced, shape_class=describe(problem, boundaries))
    if device.backend == "host":
        return plan_host(problem, device, "the host is the device of this call")
    if problem.dtype in COMPLEX:
        return plan_host(problem, device, NO_COMPLEX)
    if host_operands and problem.flops <= ALWAYS_HOST:
        return plan_host(problem, device, "too small for any launch to pay")
    measured = measured_for(device, problem, host_operands)
    if measured is None and host_operands and is_measured(device, problem):
        return plan_host(problem, device, NOT_MEASURED)
    boundaries = measured.boundaries if measured is not None else UNMEASURED
    return plan(
        problem,
        device,
        available,
        priors=priors,
        measured=measured,
        host_operands=host_operands,
        tuned=tuned.lookup(problem, device, available, priors, boundaries),
    )


def learns(problem: Problem, device: Device, kernel: str | None) -> bool:
    """Whether such a product measures the device, or could contradict what was measured."""
    return kernel is None and is_measured(device, problem) and problem.flops > ALWAYS_HOST


def is_settled(found: Plan) -> bool:
    """Whether the next product that learns would follow the same plan."""
    device = found.device
    backend = backend_of(device)
    priors = backend.priors(device)
    return crossover.settled(device, backend, found.problem.dtype, priors)


def known_bounds(char: str, named: str | None) -> Bounds | None:
    """What tells at once that a plain product is the host's; None before the first is planned.

    By the dtype's character ("f", "d") and the device that the environment names. None, too, for a
    product that may measure a device: those go the long way.
    """
    bounds, settled = _bounds.get((char, named)) or (None, True)
    if settled or crossover.is_quiet():
        return bounds
    _bounds.drop((char, named))
    return None


def keep_bounds(found: Plan, learns: bool) -> None:
    """Have `known_bounds` answer for the next plain products of this one's dtype."""
    problem, device = found.problem, found.device
    key = (np.dtype(problem.dtype).char, settings.device())
    if key in _bounds:
        return
    if device.backend == "host":
        _bounds.keep(key, (HOST_ALONE, True))
    elif learns:
        measured, bounds = measured_for(device, problem, True), HOST_ALONE
        if measured is not None:
            backend = backend_of(device)
            kernels, priors = backend.kernels(device), backend.priors(device)
            ratios = tuned.least_ratios(problem, device, kernels, priors)
            bounds = Bounds.of(measured, problem.itemsize, ratios)
        _bounds.keep(key, (bounds, is_settled(found)), size=4000)


def forget_plans() -> None:
    """Plan anew from what the store holds by now: after tuning in this process."""
    tuned.forget()
    _plans.clear()
    _bounds.clear()


def boundaries_of(device: Device, problem: Problem) -> Boundaries:
    """Those of the device where they were measured; nothing is measured for them."""
    backend = backend_of(device)
    known = crossover.known(device, backend, problem.dtype, backend.priors(device))
    return UNMEASURED if known is None else known.boundaries


def measured_for(device: Device, problem: Problem, host_operands: bool) -> Measured | None:
    """The curves of the device where they decide something, as far as they are known by now."""
    if not is_measured(device, problem) or (host_operands and problem.flops <= ALWAYS_HOST):
        return None
    backend = backend_of(device)
    return crossover.known(device, backend, problem.dtype, backend.priors(device))


def is_measured(device: Device, problem: Problem) -> bool:
    """Whether there are, or will be, curves for the problem's dtype on the device."""
    return device.backend != "host" and problem.dtype in device.dtypes


crossover.on_change(forget_plans)
remember.forgets(forget_plans)
