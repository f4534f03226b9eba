"""Layers that treat every element alone, all but Flatten by one kernel in one pass.

Add     the sum of two values, a shortcut          Clamp   between two limits: ReLU, HardTanh
Affine  scale and shift of each channel            Sign    bits of reals, +1 where x >= cut
    Flatten an image as channels of one pixel
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.reference import real, scaled
from tilewright.nn.value import Value
from tilewright.nn.weights import widened

_FINITE, _ENDS = float(np.finfo(np.float32).max), (-math.inf, math.inf)


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Clamp(Layer):
    """min(max(x, low), high): ReLU is low = 0, HardTanh -1 and 1."""

    low: float = -math.inf
    high: float = math.inf

    def _check(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            fine = isinstance(value, int | float | np.floating)
            if not fine or (abs(value) > _FINITE and value not in _ENDS):
                raise self.fail(f"{name}={value!r}; accepted are float32 numbers", ArgumentError)
        if not self.low <= self.high:
            raise self.fail(
                f"low={self.low}, high={self.high}; accepted is low <= high", ArgumentError
            )

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals of the same sizes."""
        return replace(inputs[0], kind="real")

    def compute(self, *inputs: NDArray) -> NDArray:
        """NaN stays NaN."""
        return np.clip(real(inputs[0]), np.float32(self.low), np.float32(self.high))

    def flops(self, value: Value) -> float:
        """Two comparisons."""
        return 2.0 * value.size

    def bind(self, host: Binding, ending: Ending) -> None:
        """One pass."""
        bind_map(self, host, ending, low=self.low, high=self.high)

    def header(self) -> dict[str, Any]:
        """JSON has no infinities: null stands for a limit that is absent."""
        limits = {"low": self.low, "high": self.high}
        return super().header() | {n: v if math.isfinite(v) else None for n, v in limits.items()}

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """null is what the class has by default."""
        given = {name: value for name, value in header.items() if value is not None}
        return super().restored(given, arrays)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sign(Layer):
    """+1 where x >= cut, else -1. `cut` float32 [C], or None for 0: so 0 and -0 become +1.

    For x > t take cut = nextafter(t, inf).
    """

    cut: NDArray | None = None
    vectors: ClassVar[tuple[str, ...]] = ("cut",)

    def _check(self) -> None:
        self.vector("cut")

    def output(self, inputs: Sequence[Value]) -> Value:
        """Bits of the same sizes."""
        self.channels("cut", inputs[0])
        return replace(inputs[0], kind="bits")

    def compute(self, *inputs: NDArray) -> NDArray:
        """-1 and +1."""
        cut = np.float32(0) if self.cut is None else self.cut
        return np.where(real(inputs[0]) >= cut, np.int8(1), np.int8(-1))

    def bind(self, host: Binding, ending: Ending) -> None:
        """One pass of its own; most signs end another layer's pass and never come here."""
        bind_map(self, host, Ending(sign=self.name, cut=self.cut))


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


def bind_map(
    layer: Layer,
    host: Binding,
    ending: Ending,
    *,
    scale: NDArray | None = None,
    shift: NDArray | None = None,
    low: float = -math.inf,
    high: float = math.inf,
    added: str | None = None,
) -> None:
    """A pass of min(max(scale * x + shift, low), high) and `added`; None changes nothing."""
    source = host.reals(layer.inputs[0])
    width = source.layout.pitch
    # -0 leaves every number as it is; 0 would turn -0 into 0.
    host.step(
        compiled.kernels("maps").map_real,
        source.data,
        np.ones(width, np.float32) if scale is None else widened(scale, 0),
        np.full(width, -0.0, np.float32) if shift is None else widened(shift, 0),
        np.float32(low),
        np.float32(high),
        host.tail(layer.name, layer.inputs, ending, added),
    )
