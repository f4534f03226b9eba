"""Pools: the largest or the mean of each window, sizes and edges of which they share.

MaxPool       of reals and of bits          AveragePool   or of the whole image
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, ShapeError
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.reference import counted, real, taps_of
from tilewright.nn.value import Value
from tilewright.nn.window import Layout, Window


@dataclass(frozen=True, eq=False, kw_only=True)
class MaxPool(Layer):
    """The largest element of each window, elements outside the image left out; OR of bits."""

    window: Window

    def output(self, inputs: Sequence[Value]) -> Value:
        """The same kind."""
        return Value(inputs[0].kind, *pooled(self, self.window, inputs[0]), inputs[0].channels)

    def compute(self, *inputs: NDArray) -> NDArray:
        """One element of the window after the other."""
        x = inputs[0]
        least = np.int8(-1) if x.dtype == np.int8 else np.float32(-np.inf)
        taps = taps_of(x, self.window, least)
        result: NDArray = next(taps).copy()
        for tap in taps:
            np.maximum(result, tap, out=result)
        return result

    def flops(self, value: Value) -> float:
        """A comparison for each element of a window."""
        return float(math.prod(self.window.kernel) * value.size)

    def bind(self, host: Binding, ending: Ending) -> None:
        """One pass; of bits by words."""
        if host.values[self.name].kind == "real":
            bind_pool(self, host, ending, self.window, is_max=True)
            return
        source = host.buffers[self.inputs[0]]
        at = source.layout
        first = at.places().reshape(host.images, -1)[:, 0].copy()
        out = host.buffers[self.name]
        host.step(
            compiled.kernels("maps").pool_bits, source.data, first,
            *edges(self.window, at), at.row, at.pitch, out.data, out.layout.places(),
        )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragePool(Layer):
    """The mean of each window, of the whole image where `window` is None.

    Elements outside the image are 0 in the sum and counted by the divisor if `count_padding`.
    """

    window: Window | None = None
    count_padding: bool = False
    adds: ClassVar[bool] = True

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals."""
        sizes = (1, 1) if self.window is None else pooled(self, self.window, inputs[0])
        return Value("real", *sizes, inputs[0].channels)

    def compute(self, *inputs: NDArray) -> NDArray:
        """Sums in float32, one element of the window after the other, then one multiplication."""
        x = real(inputs[0])
        window = self.window or Window(x.shape[1:3])
        sums: NDArray = np.zeros((), np.float32)
        for tap in taps_of(x, window, np.float32(0)):
            sums = sums + tap
        counts = counted(window, x.shape[1:3], all_of_it=self.count_padding)
        inverse: NDArray = (1.0 / counts).astype(np.float32)
        result: NDArray = sums * inverse[..., None]
        return result

    def bind(self, host: Binding, ending: Ending) -> None:
        """One pass."""
        bind_pool(self, host, ending, self.window, is_max=False, count_padding=self.count_padding)


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
