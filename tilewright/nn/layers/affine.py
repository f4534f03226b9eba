"""Affine: scale and shift of each channel, a batch norm that no convolution precedes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.arrays.array import NDArray
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.maps import bind_map
from tilewright.nn.reference import real, scaled
from tilewright.nn.value import Value


@dataclass(frozen=True, eq=False, kw_only=True)
class Affine(Layer):
    """float32(scale * x) + shift for each channel: a batch norm that no convolution precedes."""

    scale: NDArray
    shift: NDArray
    vectors: ClassVar[tuple[str, ...]] = ("scale", "shift")

    def _check(self) -> None:
        self.vector("scale")
        self.vector("shift")

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals of the same sizes."""
        self.channels("scale", inputs[0])
        self.channels("shift", inputs[0])
        return replace(inputs[0], kind="real")

    def compute(self, *inputs: NDArray) -> NDArray:
        """Each rounded once."""
        return scaled(real(inputs[0]), self.scale, self.shift)

    def flops(self, value: Value) -> float:
        """A multiplication and an addition."""
        return 2.0 * value.size

    def bind(self, host: Binding, ending: Ending) -> None:
        """One pass."""
        bind_map(self, host, ending, scale=self.scale, shift=self.shift)
