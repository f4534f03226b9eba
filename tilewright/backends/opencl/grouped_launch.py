"""A bound batch on an OpenCL device: its tables, its kernels' arguments, and what enqueues them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.backends.opencl.grouped_tables import Table, Tables
from tilewright.backends.opencl.memory import device_memory
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import Session, guarded, kernels, pyopencl
from tilewright.engines.grouped import GroupedOperands
from tilewright.facts.kernel import Launch

Launches = list[tuple[Launch, list[Any]]]  # with the arguments of each
_KERNEL_BYTES = 8 << 10  # of a kernel object with its arguments


class Arguments:
    """Tables where kernels read them, and the argument lists made of them."""

    def __init__(self, session_: Session, tables: Tables, operands: GroupedOperands) -> None:
        self.session = session_
        self.tables = [_resident(session_, tables.problems), _resident(session_, tables.scalars)]
        self.tiles = _resident(session_, tables.tiles)
        bases = operands.bases
        # In pointer mode the bases are never read; any memory will do as an argument.
        self.bases = [base.memory.buffer for base in bases] if bases else self.tables[:1] * 4
        self.parts: list[Any] = []
        if len(tables.pieces):
            size = tables.scratch_elements * tables.scalars.dtype.itemsize
            cl = pyopencl()
            with device_memory(session_.device, size):
                scratch = cl.Buffer(session_.context, cl.mem_flags.READ_WRITE, size)
            lists = (tables.part_tiles, tables.splits, tables.pieces)
            self.parts = [scratch, *(_resident(session_, table) for table in lists)]

    def multiply(self, *numbers: int) -> list[Any]:
        """Tiles of whole products; the numbers say which."""
        return [*self.tables, self.tiles, *map(np.int32, numbers), *self.bases]

    def multiply_parts(self, first: int) -> list[Any]:
        """Tiles of parts from `first` on, into scratch."""
        scratch, tiles = self.parts[:2]
        a, b, _, bias = self.bases
        return [*self.tables, tiles, np.int32(first), a, b, scratch, bias]

    def add_parts(self) -> list[Any]:
        """All pieces of all cut products."""
        scratch, _, splits, pieces = self.parts
        _, _, c, bias = self.bases
        return [*self.tables, splits, pieces, np.int32(0), scratch, c, bias]


class Bound:
    """Prepared launches. Holds every table and operand for as long as it lives.

    All launches of a kind share one kernel object, as making one costs as much as a small batch;
    whoever finds another's arguments in it sets its own, under the session's lock.
    """

    def __init__(self, session_: Session, launches: Launches, held: Any, *, wait: bool) -> None:
        self.session = session_
        self.launches = [part for part in launches if part[0].global_size[0]]
        self.held = held
        self.wait = wait

    def __call__(self) -> None:
        """Launch, and wait where the host's memory is written."""
        try:
            self.begin()
            self.end()
        except BaseException:
            self.end()
            raise

    def begin(self) -> None:
        """Launch; until `end` the driver's other threads work alone."""
        with self.session.turn():
            self.session.begun.add(self)
            self.enqueue()
            guarded(self.session, self.session.queue.flush)

    def end(self) -> None:
        """Wait where the host's memory is written. For whoever began, whatever was raised since."""
        try:
            if self.wait and self.launches:
                guarded(self.session, self.session.queue.finish)
        finally:
            self.session.begun.discard(self)

    def enqueue(self) -> list[Any]:
        """The events of all launches. The caller holds the session's lock."""
        try:
            events = [
                guarded(self.session, partial(self._enqueue, launch, arguments))
                for launch, arguments in self.launches
            ]
            if events and not self.wait:
                self.session.hold(events[-1], (self.held, self.launches))
        except BaseException:  # nothing holds the tables that kernels read
            self.session.queue.finish()
            raise
        return events

    def _enqueue(self, launch: Launch, arguments: list[Any]) -> Any:
        shared = kernels.found(
            (self.session, launch.program, launch.defines),
            lambda: SharedKernel(kernel_of(self.session, launch)),
            lambda _: _KERNEL_BYTES,
        )
        if shared.owner is not arguments:
            # One by one: set_args() would compile a Python function for each new kernel object.
            shared.owner = None  # until all are set: Ctrl-C may come between two
            for index, value in enumerate(arguments):
                shared.kernel.set_arg(index, value)
            shared.owner = arguments
        return pyopencl().enqueue_nd_range_kernel(
            self.session.queue, shared.kernel, launch.global_size, launch.local_size
        )


@dataclass(slots=True)
class SharedKernel:
    """A kernel object and whose arguments it holds."""

    kernel: Any
    owner: Any = None


def _resident(session_: Session, table: Table) -> Any:
    """A table where kernels read it: in place with system SVM, copied once elsewhere."""
    cl = pyopencl()
    if session_.device.has("svm_system"):
        return cl.SVM(table)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(
        session_.context, flags, hostbuf=table if table.size else np.zeros(4, np.int32)
    )
