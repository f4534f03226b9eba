"""RealConv: convolution of reals in float32, its weights stored in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, DtypeError
from tilewright.nn.binding_host import Binding, Tail
from tilewright.nn.buffers import Buffer
from tilewright.nn.layers.conv import Conv
from tilewright.nn.reference import convolve, real, scaled
from tilewright.nn.value import Value
from tilewright.nn.weights import blocks
from tilewright.nn.window import tables
from tilewright.wording import short


@dataclass(frozen=True, eq=False, kw_only=True)
class RealConv(Conv):
    """Convolution of reals, computed in float32, zeros outside the image.

    weights    float16 [out, height, width, in / groups]
    scale, shift  float32 [out], as in BitConv
    """

    def _weights_shape(self) -> tuple[int, ...]:
        if not isinstance(self.weights, np.ndarray) or self.weights.dtype != np.float16:
            raise self.fail(f"weights={short(self.weights)}; accepted is float16", DtypeError)
        return tuple(self.weights.shape)

    def _check(self) -> None:
        super()._check()
        if not np.isfinite(self.weights).all():
            raise self.fail("weights: NaN or infinities in half precision", ArgumentError)

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals."""
        return Value("real", *self._sizes(inputs[0]), self.outputs)

    def compute(self, *inputs: NDArray) -> NDArray:
        """Sums in float32, in another order than the kernels'."""
        sums = convolve(real(inputs[0]), self.weights, self.window, self.groups, 0)
        return scaled(sums, self.scale, self.shift)

    def _source(self, host: Binding) -> Buffer:
        return host.padded(self.inputs[0], self.window)

    def _bind_part(self, host: Binding, group: int, source: Buffer, tail: Tail) -> None:
        rows = self._rows(group)
        found = tables(self.window, source.layout, self._pieces(group, self._weights_shape()[3]))
        host.step(
            compiled.kernels("conv").conv_real, source.data, found.origins,
            found.taps, blocks(self.weights[rows].astype(np.float32)), *self._epilogue(rows), tail,
        )  # fmt: skip
