"""Clamp: numbers between two limits; ReLU and HardTanh are such."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.maps import bind_map
from tilewright.nn.reference import real
from tilewright.nn.value import Value

_FINITE, _ENDS = float(np.finfo(np.float32).max), (-math.inf, math.inf)


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
