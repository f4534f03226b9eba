"""`Array`: a dense array in memory that a back end owns, an OpenCL device's or the host's.

Made by `tilewright.empty` and `tilewright.asarray`. Arrays of other libraries: views.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tilewright.arrays.operators import product
from tilewright.errors import OperandError
from tilewright.facts.device import Device

NDArray = npt.NDArray[Any]
_CPU, _OPENCL = (1, 0), (4, 0)  # DLPack's numbers
_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # whether NumPy's DLPack has versions


class Memory(Protocol):
    """Memory that a back end owns; what `Array` stands on."""

    device: Device
    mapped: bool

    def map(self) -> NDArray:
        """The bytes as a one-dimensional NumPy array, until `unmap`."""

    def unmap(self) -> None:
        """Give the memory back to the device."""


class Array:
    """A dense array on a device: `with x.map() as view:` shows it as NumPy.

    Nothing is copied where the device shares the host's memory.

    Made by `tilewright.empty` and `tilewright.asarray`. While it is mapped no product may use it.
    `a @ b` is `tilewright.matmul(a, b)`, of this with another or with a NumPy array; `__dlpack__`
    shows it to other libraries.
    """

    def __init__(
        self,
        memory: Memory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.memory = memory
        self.shape = shape
        self.dtype = dtype
        self.strides = _c_strides(shape) if strides is None else strides

    @property
    def device(self) -> Device:
        """Where it lies."""
        return self.memory.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> Array:  # noqa: N802 (NumPy's name)
        """The same memory, dimensions reversed."""
        return Array(self.memory, self.shape[::-1], self.dtype, self.strides[::-1])

    @contextmanager
    def map(self) -> Iterator[NDArray]:
        """The array as a writable NumPy view; leaving the block hands it back to the device.

        Waits for products that are still computing it.
        """
        if self.memory.mapped:
            raise OperandError(f"{self!r}: it is mapped already; {FREE}")
        flat = self.memory.map()
        try:
            yield self._shown(flat)
        finally:
            self.memory.unmap()

    def _shown(self, flat: NDArray) -> NDArray:
        """The array in the bytes of its memory."""
        count = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        base = flat[:count].view(self.dtype)
        steps = tuple(step * self.dtype.itemsize for step in self.strides)
        return np.lib.stride_tricks.as_strided(base, self.shape, steps)

    def __matmul__(self, other: Any) -> Any:
        return product("matmul", self, other) if _multiplies(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return product("matmul", other, self) if _multiplies(other) else NotImplemented

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's array @ this one is a product here; every other function gets a NumPy copy."""
        ours = ufunc is np.matmul and method == "__call__" and not options
        if ours and all(map(_multiplies, inputs)):
            return product("matmul", *inputs)
        if any(isinstance(one, Array) for one in options.get("out", ())):
            return NotImplemented
        plain = (np.asarray(one) if isinstance(one, Array) else one for one in inputs)
        return getattr(ufunc, method)(*plain, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of device and its number: the host where that reaches the memory."""
        return _CPU if self._is_reached() else _OPENCL

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The array for another library, as the array API standard says (2024.12).

        Nothing is copied where the host reaches the memory: the host's own, and that of an OpenCL
        device that shares it, which stays mapped, so that no product takes it, until the last array
        made of it is gone. Waits for products that are still computing it.

        Memory that only a device reaches comes as a copy, and only where it is asked for with
        dl_device=(1, 0), as numpy.from_dlpack(x, device="cpu") does. Raises BufferError for that
        without it or with copy=False, for other devices, for a stream, and while it is mapped.
        """
        own = self.__dlpack_device__()
        target = own if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if stream is not None:
            raise BufferError(f"stream={stream!r}: accepted is None, as the host has no streams")
        if target != _CPU:
            wanted = "dl_device=(1, 0), the host"
            wanted += "" if own == _CPU else ", which copies: its memory is the device's own"
            raise BufferError(f"{self!r}, dl_device={dl_device}: accepted is {wanted}")
        if own != _CPU and copy is False:
            raise BufferError(
                f"{self!r}, copy=False: its memory is the device's own; accepted are None and True"
            )
        lent = _LENT.get(id(self.memory))
        if lent is None and self.memory.mapped:
            raise BufferError(f"{self!r}: it is mapped; {FREE}")
        shown = self._lent(lent) if own == _CPU else np.asarray(self)
        return _exported(shown.copy() if copy and own == _CPU else shown, max_version)

    def _is_reached(self) -> bool:
        """Whether the host reaches the memory itself."""
        device = self.device
        return device.backend == "host" or (
            device.backend == "opencl"
            and (device.has("unified_memory") or device.has("svm_system"))
        )

    def _lent(self, lent: _Lent | None) -> NDArray:
        """A view that keeps the memory, mapped where that means something, as long as it lives."""
        if lent is None:
            lent = _Lent(self.memory)
            if self.device.backend == "host":
                self.memory.unmap()
            else:
                _LENT[id(self.memory)] = lent
        return self._shown(np.asarray(lent))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        with self.map() as view:
            return np.array(view, dtype=dtype)

    def __repr__(self) -> str:
        return f"<tilewright.Array {self.shape} {self.dtype} on {self.device.id}>"


class _Lent:
    """Memory that others have views of: each has this for its base, and the last one unmaps it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.__array_interface__ = memory.map().__array_interface__

    def __del__(self) -> None:
        if self.memory.mapped and self.memory.device.backend != "host":
            self.memory.unmap()


# By the identity of the memory, which they keep.
_LENT: WeakValueDictionary[int, _Lent] = WeakValueDictionary()
FREE = "leave its `with` block, or drop what other libraries made of it by __dlpack__, first"


def _multiplies(other: Any) -> bool:
    return isinstance(other, Array | np.ndarray)


def _exported(shown: NDArray, max_version: tuple[int, int] | None) -> Any:
    """NumPy's capsule; one without a version, which every consumer takes, where NumPy has none."""
    if max_version is None or not _VERSIONED:
        return shown.__dlpack__()
    return shown.__dlpack__(max_version=max_version)


def _c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))
