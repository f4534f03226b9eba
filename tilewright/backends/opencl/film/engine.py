"""Motion between two pictures on an OpenCL device: both go in, kernels/film/ runs, one comes back.

    given      planes of both -> memory that host and device share where they can -> `taking`
    repeats    waits for one number
    found      `finding`
    between    `making`; planes of what was made out of shared memory

Everything stays on the device in between. A queue of its own: pictures of another engine on the
same device are copied while this one's are made (but with drivers that rules.toml lets have only
one). One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.opencl.film.calls import SHARE, Call, Calls
from tilewright.backends.opencl.film.cut import Cut, cut_of
from tilewright.backends.opencl.memory import device_memory
from tilewright.backends.opencl.program import kernel_of
from tilewright.backends.opencl.runtime import guarded, pyopencl, session
from tilewright.facts.device import Device
from tilewright.facts.kernel import Launch
from tilewright.planning.film import Sizes

_SHARED = ("samples", "out")  # by host and device


class FilmMotion:
    """Memory and launches for pictures of such sizes on one device."""

    def __init__(
        self, sizes: Sizes, device: Device, same: float, unsure: float, cut: Cut | None = None
    ) -> None:
        """`same` and `unsure`: mean difference that is none, deviation from which on is doubt.

        Raises DeviceError, DeviceMemoryError and BuildError where the device does not do it.
        """
        self._sizes, self._same = sizes, same
        self._session = session(device)
        self._kind = np.dtype(np.uint8 if sizes.bytes_each == 1 else np.uint16)
        with self._session.lock:
            guarded(self._session, lambda: self._prepare(cut or cut_of(device), unsure))

    def _prepare(self, cut: Cut, unsure: float) -> None:
        opened = self._session
        calls = Calls(self._sizes, cut, unsure)
        if (most := self._most(calls)) < cut.items:
            calls = Calls(self._sizes, cut.within(most), unsure)
        self._queue = opened.another_queue()
        self._memory = {name: self._buffer(name, size) for name, size in calls.parts.items()}
        self._shares: list[tuple[Any, int]] = []
        self._taking, self._finding, self._making = (
            [self._bound(call, calls) for call in part]
            for part in (calls.taking, calls.finding, calls.making)
        )

    def _most(self, calls: Calls) -> int:
        """Work-items that the device's compiler lets a group of patches have."""
        kernels = [self._kernel(name, calls) for name in ("tried", "searched")]
        return min(self._limit(kernel) for kernel in kernels)

    def _limit(self, kernel: Any) -> int:
        asked = pyopencl().kernel_work_group_info.WORK_GROUP_SIZE
        return int(kernel.get_work_group_info(asked, self._session.cl_device))

    def _kernel(self, name: str, calls: Calls) -> Any:
        launch = Launch(f"film/{name}", name, calls.defines(name), (1, 1), (1, 1), ())
        return kernel_of(self._session, launch)

    def _buffer(self, name: str, size: int) -> Any:
        cl, size = pyopencl(), max(size, 16)
        flags = cl.mem_flags.READ_WRITE
        with device_memory(self._session.device, size):
            if name in _SHARED:
                both = flags | cl.mem_flags.ALLOC_HOST_PTR
                return cl.Buffer(self._session.context, both, size)
            # What no kernel writes, as strokes beyond the picture, is 0.
            zeros = np.zeros(size, np.uint8)
            both = flags | cl.mem_flags.COPY_HOST_PTR
            return cl.Buffer(self._session.context, both, hostbuf=zeros)

    def _bound(self, call: Call, calls: Calls) -> tuple[Any, Any, Any]:
        """A kernel with its arguments, and the sizes of its launch."""
        kernel = self._kernel(call.kernel, calls)
        for place, value in enumerate(call.values):
            if value is SHARE:
                self._shares.append((kernel, place))
            elif isinstance(value, str):
                kernel.set_arg(place, self._memory[value])
            else:
                kernel.set_arg(place, (np.int32 if isinstance(value, int) else np.float32)(value))
        across, down = call.group
        while across > self._limit(kernel):
            across //= 2
        return kernel, call.size, (across, down)

    def given(self, first: Sequence[NDArray], second: Sequence[NDArray]) -> None:
        """Look at two pictures' planes; `between` then makes those between them."""

        def work() -> None:
            whole, memory = self._mapped("samples", pyopencl().map_flags.WRITE)
            starts = self._sizes.starts
            try:
                for planes, into in zip((first, second), whole.reshape(2, -1), strict=True):
                    for plane, begin, end in zip(planes, starts, starts[1:], strict=False):
                        np.copyto(into[begin:end].reshape(plane.shape), plane)
            finally:
                memory.release(self._queue)
            self._enqueue(self._taking)

        self._guarded(work)

    def repeats(self) -> bool:
        """Whether the two are the same, but for what coding left."""
        return float(self._number("most", np.float32)) < self._same * self._sizes.alike

    def found(self) -> None:
        """Find motion between the two, both ways, and what stands still."""
        self._guarded(lambda: self._enqueue(self._finding))

    def between(self, share: float, out: Sequence[NDArray]) -> float:
        """Write planes of the picture at a share of the time, 0 to 1; how much of it is unsure."""

        def work() -> None:
            for kernel, place in self._shares:
                kernel.set_arg(place, np.float32(share))
            self._enqueue(self._making)

        self._guarded(work)
        count = int(self._number("unsure", np.int32))
        flags = pyopencl().map_flags.READ
        whole, memory = guarded(self._session, lambda: self._mapped("out", flags))
        try:
            starts = self._sizes.starts
            for plane, begin, end in zip(out, starts, starts[1:], strict=False):
                np.copyto(plane, whole[begin:end].reshape(plane.shape))
        finally:
            with suppress(pyopencl().Error):
                memory.release(self._queue)
        return count / self._cells

    @property
    def _cells(self) -> int:
        down, across = self._sizes.cells
        return down * across

    def _guarded(self, work: Callable[[], None]) -> None:
        """Under the session's lock, which a forked child that cannot go on does not get."""
        with self._session.turn():
            guarded(self._session, work)

    def _enqueue(self, calls: Sequence[tuple[Any, Any, Any]]) -> None:
        enqueue = pyopencl().enqueue_nd_range_kernel
        for kernel, size, group in calls:
            enqueue(self._queue, kernel, size, group)
        self._queue.flush()

    def _mapped(self, name: str, flags: int) -> tuple[NDArray, Any]:
        """Samples in shared memory, once all that was enqueued is done; and what lets go of it."""
        self._queue.finish()  # here Intel's driver lets this thread work too
        count = self._memory[name].size // self._kind.itemsize
        count = min(count, (2 if name == "samples" else 1) * self._sizes.starts[-1])
        found, _ = pyopencl().enqueue_map_buffer(
            self._queue, self._memory[name], flags, 0, (count,), self._kind
        )
        return found, found.base

    def _number(self, name: str, kind: type[np.generic]) -> Any:
        """One number of the device's, once it is there."""
        found = np.empty(1, kind)

        def work() -> None:
            self._queue.finish()
            pyopencl().enqueue_copy(self._queue, found, self._memory[name])

        guarded(self._session, work)
        return found[0]
