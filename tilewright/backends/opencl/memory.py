"""Memory between host and device: shared where the device shares, copied where it must be.

A host array reaches a kernel in one of three ways, decided by the device's features:

    svm_system       the kernel gets the array's own address; nothing moves
    unified_memory   a buffer on the array's memory (USE_HOST_PTR), mapped once the product is done
    neither          a copy to the device, made dense first where the view has gaps, and one back
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.arrays.views import View
from tilewright.backends.opencl.runtime import Session, pyopencl
from tilewright.errors import DeviceMemoryError, OperandError
from tilewright.facts.device import Device


class Shared:
    """A buffer for `tilewright.empty` and `asarray`: map, run, map, without a copy where possible.

    `way` is "allocate" (the driver allocates memory that both sides can reach), "copy" (the driver
    copies `source` once) or "use" (the driver works in `source`'s own memory).
    """

    def __init__(self, session: Session, size: int, way: str, source: NDArray | None) -> None:
        cl = pyopencl()
        flags = cl.mem_flags
        self.session = session
        self.device = session.device
        self.mapped = False
        self.way = way
        self._view: Any = None
        self._kept = np.empty(size, np.uint8) if way == "use" and source is None else source
        with session.lock, device_memory(session.device, size):
            ways = {"use": flags.USE_HOST_PTR, "copy": flags.COPY_HOST_PTR}
            if way in ways and self._kept is not None and size:
                both = flags.READ_WRITE | ways[way]
                self.buffer = cl.Buffer(session.context, both, hostbuf=self._kept)
            else:
                both = flags.READ_WRITE | flags.ALLOC_HOST_PTR
                self.buffer = cl.Buffer(session.context, both, max(1, size))
        if way == "allocate" and source is not None and size:
            np.copyto(self.map(), source.reshape(-1).view(np.uint8))
            self.unmap()

    def __del__(self) -> None:
        # What was enqueued may still be at work in memory that goes with this object.
        if getattr(self, "way", "") == "use" and hasattr(self, "buffer") and not self.session.lost:
            self.session.queue.finish()

    def __reduce__(self) -> Any:
        raise OperandError(
            f"array on {self.device.id!r}: neither copied by copy.deepcopy nor pickled; accepted is"
            " the NumPy array that numpy.asarray gives (of a batch, .to('host'))"
        )

    def map(self) -> NDArray:
        """The bytes, once everything enqueued before has run."""
        cl = pyopencl()
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        with self.session.lock:
            self._view, _ = cl.enqueue_map_buffer(
                self.session.queue, self.buffer, flags, 0, self.buffer.size, np.uint8
            )
        self.mapped = True
        view: NDArray = self._view
        return view

    def unmap(self) -> None:
        """Hand the memory back; later launches of the queue see what was written."""
        view, self._view = self._view, None
        self.mapped = False
        view.base.release(self.session.queue)


@contextmanager
def device_memory(device: Device, size: int) -> Iterator[None]:
    """Turns the driver's out-of-memory errors into one DeviceMemoryError that names the size."""

    def error(why: object) -> DeviceMemoryError:
        return DeviceMemoryError(
            f"device={device.id!r}: {device.name} cannot give {size} bytes ({why});"
            " use device='host' or a smaller product"
        )

    if device.max_allocation and size > device.max_allocation:
        raise error(f"its largest allocation is {device.max_allocation}")
    try:
        yield
    except (pyopencl().MemoryError, MemoryError) as raised:
        raise error(raised) from None


@dataclass(slots=True)
class Staged:
    """An operand where a kernel reads it. `fetch` brings a result back to the host's array.

    `address` is that of host memory which the kernel gets as it is, None for a device's buffer.
    """

    argument: Any
    offset: int
    fetch: Callable[[], None] | None = None
    address: int | None = None

    @property
    def pair(self) -> tuple[Any, Any]:
        """The memory and the offset as arguments of a kernel."""
        return self.argument, np.int64(self.offset)


def staged_strides(view: View, device: Device) -> tuple[int, ...]:
    """Element strides of `view` once it is staged; broadcast dimensions keep stride 0."""
    if not view.host or _reaches_host(device) or _is_dense(view):
        return view.strides
    strides, step = [], 1
    for size, old in zip(reversed(view.shape), reversed(view.strides), strict=True):
        strides.append(0 if old == 0 else step)
        step *= 1 if old == 0 else max(1, size)
    return tuple(reversed(strides))


def is_aligned(view: View, strides: tuple[int, ...], device: Device) -> bool:
    """Whether every matrix of the staged view starts at a multiple of 16 bytes."""
    item = view.dtype.itemsize
    if not view.host:
        start = view.offset * item
    elif _reaches_host(device):
        start = view.memory.__array_interface__["data"][0]
    else:
        # Buffers start aligned; a raw copy of reversed rows starts further in.
        start = _extent(view)[2] * item if _is_dense(view) else 0
    return start % 16 == 0 and all(step * item % 16 == 0 for step in strides[:-2])


def stage(session: Session, view: View, *, read: bool, write: bool) -> Staged:
    """Make `view` reachable by a kernel on the session's device."""
    if not view.host:
        return Staged(view.memory, view.offset)
    if session.device.has("svm_system"):
        low, size, offset = _extent(view)
        return Staged(pyopencl().SVM(_bytes_at(low, size)), offset, address=low)
    if session.device.has("unified_memory"):
        return _stage_shared(session, view, write)
    return _stage_copied(session, view, read, write)


def _stage_shared(session: Session, view: View, write: bool) -> Staged:
    cl = pyopencl()
    low, size, offset = _extent(view)
    flags = cl.mem_flags.USE_HOST_PTR
    flags |= cl.mem_flags.READ_WRITE if write else cl.mem_flags.READ_ONLY
    host = _bytes_at(low, size)
    with device_memory(session.device, size):
        buffer = cl.Buffer(session.context, flags, hostbuf=host)

    def fetch() -> None:
        # Mapping is what makes the driver write back if it kept the data elsewhere.
        mapped, _ = cl.enqueue_map_buffer(
            session.queue, buffer, cl.map_flags.READ, 0, size, np.uint8
        )
        mapped.base.release(session.queue)

    return Staged(buffer, offset, fetch if write else None)


def _stage_copied(session: Session, view: View, read: bool, write: bool) -> Staged:
    cl = pyopencl()
    base = _without_broadcast(view)
    dense = _is_dense(view)
    low, size, offset = _extent(view) if dense else (0, base.nbytes, 0)
    with device_memory(session.device, size):
        buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, max(1, size))
    if read:
        source = _bytes_at(low, size) if dense else np.ascontiguousarray(base)
        cl.enqueue_copy(session.queue, buffer, source, is_blocking=True)

    def fetch() -> None:
        if dense:
            cl.enqueue_copy(session.queue, _bytes_at(low, size), buffer, is_blocking=True)
            return
        packed = np.empty(base.shape, base.dtype)
        cl.enqueue_copy(session.queue, packed, buffer, is_blocking=True)
        np.copyto(base, packed)

    return Staged(buffer, offset, fetch if write else None)


def _reaches_host(device: Device) -> bool:
    return device.has("svm_system") or device.has("unified_memory")


def _is_dense(view: View) -> bool:
    """Whether the elements fill their stretch of memory, in whatever order and direction."""
    pairs = sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1)
    step = 1
    for stride, size in pairs:
        if stride == 0:
            continue
        if stride != step:
            return False
        step *= size
    return True


def _without_broadcast(view: View) -> NDArray:
    index = tuple(
        slice(0, 1) if stride == 0 else slice(None)
        for stride, size in zip(view.strides, view.shape, strict=True)
    )
    array: NDArray = view.memory[index]
    return array


def _extent(view: View) -> tuple[int, int, int]:
    """Address of the lowest byte, bytes up to the highest, and the first element's offset."""
    item = view.dtype.itemsize
    reach = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    below = -sum(step for step in reach if step < 0)
    above = sum(step for step in reach if step > 0)
    address = view.memory.__array_interface__["data"][0]
    return address - below * item, (below + above + 1) * item, below


def _bytes_at(address: int, size: int) -> NDArray:
    """The memory there as bytes. The caller's array keeps it alive for the length of the call."""
    memory: Any = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(memory, np.uint8)
