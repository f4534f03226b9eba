"""A made-up OpenCL device whose memory is its own: a map copies, as drivers of phones may do it.

Buffers "on the host's memory" are copies of it, made when the buffer is; mapping copies from the
device into that memory, unmapping copies back what was mapped for writing. Kernels, queues and all
else are the real driver's, so that the real launch code runs, and whatever it forgets to map, or to
map for the right direction, is missing in the result.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np


class OwnMemory:
    """Stands for the pyopencl module in the back end's memory.py."""

    def __init__(self, real: ModuleType) -> None:
        self._real = real
        self._hosts: dict[int, Any] = {}
        self.maps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def Buffer(self, context: Any, flags: int, size: int = 0, hostbuf: Any = None) -> Any:  # noqa: N802 (pyopencl's name)
        cl = self._real
        given = cl.mem_flags.USE_HOST_PTR | cl.mem_flags.ALLOC_HOST_PTR | cl.mem_flags.COPY_HOST_PTR
        own = flags & ~given
        if hostbuf is None:
            buffer = cl.Buffer(context, own, size)
            self._hosts[buffer.int_ptr] = np.full(size, 0xFF, np.uint8)
            return buffer
        buffer = cl.Buffer(context, own | cl.mem_flags.COPY_HOST_PTR, hostbuf=hostbuf.copy())
        on_host = flags & cl.mem_flags.USE_HOST_PTR
        host = (
            hostbuf.reshape(-1).view(np.uint8)
            if on_host
            else np.full(hostbuf.nbytes, 0xFF, np.uint8)
        )
        self._hosts[buffer.int_ptr] = host
        return buffer

    def enqueue_map_buffer(
        self, queue: Any, buffer: Any, flags: int, offset: int, size: int, dtype: Any
    ) -> tuple[Any, None]:
        self.maps += 1
        host = self._hosts[buffer.int_ptr][offset : offset + size]
        if flags & self._real.map_flags.READ:
            device = np.empty(size, np.uint8)
            self._real.enqueue_copy(queue, device, buffer, src_offset=offset, is_blocking=True)
            np.copyto(host, device)
        return _View(host, _Mapped(self._real, buffer, host, offset, flags)), None


class _View(np.ndarray):
    """A view whose base hands the memory back, as pyopencl's maps have it."""

    _mapped: Any

    def __new__(cls, host: Any, mapped: Any) -> Any:
        view = host.view(cls)
        view._mapped = mapped
        return view

    @property
    def base(self) -> Any:
        return self._mapped


class _Mapped:
    def __init__(self, real: Any, buffer: Any, host: Any, offset: int, flags: int) -> None:
        self._real, self._buffer, self._host = real, buffer, host
        self._offset, self._flags = offset, flags

    def release(self, queue: Any) -> None:
        if self._flags & self._real.map_flags.WRITE:
            self._real.enqueue_copy(
                queue, self._buffer, self._host, dst_offset=self._offset, is_blocking=True
            )
