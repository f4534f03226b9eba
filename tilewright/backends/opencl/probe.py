"""Runs a kernel of probes/: compiled at its first run, timed by device events and the wall."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import Session, guarded, pyopencl
from tilewright.engines.backend import Timing
from tilewright.facts.device import Device
from tilewright.facts.kernel import Launch


class ProbeKernel:
    """`kernel(rounds)` runs it once; `arguments(out, rounds)` are what it takes.

    `out` is scratch with four bytes for every item.
    """

    def __init__(
        self,
        opened: Session,
        program: str,
        entry: str,
        defines: Mapping[str, int],
        global_size: tuple[int, int],
        local_size: tuple[int, int],
        arguments: Callable[[Any, int], Sequence[Any]],
    ) -> None:
        self.session = opened
        self.launch = Launch(program, entry, tuple(defines.items()), global_size, local_size, ())
        self.items = global_size[0] * global_size[1]
        self._arguments = arguments

    @cached_property
    def _kernel(self) -> Any:
        return kernel_of(self.session, self.launch)

    def enqueue(self, rounds: int) -> Any:
        """The event of one launch. The caller holds the session's lock."""
        out = self.session.scratch("probe", 4 * self.items)
        arguments = self._arguments(out, rounds)  # held: the kernel holds none before it is queued
        self._kernel.set_args(*arguments)
        return pyopencl().enqueue_nd_range_kernel(
            self.session.queue, self._kernel, self.launch.global_size, self.launch.local_size
        )

    def __call__(self, rounds: int) -> Timing:
        """One launch of so many rounds."""
        return timed(self.session, lambda: [self.enqueue(rounds)])


def own_cores(device: Device) -> int:
    """Cores of this machine that a kernel on the device keeps busy: a CPU's units, a GPU's none."""
    return device.compute_units if device.kind == "cpu" else 0


def timed(opened: Session, enqueue: Callable[[], Sequence[Any]]) -> Timing:
    """Whatever `enqueue` puts into the queue, until it is done: its events, and both clocks."""
    with opened.lock:
        opened.queue.finish()
        cpu, wall = time.process_time(), time.perf_counter()
        events = guarded(opened, enqueue)
        guarded(opened, opened.queue.finish)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        span = sum(event.profile.end - event.profile.start for event in events) * 1e-9
    return Timing(span if events else None, wall, cpu)
