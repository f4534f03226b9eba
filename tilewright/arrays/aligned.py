"""The host's memory at cache lines: new arrays, and several matrices in one allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.errors import DeviceMemoryError, ShapeError

ALIGNMENT = 64  # bytes: a cache line, and the widest vector of any device here


def room(shape: Any, dtype: Any, otherwise: str) -> npt.NDArray[Any]:
    """A new array. Raises DeviceMemoryError, which says `otherwise`, where there is no memory."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):
        raise DeviceMemoryError(otherwise) from None


def aligned_bytes(size: int, otherwise: str, step: int = ALIGNMENT) -> npt.NDArray[np.uint8]:
    """Memory that begins at a multiple of `step` bytes; raises as `room`."""
    padded = room(size + step, np.uint8, otherwise)
    start = -padded.ctypes.data % step
    return padded[start : start + size]


def aligned_offsets(
    rows: npt.NDArray[np.int64], cols: npt.NDArray[np.int64], itemsize: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Where each matrix starts, 64-byte aligned, and the elements of all; empty ones take none.

    Raises ShapeError where the sum passes 2^62 elements.
    """
    if float(np.sum(rows.astype(np.float64) * cols)) > 2.0**62:
        raise ShapeError("shapes: more than 2^62 elements in all")
    step = ALIGNMENT // itemsize
    sizes = -(-(rows * cols) // step) * step
    ends = np.cumsum(sizes)
    return ends - sizes, int(ends[-1]) if len(ends) else 0
