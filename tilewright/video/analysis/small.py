"""Pictures made small, and means of what lies round a sample: plain NumPy, on sampled pictures."""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray

ROWS = 120  # about as many has a picture that was made small


def shrunk(luma: NDArray, block: int) -> NDArray:
    """Means of block x block samples; what is left over at the right and below is left out."""
    rows, columns = (length // block for length in luma.shape)
    if block == 1 or not rows or not columns:
        return np.asarray(luma, np.float32)
    parts = luma[: rows * block, : columns * block].reshape(rows, block, columns, block)
    found: NDArray = parts.mean((1, 3), dtype=np.float32)
    return found


def small(luma: NDArray) -> NDArray:
    """A picture of about 120 rows (or columns, where those are fewer)."""
    return shrunk(luma, max(1, round(min(luma.shape) / ROWS)))


def boxed(luma: NDArray, radius: int) -> NDArray:
    """Means of (2 * radius + 1)² samples round each, the edges' repeated."""
    found = luma.astype(np.float64)
    wide = 2 * radius + 1
    for axis in (0, 1):
        ends = [(radius + 1, radius) if one == axis else (0, 0) for one in (0, 1)]
        sums = np.cumsum(np.pad(found, ends, mode="edge"), axis)
        length = found.shape[axis]
        later = np.take(sums, range(wide, wide + length), axis)
        found = (later - np.take(sums, range(length), axis)) / wide
    return found


def worst_of(luma: NDArray, radius: int) -> NDArray:
    """The least of (2 * radius + 1)² samples round each."""
    found = luma
    for axis in (0, 1):
        ends = [(radius, radius) if one == axis else (0, 0) for one in (0, 1)]
        padded = np.pad(found, ends, mode="edge")
        length = found.shape[axis]
        parts = [np.take(padded, range(n, n + length), axis) for n in range(2 * radius + 1)]
        found = np.minimum.reduce(parts)
    return found
