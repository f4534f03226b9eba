"""Flatten: an image as channels of one pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.value import Value


@dataclass(frozen=True, eq=False, kw_only=True)
class Flatten(Layer):
    """All elements of an image as channels of one pixel, in the order height, width, channels."""

    def output(self, inputs: Sequence[Value]) -> Value:
        """The same kind."""
        return Value(inputs[0].kind, 1, 1, inputs[0].size)

    def compute(self, *inputs: NDArray) -> NDArray:
        """The same numbers."""
        return np.ascontiguousarray(inputs[0]).reshape(len(inputs[0]), 1, 1, -1)

    def flops(self, value: Value) -> float:
        """None."""
        return 0.0

    def bind(self, host: Binding, ending: Ending) -> None:
        """A copy, as channels are padded for each pixel."""
        source, made = host.buffers[self.inputs[0]], host.buffers[self.name]
        flat = (host.images, 1, 1, -1)
        host.step(lambda: made.put(source.values().reshape(flat)))

    def may_go_on(self, result: Value) -> bool:
        """A copy adds nothing."""
        return False
