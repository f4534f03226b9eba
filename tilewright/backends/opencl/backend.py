"""The OpenCL back end as the rest of the project calls it; each method is in the file it names."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from tilewright.arrays.views import View
from tilewright.backends.opencl import grouped, kernels, launch, memory, runtime
from tilewright.backends.opencl.program import KERNELS, source
from tilewright.backends.opencl.rules import preferences
from tilewright.engines.backend import Layout, Timing
from tilewright.engines.grouped import GroupedKernel
from tilewright.facts.device import Device
from tilewright.facts.kernel import Kernel, Plan, Priors
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars

_SOURCES = (".cl", ".clh", ".py")
# Nothing of it lies as a kernel would like: every program that could be launched is.
_ODD = Problem(5, 7, 3, 1, 9, 1, 11, 2, 12)


class OpenCL:
    """Stateless; sessions live in runtime.py."""

    name = "opencl"
    takes_host_arrays = True

    def devices(self) -> tuple[Device, ...]:
        """Every device of every driver, best first."""
        return tuple(device for device, _ in runtime.found())

    def kernels(self, device: Device) -> tuple[Kernel, ...]:
        """One a stem in kernels/."""
        return _kernels()

    def priors(self, device: Device) -> Priors:
        """Kernels in the rules' order, and each rule that spoke of products in a line."""
        prior = preferences(device)
        spoke = [rule for rule in prior.rules if rule.is_of_products]
        notes = tuple(f"{rule.name}: {rule.reason} ({rule.source})" for rule in spoke)
        return Priors(prior.kernels, notes, _digest(), _digests(device))

    def grouped(self, device: Device, dtype: str) -> GroupedKernel | None:
        """`grouped_lanes` on CPUs, `grouped` elsewhere."""
        return grouped.grouped_of(device, dtype)

    def allocate(self, size: int, device: Device, way: str, source: Any = None) -> memory.Shared:
        """Device memory in one of the three host-pointer ways."""
        return memory.Shared(runtime.session(device), size, way, source)

    def layout(self, view: View, device: Device) -> Layout:
        """Strides after staging: unchanged unless a copy has to be made dense."""
        strides = memory.staged_strides(view, device)
        return Layout(strides, memory.is_aligned(view, strides, device))

    def run(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> None:
        """Stage, launch, fetch."""
        launch.run(plan, views, scalars)

    def time(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> Timing:
        """Run with events collected."""
        return launch.timed(plan, views, scalars)


@cache
def _kernels() -> tuple[Kernel, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(kernels.__path__))
    modules = (importlib.import_module(f"{kernels.__name__}.{name}") for name in names)
    return tuple(module.KERNEL for module in modules)


@cache
def _digest() -> str:
    paths = sorted(path for path in KERNELS.iterdir() if path.suffix in _SOURCES)
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


@cache
def _digests(device: Device) -> tuple[tuple[str, str], ...]:
    """One a kernel: of its declaration and every program that it launches, includes spliced in."""
    return tuple((kernel.name, _digest_of(kernel, device)) for kernel in _kernels())


def _digest_of(kernel: Kernel, device: Device) -> str:
    programs = {kernel.name}
    if kernel.why_not(_ODD, device) is None:
        steps = [kernel.lower(_ODD, device, one) for one in kernel.configs(_ODD, device)]
        programs |= {launch.program for step in steps for launch in step.launches}
    texts = [
        (KERNELS / f"{kernel.name}.py").read_text(encoding="utf-8"),
        *map(source, sorted(programs)),
    ]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]
