"""What the pools share: sizes of pooled images, and the windows' edges for the kernels."""

from __future__ import annotations

import math

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, ShapeError
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.value import Value
from tilewright.nn.window import Layout, Window


def pooled(layer: Layer, window: Window, value: Value) -> tuple[int, int]:
    """Sizes of a pooled image. Raises ShapeError where a window would be empty."""
    if window.dilation != (1, 1):
        raise layer.fail(f"dilation={window.dilation}; accepted is (1, 1)", ArgumentError)
    try:
        sizes = window.output(value.height, value.width)
    except ShapeError as error:
        raise layer.fail(str(error)) from None
    for axis, length in enumerate((value.height, value.width)):
        first, last = -window.pads[axis], (sizes[axis] - 1) * window.stride[axis]
        if first + window.kernel[axis] <= 0 or first + last >= length:
            raise layer.fail(f"pads={window.pads}: a window lies wholly outside the image")
    return sizes


def bind_pool(
    layer: Layer,
    host: Binding,
    ending: Ending,
    window: Window | None,
    *,
    is_max: bool,
    count_padding: bool = False,
) -> None:
    """A pass of the largest or the mean of each window of reals, or of the whole image."""
    source = host.reals(layer.inputs[0])
    at = source.layout
    window = window or Window((at.height, at.width))
    first = np.arange(host.images, dtype=np.int64) * at.height * at.width
    divide = math.prod(window.kernel) if count_padding else 0
    tail = host.tail(layer.name, layer.inputs, ending)
    host.step(
        compiled.kernels("maps").pool_real, source.data, first, *edges(window, at),
        at.width, is_max, divide, tail,
    )  # fmt: skip


def edges(window: Window, layout: Layout) -> tuple[NDArray, NDArray]:
    """From and to, of each window's rows and of its columns, inside the image."""
    lengths = (layout.height, layout.width)
    found = []
    for axis, size in enumerate(window.output(*lengths)):
        start = window.starts(axis, size)
        ends = np.minimum(start + window.kernel[axis], lengths[axis])
        found.append(np.ascontiguousarray(np.stack([np.maximum(start, 0), ends], axis=1)))
    return found[0], found[1]
