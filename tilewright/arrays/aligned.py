"""Places several matrices in one allocation, each at the beginning of a cache line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.errors import ShapeError

ALIGNMENT = 64  # bytes: a cache line, and the widest vector of any device here


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
