"""Products of networks on an OpenCL device: its kernels by their curves, and the host's engines.

Values lie in the host's memory there, so that both take them, and the fewest predicted seconds win.
Until the device is measured its kernels say so, and the host multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.arrays.views import view_host
from tilewright.backends.host.products import PRODUCT_ENGINES
from tilewright.calls.dense_plan_host import measured_for
from tilewright.engines.backend import Layout
from tilewright.engines.dense import Lowered, planned_by
from tilewright.engines.product import Matrices, ProductEngine, ProductOperands, ProductWork
from tilewright.facts.device import Device
from tilewright.facts.kernel import Kernel
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars
from tilewright.facts.verdict import Proposal
from tilewright.inputs.devices import backend_of, host
from tilewright.tuning import tuned

_LATER = "not measured on this device yet; tilewright.matmul does it as it runs"


@dataclass(frozen=True, slots=True)
class OnKernel:
    """A kernel of the device's, asked for a network's product."""

    kernel: Kernel

    @property
    def name(self) -> str:
        """The kernel's own."""
        return self.kernel.name

    def why_not(self, work: ProductWork, device: Device) -> str | None:
        """What the kernel says, or that nothing was measured."""
        problem = _problem(work, device)
        if work.dtype not in device.dtypes:
            return f"dtype={work.dtype!r}: {device.name} has {', '.join(device.dtypes)}"
        asked = self._asked(problem, device)
        return _LATER if asked is None else asked.why_not(problem, device)

    def propose(self, work: ProductWork, device: Device) -> Proposal:
        """By its curve, one product after another."""
        problem = _problem(work, device)
        asked = self._asked(problem, device)
        assert asked is not None
        found = asked.propose(problem, device)
        seconds = None if found.seconds is None else found.seconds * work.count
        plan = planned_by(problem, found)
        return replace(found, seconds=seconds, decisions=(work, plan))

    def bind(self, proposal: Proposal, operands: ProductOperands) -> Callable[[], None]:
        """The plan on these arrays."""
        work, plan = proposal.decisions
        arrays = {"a": operands.a, "b": operands.b, "c": operands.out}
        if operands.bias is not None:
            arrays["bias"] = operands.bias
        views = {name: view_host(array) for name, array in arrays.items()}
        scalars, backend = Scalars(work.alpha, work.beta), backend_of(proposal.device)

        def launch() -> None:
            if operands.added is not None:
                np.copyto(operands.out, operands.added)
            backend.run(plan, views, scalars)

        return launch

    def _asked(self, problem: Problem, device: Device) -> Lowered | None:
        """The kernel with what is known of the device."""
        measured = measured_for(device, problem, True)
        if measured is None:
            return None
        priors = backend_of(device).priors(device)
        bounds = measured.boundaries
        found = tuned.lookup(problem, device, (self.kernel,), priors, bounds)
        return Lowered(self.kernel, measured, True, found.get(self.name))


@dataclass(frozen=True, slots=True)
class OnHost:
    """An engine of the host's, where another device was named."""

    engine: ProductEngine

    @property
    def name(self) -> str:
        """The engine's own."""
        return self.engine.name

    def why_not(self, work: ProductWork, device: Device) -> str | None:
        """What it says of the host."""
        return self.engine.why_not(work, host())

    def propose(self, work: ProductWork, device: Device) -> Proposal:
        """What it would do on the host."""
        return self.engine.propose(work, host())

    def bind(self, proposal: Proposal, operands: ProductOperands) -> Callable[[], None]:
        """As there."""
        return self.engine.bind(proposal, operands)


def product_engines(device: Device) -> tuple[ProductEngine, ...]:
    """The device's kernels, then the host's engines."""
    kernels = backend_of(device).kernels(device)
    return (*map(OnKernel, kernels), *map(OnHost, PRODUCT_ENGINES))


def _problem(work: ProductWork, device: Device) -> Problem:
    """Sizes and steps as the device's kernels will see them."""
    layout = backend_of(device).layout
    a, b, c = (layout(view_host(_shown(x, work.dtype)), device) for x in (work.a, work.b, work.c))
    m, n, k = work.sizes
    sums = "float64" if work.dtype == "float64" else "float32"
    return Problem(
        m,
        n,
        k,
        *_two(a),
        *_two(b),
        *_two(c),
        dtype=work.dtype,
        accumulate=sums,
        bias=work.bias,
        activation=work.activation,
        aligned=a.aligned and b.aligned,
    )


def _two(layout: Layout) -> tuple[int, int]:
    """Elements from one row and column to the next."""
    row, column = layout.strides[-2:]
    return row, column


def _shown(one: Matrices, dtype: str) -> NDArray:
    """An array of these sizes and steps that lies as planned memory does, and is never read."""
    kind = np.dtype(dtype)
    room = np.empty(64 // kind.itemsize * 2, kind)
    first = -room.ctypes.data % 64 // kind.itemsize
    steps = tuple(step * kind.itemsize for step in one.steps)
    found: NDArray = np.lib.stride_tricks.as_strided(room[first:], one.sizes, steps)
    return found
