"""Lays weights out as the host's kernels read them: for every tap 32 output channels side by side.

[out, taps]  ->  [out / 32, taps, 32], absent channels zero
"""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.buffers import LANES, lanes


def blocks(weights: NDArray) -> NDArray:
    """[out, ...] as [out / 32, taps, 32]."""
    outputs = len(weights)
    rows = np.zeros((lanes(outputs), weights[0].size), weights.dtype)
    rows[:outputs] = weights.reshape(outputs, -1)
    return np.ascontiguousarray(rows.reshape(-1, LANES, rows.shape[1]).transpose(0, 2, 1))


def widened(vector: NDArray, absent: float) -> NDArray:
    """A float32 vector with `absent` for the channels up to a multiple of 32."""
    wide = np.full(lanes(len(vector)), absent, np.float32)
    wide[: len(vector)] = vector
    return wide
