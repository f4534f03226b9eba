"""The contract of a back end: what the rest of the project may ask of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.arrays.array import Memory
from tilewright.arrays.views import View
from tilewright.engines.grouped import GroupedKernel
from tilewright.facts.device import Device
from tilewright.facts.kernel import Kernel, Plan, Priors
from tilewright.facts.scalars import Scalars


@dataclass(frozen=True, slots=True)
class Layout:
    """Strides in elements, and whether every matrix starts at a multiple of 16 bytes."""

    strides: tuple[int, ...]
    aligned: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run: by the device's events, by the wall clock, and of processor time."""

    events: float | None
    wall: float
    cpu: float

    @classmethod
    def of(
        cls, work: Callable[[], object], events: Callable[[], float | None] = lambda: None
    ) -> Timing:
        """Both clocks of this process around a call, and what `events` says after it."""
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return cls(events(), wall, cpu)


class Backend(Protocol):
    """What the rest of the project may ask of a back end; one without kernels says no more."""

    name: str
    takes_host_arrays: bool = True  # a GPU of torch's takes those that lie on it alone

    def __hash__(self) -> int:
        """Back ends are singletons, and keys of caches."""
        return id(self)

    def devices(self) -> tuple[Device, ...]:
        """Every device, best first."""

    def kernels(self, device: Device) -> tuple[Kernel, ...]:
        """The kernels that could run there; `why_not` says which problems they take."""
        return ()

    def priors(self, device: Device) -> Priors:
        """What the vendor rules say of the device."""
        return Priors()

    def grouped(self, device: Device, dtype: str) -> GroupedKernel | None:
        """The kernel for variable-size batches; None where the device has none for this dtype."""
        return None

    def allocate(self, size: int, device: Device, way: str, source: Any = None) -> Memory:
        """`size` bytes in one of the ways of `settings.MEMORY_WAYS`, filled from `source`."""

    def layout(self, view: View, device: Device) -> Layout:
        """How `view` will lie when a kernel reads it."""
        return Layout(view.strides, aligned=False)

    def run(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> None:
        """Compute into views["c"]; returns when host memory holds the result."""

    def time(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> Timing:
        """Run once more, operands in place, and say how long it took."""
