"""Chains of convolutions to test engines with, and what they must give, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Activation, Conv, ConvWork


def chain(
    channels: Sequence[int],
    height: int,
    width: int,
    *,
    images: int = 1,
    shuffle: int = 1,
    activation: Activation | None = None,
    seed: int = 0,
    **options: object,
) -> ConvWork:
    """3x3 layers from each count of channels to the next, activated but the last, drawn by He."""
    rng = np.random.default_rng(seed)
    between = Activation("relu") if activation is None else activation
    layers = []
    for number, (inputs, outputs) in enumerate(pairwise(channels), 1):
        last = number == len(channels) - 1
        scale = np.sqrt(2 / (9 * inputs))
        layers.append(
            Conv(
                (rng.standard_normal((outputs, inputs, 3, 3)) * scale).astype(np.float32),
                (rng.standard_normal(outputs) * 0.05).astype(np.float32),
                pads=(1, 1, 1, 1),
                activation=Activation() if last else between,
                shuffle=shuffle if last else 1,
            )
        )
    return ConvWork(tuple(layers), images, height, width, **options)  # type: ignore[arg-type]


def picture(work: ConvWork, seed: int = 1) -> NDArray:
    """Numbers between 0 and 1 of the work's first size."""
    rng = np.random.default_rng(seed)
    return rng.random((work.images, *work.sizes[0])).astype(np.float32)


def empty_result(work: ConvWork) -> NDArray:
    """NaN, as the engine must write every number."""
    return np.full((work.images, *work.sizes[-1]), np.nan, np.float32)


def expected(work: ConvWork, x: NDArray, residuals: Sequence[NDArray] = ()) -> NDArray:
    """The chain of 3x3 layers in float64, sum by sum."""
    added = iter(residuals)
    value: NDArray = x.astype(np.float64)
    for layer in work.layers:
        padded = np.pad(value, ((0, 0), (0, 0), (1, 1), (1, 1)))
        height, width = value.shape[2:]
        windows = np.stack(
            [padded[:, :, y : y + height, x : x + width] for y in range(3) for x in range(3)], 2
        )
        weights = layer.weights.astype(np.float64).reshape(layer.outputs, layer.inputs, 9)
        with np.errstate(invalid="ignore"):
            value = np.einsum("oct,nctyx->noyx", weights, windows, optimize=True)
        if layer.bias is not None:
            value = value + layer.bias.astype(np.float64)[:, None, None]
        if layer.adds:
            value = value + next(added)
        value = shuffled(activated(value, layer.activation), layer.shuffle)
    return value


def activated(value: NDArray, activation: Activation) -> NDArray:
    """Each activation as its standard defines it."""
    low, high = activation.low, activation.high
    with np.errstate(over="ignore"):
        match activation.kind:
            case "none":
                return value
            case "relu":
                return np.maximum(value, 0)
            case "clip":
                return np.clip(value, low, high)
            case "leaky":
                return np.where(value < 0, low * value, value)
            case "prelu":
                assert activation.slopes is not None
                return np.where(value < 0, activation.slopes[:, None, None] * value, value)
            case "sigmoid":
                return 1 / (1 + np.exp(-value))
            case "silu":
                return value / (1 + np.exp(-value))
            case "hard_sigmoid":
                return np.clip(low * value + high, 0, 1)
            case "hard_swish":
                return value * np.clip(value / 6 + 0.5, 0, 1)
            case "tanh":
                return np.tanh(value)
            case _:
                assert activation.kind == "gelu", activation
                return 0.5 * value * (1 + np.vectorize(math.erf)(value / math.sqrt(2)))


def shuffled(value: NDArray, r: int) -> NDArray:
    """[n, c * r * r, h, w] to [n, c, h * r, w * r]."""
    n, channels, height, width = value.shape
    parts = value.reshape(n, channels // (r * r), r, r, height, width)
    return parts.transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, height * r, width * r)
