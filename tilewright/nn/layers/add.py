"""Add: the sum of two values, a shortcut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.arrays.array import NDArray
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.maps import bind_map
from tilewright.nn.reference import real
from tilewright.nn.value import Value


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Layer):
    """The sum of two values of equal sizes: a shortcut."""

    takes: ClassVar[int] = 2
    adds: ClassVar[bool] = True

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals of the same sizes."""
        sizes = [(value.height, value.width, value.channels) for value in inputs]
        if sizes[0] != sizes[1]:
            raise self.fail(f"adds {sizes[0]} and {sizes[1]}; they must be equal")
        return Value("real", *sizes[0])

    def compute(self, *inputs: NDArray) -> NDArray:
        """Bits as -1 and +1."""
        total: NDArray = real(inputs[0]) + real(inputs[1])
        return total

    def bind(self, host: Binding, ending: Ending) -> None:
        """A pass of its own, where it could not end the pass of what it adds."""
        bind_map(self, host, ending, added=self.inputs[1])
