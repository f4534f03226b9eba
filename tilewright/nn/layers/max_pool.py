"""MaxPool: the largest element of each window, of reals and of bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.pool import bind_pool, edges, pooled
from tilewright.nn.reference import taps_of
from tilewright.nn.value import Value
from tilewright.nn.window import Window


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
