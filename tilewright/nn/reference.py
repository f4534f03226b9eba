"""Windows, sums and scales in plain NumPy: what layers compute with where there is no Numba.

Bits are int8 arrays of -1 and +1, reals float32, both [N, height, width, channels]. Sums of bits
are exact; scale, shift, residual, pooling and signs round where the kernels do, so that only the
sums of a real convolution may differ from a kernel's, in the order of their terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.window import Window


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


def scaled(values: NDArray, scale: NDArray | None, shift: NDArray | None) -> NDArray:
    """scale * values + shift, each rounded once; None changes nothing."""
    result = values if scale is None else values * scale
    return result if shift is None else result + shift


def real(x: NDArray) -> NDArray:
    """Bits as -1.0 and +1.0."""
    return x.astype(np.float32, copy=False)
