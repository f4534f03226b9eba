"""Runs a kernel of probes/: compiled at its first run, timed by device events and the wall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.backends.opencl.launch import clocked
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import Session, pyopencl
from tilewright.engines.backend import Timing
from tilewright.facts.device import Device
from tilewright.facts.kernel import Launch
from tilewright.remember import once


class ProbeKernel:
    """`kernel(rounds)` runs it once; `arguments(out, rounds)` are what it takes.

    `out` is scratch with four bytes for every item; a group has `group` of them, and there are as
    many `groups` across and down. The kernel stands in a program of its own name, or in `program`.
    """

    def __init__(
        self,
        opened: Session,
        entry: str,
        arguments: Callable[[Any, int], Sequence[Any]],
        groups: tuple[int, int] = (1, 1),
        group: int = 1,
        program: str | None = None,
        **defines: int,
    ) -> None:
        size = (groups[0] * group, groups[1])
        made = tuple(defines.items())
        self.session, self._arguments, self.items = opened, arguments, size[0] * size[1]
        self.launch = Launch(program or entry, entry, made, size, (group, 1), ())

    @once
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
        return clocked(self.session, lambda: [self.enqueue(rounds)])

    def again(self, rounds: int) -> Timing:
        """As many launches, of one round each."""
        return clocked(self.session, lambda: [self.enqueue(1) for _ in range(rounds)])


def own_cores(device: Device) -> int:
    """Cores of this machine that a kernel on the device keeps busy: a CPU's units, a GPU's none."""
    return device.compute_units if device.kind == "cpu" else 0
