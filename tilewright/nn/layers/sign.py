"""Sign: bits of reals, +1 where x >= cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.maps import bind_map
from tilewright.nn.reference import real
from tilewright.nn.value import Value


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
