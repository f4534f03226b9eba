"""Weights of 3x3 convolutions, as the kernels of a chain read them; packed once, when bound.

    Winograd   [segment of 2 or 1 blocks of outputs][plane][inputs, in fours][16 or 32 outputs]
               folded: [plane][quarter of inputs][4 outputs][4 inputs]
    few        [segment][input][row][column of the window][16 or 32 outputs]
    plain      [row][column][input][blocks of 16 outputs]

Transforms of weights are summed in float64 and rounded once.
"""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host.kernels.conv_table import FAR, NEAR

LANES = 16


def _transform(step: int) -> NDArray:
    """From the three weights of a row to those of its transform (Lavin and Gray, 2015)."""
    if step == 2:  # points 0, 1, -1 and infinity
        return np.array([[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]])
    points = np.array([0.0, NEAR, -NEAR, FAR, -FAR])
    rows = [
        np.array([1.0, point, point**2]) / np.prod(point - points[points != point])
        for point in points
    ]
    return np.array([*rows, [0.0, 0.0, 1.0]])


def segments(outputs: int, pair: int) -> list[tuple[int, int]]:
    """First output and vectors of each share of the outputs; `pair` vectors at once if there."""
    blocks = -(-outputs // LANES)
    found, block = [], 0
    while block < blocks:
        vectors = pair if blocks - block >= pair else 1
        found.append((block * LANES, vectors))
        block += vectors
    return found


def winograd(weights: NDArray, step: int, pair: int, *, folded: bool) -> NDArray:
    """Transformed weights of [outputs, inputs, 3, 3], for tiles of step x step results."""
    planes, (outputs, inputs) = (step + 2) ** 2, weights.shape[:2]
    # Both sides of the transform at once, so that it is one product: 15 times as fast as einsum.
    both = np.kron(_transform(step), _transform(step))
    wide = both @ weights.reshape(-1, 9).astype(np.float64).T
    quarters = -(-inputs // 4)
    padded = np.zeros((planes, _up(outputs), 4 * quarters), np.float32)
    padded[:, :outputs, :inputs] = wide.reshape(planes, outputs, inputs)
    if folded:
        fours = padded[:, :4].reshape(planes, 4, quarters, 4)
        return np.ascontiguousarray(fours.transpose(0, 2, 1, 3)).reshape(-1)
    parts = [
        padded[:, first : first + LANES * vectors].transpose(0, 2, 1).reshape(-1)
        for first, vectors in segments(outputs, pair)
    ]
    return np.concatenate(parts)


def few(weights: NDArray, pair: int) -> NDArray:
    """Weights for few input channels."""
    outputs = len(weights)
    padded = np.zeros((_up(outputs), *weights.shape[1:]), np.float32)
    padded[:outputs] = weights
    parts = [
        padded[first : first + LANES * vectors].transpose(1, 2, 3, 0).reshape(-1)
        for first, vectors in segments(outputs, pair)
    ]
    return np.concatenate(parts)


def plain(weights: NDArray) -> NDArray:
    """Weights for sums without transforms."""
    outputs = len(weights)
    padded = np.zeros((3, 3, weights.shape[1], _up(outputs)), np.float32)
    padded[..., :outputs] = weights.transpose(2, 3, 1, 0)
    return padded.reshape(-1)


def biases(bias: NDArray | None, outputs: int, *, folded: bool) -> NDArray:
    """A number for every lane."""
    given = np.zeros(outputs, np.float32) if bias is None else bias
    if folded:
        four = np.zeros(4, np.float32)
        four[:outputs] = given
        return np.tile(four, 4)
    padded = np.zeros(_up(outputs), np.float32)
    padded[:outputs] = given
    return padded


def _up(count: int) -> int:
    return -(-count // LANES) * LANES
