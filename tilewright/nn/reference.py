"""Every layer in plain NumPy: what the compiled kernels must equal, and what runs without Numba.

Bits are int8 arrays of -1 and +1, reals float32, both [N, height, width, channels]. Sums of bits
are exact; scale, shift, residual, pooling and signs round where the kernels do, so that only the
sums of a real convolution may differ, in the order of their terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.nn.layers import (
    Add,
    Affine,
    AveragePool,
    BitConv,
    Clamp,
    Flatten,
    Layer,
    MaxPool,
    RealConv,
    Sign,
)
from tilewright.nn.window import Window
from tilewright.onebit.matrix import unpack

NDArray = npt.NDArray[Any]


def evaluate(layers: Sequence[Layer], values: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """All values of the layers, from those that are given by name."""
    found = dict(values)
    for layer in layers:
        found[layer.name] = apply(layer, *(found[name] for name in layer.inputs))
    return found


@singledispatch
def apply(layer: Layer, *inputs: NDArray) -> NDArray:
    """The value of one layer."""
    raise NotImplementedError(type(layer).__name__)


@apply.register
def _(layer: Sign, x: NDArray) -> NDArray:
    cut = np.float32(0) if layer.cut is None else layer.cut
    return np.where(_real(x) >= cut, np.int8(1), np.int8(-1))


@apply.register
def _(layer: BitConv, x: NDArray) -> NDArray:
    outside = 0 if layer.padding == "zero" else -1
    dots = convolve(x, unpack(layer.weights), layer.window, layer.groups, outside)
    if layer.threshold is not None:
        return np.where(dots >= layer.threshold, np.int8(1), np.int8(-1))
    return _scaled(dots, layer.scale, layer.shift)


@apply.register
def _(layer: RealConv, x: NDArray) -> NDArray:
    sums = convolve(_real(x), layer.weights, layer.window, layer.groups, 0)
    return _scaled(sums, layer.scale, layer.shift)


@apply.register
def _(layer: Affine, x: NDArray) -> NDArray:
    return _scaled(_real(x), layer.scale, layer.shift)


@apply.register
def _(layer: Clamp, x: NDArray) -> NDArray:
    return np.clip(_real(x), np.float32(layer.low), np.float32(layer.high))


@apply.register
def _(layer: Add, x: NDArray, y: NDArray) -> NDArray:
    total: NDArray = _real(x) + _real(y)
    return total


@apply.register
def _(layer: MaxPool, x: NDArray) -> NDArray:
    least = np.int8(-1) if x.dtype == np.int8 else np.float32(-np.inf)
    taps = taps_of(x, layer.window, least)
    result: NDArray = next(taps).copy()
    for tap in taps:
        np.maximum(result, tap, out=result)
    return result


@apply.register
def _(layer: AveragePool, x: NDArray) -> NDArray:
    x = _real(x)
    window = layer.window or Window(x.shape[1:3])
    sums: NDArray = np.zeros((), np.float32)
    for tap in taps_of(x, window, np.float32(0)):
        sums = sums + tap
    counts = counted(window, x.shape[1:3], all_of_it=layer.count_padding)
    inverse: NDArray = (1.0 / counts).astype(np.float32)
    result: NDArray = sums * inverse[..., None]
    return result


@apply.register
def _(layer: Flatten, x: NDArray) -> NDArray:
    return np.ascontiguousarray(x).reshape(len(x), 1, 1, -1)


def counted(window: Window, size: Sequence[int], *, all_of_it: bool) -> NDArray:
    """What each mean divides by: float64 [out_height, out_width]."""
    sizes = window.output(*size)
    rows, columns = (window.inside(a, sizes[a], size[a]).sum(axis=1) for a in (0, 1))
    counts = np.outer(rows, columns).astype(np.float64)
    return np.full_like(counts, window.kernel[0] * window.kernel[1]) if all_of_it else counts


def convolve(x: NDArray, weights: NDArray, window: Window, groups: int, outside: int) -> NDArray:
    """Sums of x [N, H, W, C] with weights [out, kernel, kernel, C / groups].

    In float64 where x is, else in float32: exact for whole numbers while sums stay below 2^24.
    `outside` is what lies around the images.
    """
    kind = np.float64 if x.dtype == np.float64 else np.float32
    outputs, height, width, depth = weights.shape
    each = outputs // groups
    kernels = weights.astype(kind).reshape(outputs, height * width, depth)
    total: NDArray = np.zeros((), kind)
    for index, tap in enumerate(taps_of(x.astype(kind), window, outside)):
        products = [
            tap[..., g * depth : (g + 1) * depth] @ kernels[g * each : (g + 1) * each, index].T
            for g in range(groups)
        ]
        total = total + np.concatenate(products, axis=-1)
    return total


def taps_of(x: NDArray, window: Window, outside: Any) -> Any:
    """For each element of the window, what it meets: [N, out_height, out_width, C]."""
    height, width = window.output(*x.shape[1:3])
    top, left, bottom, right = window.pads
    around = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(x, around, constant_values=outside) if any(window.pads) else x
    for y in range(window.kernel[0]):
        for z in range(window.kernel[1]):
            down, across = y * window.dilation[0], z * window.dilation[1]
            yield padded[
                :,
                down : down + height * window.stride[0] : window.stride[0],
                across : across + width * window.stride[1] : window.stride[1],
            ][:, :height, :width]


def _scaled(values: NDArray, scale: NDArray | None, shift: NDArray | None) -> NDArray:
    result = values if scale is None else values * scale
    return result if shift is None else result + shift


def _real(x: NDArray) -> NDArray:
    return x.astype(np.float32, copy=False)
