"""Runs a product on the host or an OpenCL device: checked, planned, computed, learnt from."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from tilewright.calls import dense_plan_host as plans
from tilewright.engines.choose import named
from tilewright.engines.dense import plan_kernel
from tilewright.errors import BuildError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Plan
from tilewright.inputs import place_host
from tilewright.inputs.devices import backend_of, host
from tilewright.inputs.product import Product, checked
from tilewright.planning.cost import Measured, device_seconds, epilogue_seconds
from tilewright.planning.explain import explain as explain_plan
from tilewright.tuning import crossover, tuned


@dataclass(frozen=True, slots=True)
class Call:
    """A checked product with its plan; `learns` where its time may tell something of the device."""

    product: Product
    plan: Plan
    learns: bool

    def run(self) -> Any:
        """Compute, unless the result is empty, and hand the result over."""
        product, plan = self.product, self.plan
        if 0 not in product.views["c"].shape:
            device = host() if plan.kernel == "host" else plan.device
            began = time.perf_counter()
            self._multiply(device)
            if self.learns:
                seconds, own = time.perf_counter() - began, backend_of(plan.device)
                crossover.after(plan, own, seconds, host_operands=product.place.is_host)
        return product.result()

    def _multiply(self, device: Device) -> None:
        """By the plan; by the kernel's own configuration where a tuned one does not build."""
        backend, plan = backend_of(device), self.plan
        views, scalars = self.product.views, self.product.scalars
        try:
            backend.run(plan, views, scalars)
        except BuildError as error:
            if not plan.origin.startswith(tuned.ORIGIN):
                raise
            kernel = named(backend.kernels(device), plan.kernel, device)
            boundaries = plans.boundaries_of(device, plan.problem)
            why = str(error)[:200]
            tuned.refuse(plan.problem, device, kernel, backend.priors(device), boundaries, why)
            plans.forget_plans()
            backend.run(plan_kernel(plan.problem, device, kernel), views, scalars)

    @property
    def settled(self) -> bool:
        """Whether the next call of this kind would follow the same plan."""
        return not self.learns or plans.is_settled(self.plan)

    def measured(self) -> Measured | None:
        """The curves that the plan was made from."""
        problem = self.plan.problem
        return plans.measured_for(self.plan.device, problem, self.product.place.is_host)


def prepare(a: Any, b: Any, **options: Any) -> Call:
    """Check everything, then plan. Arguments and errors are those of `tilewright.matmul`."""
    product = checked(place_host.place_and_views, a, b, **options)
    device, kernel = product.device, product.kernel
    if kernel is not None and not isinstance(kernel, str):
        named(backend_of(device).kernels(device), kernel, device)  # raises
    problem = plans.problem_of(product)
    plan = plans.plan_problem(problem, device, kernel, product.place.is_host)
    return Call(product, plan, plans.learns(problem, device, kernel))


def explain(a: Any, b: Any, **options: Any) -> str:
    """What `tilewright.explain` says of arrays off a GPU."""
    call = prepare(a, b, **options)
    measured, chosen = call.measured(), call.plan
    if measured is not None and chosen.seconds is None:
        on_host = call.product.place.is_host
        seconds = device_seconds(chosen.step, chosen.problem, measured, host=on_host)
        if seconds is not None:
            seconds = seconds * chosen.ratio + epilogue_seconds(chosen.problem, chosen.device)
        chosen = replace(chosen, seconds=seconds)
    return explain_plan(chosen, measured, math.prod(call.product.views["c"].shape[:-2]))
