"""Weights as the host's kernels read them: 32 output channels side by side for every tap.

[out, taps]  ->  [out / 32, taps, 32], absent channels zero
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.nn.buffers import LANES, lanes
from tilewright.nn.layers import BitConv, RealConv

NDArray = npt.NDArray[Any]


def blocks(weights: NDArray) -> NDArray:
    """[out, ...] as [out / 32, taps, 32]."""
    outputs = len(weights)
    rows = np.zeros((lanes(outputs), weights[0].size), weights.dtype)
    rows[:outputs] = weights.reshape(outputs, -1)
    return np.ascontiguousarray(rows.reshape(-1, LANES, rows.shape[1]).transpose(0, 2, 1))


def real_blocks(weights: NDArray) -> NDArray:
    """The same of half precision, in float32."""
    return blocks(weights.astype(np.float32))


def widened(vector: NDArray, absent: float) -> NDArray:
    """A float32 vector with `absent` for the channels up to a multiple of 32."""
    wide = np.full(lanes(len(vector)), absent, np.float32)
    wide[: len(vector)] = vector
    return wide


def epilogue(layer: BitConv | RealConv, rows: slice) -> tuple[NDArray, NDArray, NDArray]:
    """Scale, shift and cut of some output channels; absent channels give 0 and no bit."""
    count = len(range(*rows.indices(layer.outputs)))
    ones, zeros = np.ones(count, np.float32), np.zeros(count, np.float32)
    # -0 leaves every number as it is; 0 would turn -0 into 0.
    scale = ones if layer.scale is None else layer.scale[rows]
    shift = -zeros if layer.shift is None else layer.shift[rows]
    cut = zeros
    if isinstance(layer, BitConv) and layer.threshold is not None and layer.groups == 1:
        # Sums stay below 2^24, so a threshold that float32 rounds is beyond all of them anyway.
        cut = layer.threshold.astype(np.float32)
    return widened(scale, 0), widened(shift, 0), widened(cut, np.nan)


def starts(
    layer: BitConv, rows: slice, inside: NDArray, classes: NDArray
) -> tuple[NDArray, NDArray]:
    """What differing bits are taken from, int32 [classes, out], and each pixel's class.

    A tap outside the image meets zero bits, -1 each, and there its differing bits are the ones of
    its weights: for exact zeros they are added again and the tap's length left out.
    """
    depth = layer.weights.k
    if layer.padding == "minus_one" or not any(layer.window.pads):
        inside, classes = np.ones((1, inside.shape[1]), bool), np.zeros_like(classes)
    ones = np.asarray(layer.weights.counts)[rows].reshape(-1, inside.shape[1])
    start = np.zeros((len(inside), lanes(len(ones))), np.int32)
    outside = (~inside).astype(np.int64)
    start[:, : len(ones)] = depth * inside.sum(axis=1)[:, None] + 2 * (outside @ ones.T)
    return start, classes
