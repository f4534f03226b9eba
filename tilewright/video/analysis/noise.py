"""The deviation of a picture's noise, from what a mask of second differences leaves."""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.small import shrunk

LEAST = 0.3  # what rounding to eight bits alone makes
_SIDE, _CALM = 8, 0.15
# By how much the calmest blocks are below the mean of made-up noise (deviations 1 to 16).
_SEEN = 1.2


def noise(luma: NDArray) -> float:
    """Deviation of noise in a picture of 0 to 255, as if it were the same everywhere.

    The mean of |Laplacian's difference| over Gaussian noise is known (Immerkær 1996); edges and
    texture add to it, so that it is taken of the calmest 15 % of blocks of 8 x 8, without those
    that are black or white, where noise is cut off.
    """
    y = np.asarray(luma, np.float32)
    if min(y.shape) < _SIDE + 2:
        return LEAST
    down = y[:-2] - 2 * y[1:-1] + y[2:]
    both = np.abs(down[:, :-2] - 2 * down[:, 1:-1] + down[:, 2:]) / 6
    blocks, means = shrunk(both, _SIDE), shrunk(y[1:-1, 1:-1], _SIDE)
    inside = (means > 4) & (means < 240)
    chosen = blocks[inside] if inside.mean() > 0.02 else blocks
    calm = float(np.quantile(chosen, _CALM))
    return max(LEAST, _SEEN * calm * float(np.sqrt(np.pi / 2)))
