"""The OpenCL back end: the methods of `Backend`, each handing to the file that knows how."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from tilewright.backends import Layout, Scalars, Timing
from tilewright.backends.grouped import GroupedKernel
from tilewright.backends.opencl import grouped, kernels, launch, memory, runtime
from tilewright.backends.opencl.program import KERNELS
from tilewright.backends.opencl.rules import preferences
from tilewright.device import Device
from tilewright.kernel import Kernel, Plan, Priors
from tilewright.operands import View


class OpenCL:
    """Stateless; sessions live in runtime.py."""

    name = "opencl"

    def devices(self) -> tuple[Device, ...]:
        """Every device of every driver, best first."""
        return tuple(device for device, _ in runtime.found())

    def kernels(self, device: Device) -> tuple[Kernel, ...]:
        """One a stem in kernels/."""
        return _kernels()

    def priors(self, device: Device) -> Priors:
        """Kernels in the rules' order, and each rule that spoke in a line."""
        prior = preferences(device)
        notes = tuple(f"{rule.name}: {rule.reason} ({rule.source})" for rule in prior.rules)
        return Priors(prior.kernels, notes, _digest())

    def grouped(self, device: Device, dtype: str) -> GroupedKernel | None:
        """`grouped_panel` on CPUs, `grouped` elsewhere."""
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
    sources = sorted(path for path in KERNELS.iterdir() if path.suffix in (".cl", ".clh", ".py"))
    content = b"".join(path.read_bytes() for path in sources)
    return hashlib.sha256(content).hexdigest()[:16]
