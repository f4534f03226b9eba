"""`Array`: a dense array in memory that a back end owns, an OpenCL device's or the host's.

Made by `tilewright.empty` and `tilewright.asarray`. Arrays of other libraries: views.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.errors import OperandError
from tilewright.facts.device import Device

NDArray = npt.NDArray[Any]


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
            raise OperandError(f"{self!r}: it is mapped already; leave that `with` block first")
        flat = self.memory.map()
        try:
            count = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
            base = flat[:count].view(self.dtype)
            yield np.lib.stride_tricks.as_strided(
                base, self.shape, tuple(step * self.dtype.itemsize for step in self.strides)
            )
        finally:
            self.memory.unmap()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        with self.map() as view:
            return np.array(view, dtype=dtype)

    def __repr__(self) -> str:
        return f"<tilewright.Array {self.shape} {self.dtype} on {self.device.id}>"


def _c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))
