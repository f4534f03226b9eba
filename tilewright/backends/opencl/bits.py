"""One-bit matrices on OpenCL devices: `PLACE` packs and allocates them, and names their engines.

They are `tilewright.Array`s and pyopencl arrays; operands in the host's memory are staged as
everywhere. The engines are in bits_engines.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.array import Array, NDArray
from tilewright.backends.opencl import BACKEND
from tilewright.backends.opencl.bits_engines import ENGINES, TYPES
from tilewright.backends.opencl.runtime import foreign_session
from tilewright.engines.bits import BitEngine, BitPlace
from tilewright.errors import DtypeError, OperandError
from tilewright.facts.device import Device


class OpenCLPlace:
    """`tilewright.Array` on OpenCL devices, and pyopencl arrays."""

    def takes(self, value: Any) -> bool:
        """Whether the array is one of the two."""
        if isinstance(value, Array):
            return value.device.backend == "opencl"
        return type(value).__module__ == "pyopencl.array" and hasattr(value, "base_data")

    def device(self, value: Any) -> Device:
        """Its own device."""
        if isinstance(value, Array):
            return value.device
        if value.queue is None:
            raise OperandError("x.queue=None: accepted are arrays with a queue (x.with_queue)")
        return foreign_session(value.queue.context, value.queue).device

    def engines(self, device: Device) -> tuple[BitEngine, ...]:
        """All four kernels."""
        return ENGINES

    def pack(self, value: Any, axis: int, zero: int | None) -> tuple[Any, None]:
        """On the host, which shares the memory of CPUs and phones; a copy each way elsewhere."""
        if np.dtype(value.dtype).kind not in "biuf":
            raise DtypeError(f"x.dtype={value.dtype}: accepted are bool, integers and floats")
        words, _ = _host().pack(self._values(value), axis, zero)
        return self._beside(words, value), None

    def counts(self, words: Any) -> Any:
        """Counted on the host."""
        return self._beside(_host().counts(self.to_host(words)), words)

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """Device memory beside `like`."""
        wanted = np.dtype(TYPES[dtype])
        if not isinstance(like, Array):
            import pyopencl.array

            return pyopencl.array.empty(like.queue, shape, wanted)
        size = int(np.prod(shape, dtype=object)) * wanted.itemsize
        return Array(BACKEND.allocate(size, like.device, "allocate"), shape, wanted)

    def vector(self, value: Any, dtype: str, like: Any) -> Any:
        """A NumPy vector, staged with each run: a few kilobytes."""
        return np.ascontiguousarray(value, np.dtype(dtype))

    def to_host(self, words: Any) -> NDArray:
        """A copy."""
        return np.ascontiguousarray(self._values(words))

    def from_host(self, words: NDArray, device: Device) -> Array:
        """A copy on the device."""
        dense = np.ascontiguousarray(words)
        held = BACKEND.allocate(dense.nbytes, device, "allocate", dense)
        return Array(held, dense.shape, dense.dtype)

    def reshape(self, value: Any, shape: tuple[int, ...]) -> Any:
        """The same memory."""
        if tuple(value.shape) == shape:
            return value
        if isinstance(value, Array):
            return Array(value.memory, shape, value.dtype)
        return value.reshape(shape)

    def _values(self, value: Any) -> NDArray:
        array: NDArray = np.asarray(value) if isinstance(value, Array) else value.get()
        return array

    def _beside(self, values: NDArray, like: Any) -> Any:
        if isinstance(like, Array):
            return self.from_host(values, like.device)
        import pyopencl.array

        return pyopencl.array.to_device(like.queue, np.ascontiguousarray(values))


PLACE: BitPlace = OpenCLPlace()


def _host() -> BitPlace:
    from tilewright.backends import places

    return places()["host"]
