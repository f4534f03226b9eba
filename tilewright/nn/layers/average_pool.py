"""AveragePool: the mean of each window, or of the whole image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.binding_host import Binding, Ending
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.pool import bind_pool, pooled
from tilewright.nn.reference import counted, real, taps_of
from tilewright.nn.value import Value
from tilewright.nn.window import Window


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
