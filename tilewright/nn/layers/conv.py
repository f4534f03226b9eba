"""What the convolutions share, sizes, groups, scale and shift, and `RealConv`, that of reals."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, DtypeError, ShapeError
from tilewright.nn.binding_host import NO_BITS, NO_FLOATS, NOWHERE, Binding, Ending, Tail
from tilewright.nn.buffers import Buffer, lanes
from tilewright.nn.layers.base import Layer
from tilewright.nn.reference import convolve, real, scaled
from tilewright.nn.value import Value
from tilewright.nn.weights import blocks, widened
from tilewright.nn.window import Layout, Window, tables
from tilewright.wording import short

_POINT = Window()


@dataclass(frozen=True, eq=False, kw_only=True)
class Conv(Layer):
    """What the convolutions share. No kernel flip: deep learning's convolution."""

    weights: Any
    window: Window = _POINT
    groups: int = 1
    scale: NDArray | None = None
    shift: NDArray | None = None
    vectors: ClassVar[tuple[str, ...]] = ("weights", "scale", "shift")

    def _check(self) -> None:
        shape = self._weights_shape()
        if len(shape) != 4 or 0 in shape:
            raise self.fail(f"weights.shape={shape}; accepted is [out, height, width, in], no 0")
        if shape[1:3] != self.window.kernel:
            raise self.fail(f"weights.shape={shape} and kernel={self.window.kernel} differ")
        whole = isinstance(self.groups, int) and not isinstance(self.groups, bool)
        if not whole or self.groups < 1 or shape[0] % self.groups:
            raise self.fail(f"groups={self.groups!r}; accepted are divisors of {shape[0]} outputs")
        self.vector("scale", shape[0])
        self.vector("shift", shape[0])

    @abstractmethod
    def _weights_shape(self) -> tuple[int, ...]:
        """[out, height, width, in / groups]. Raises for weights of another kind."""

    @property
    def outputs(self) -> int:
        """Channels that come out."""
        return self._weights_shape()[0]

    @property
    def parameters(self) -> int:
        """Weights, of which bytes hold several where they are bits, and vectors."""
        vectors = (a for name, a in self.arrays().items() if name != "weights")
        return self.outputs * self.terms + sum(array.size for array in vectors)

    @property
    def terms(self) -> int:
        """Products that one result sums, borders left out."""
        return math.prod(self._weights_shape()[1:])

    def _sizes(self, value: Value) -> tuple[int, int]:
        wanted = self._weights_shape()[3] * self.groups
        if value.channels != wanted:
            raise self.fail(
                f"weights.shape={self._weights_shape()}, groups={self.groups} take {wanted}"
                f" channels; its input has {value.channels}"
            )
        try:
            return self.window.output(value.height, value.width)
        except ShapeError as error:
            raise self.fail(str(error)) from None

    def flops(self, value: Value) -> float:
        """Two for each product, of bits too: an xor and its count stand for them."""
        return 2.0 * self.terms * value.size

    def may_go_on(self, result: Value) -> bool:
        """Where it is one kernel that writes the whole result."""
        return self.groups == 1 and super().may_go_on(result)

    def bind(self, host: Binding, ending: Ending) -> None:
        """One pass, or one a group and another that joins them."""
        if self.groups > 1:
            self._bind_groups(host)
            return
        source = self._source(host)
        self._bind_part(host, 0, source, self._tail(host, ending))

    def _tail(self, host: Binding, ending: Ending) -> Tail:
        return host.tail(self.name, self.inputs, ending)

    def _bind_groups(self, host: Binding) -> None:
        """Group by group into buffers of their own, then side by side."""
        source, shape = self._source(host), host.values[self.name]
        each = self.outputs // self.groups
        layout = Layout(host.images, shape.height, shape.width, lanes(each))
        parts = [host.scratch(layout, each) for _ in range(self.groups)]
        cut = widened(np.zeros(each, np.float32), np.nan)
        for group, part in enumerate(parts):
            self._bind_part(host, group, source, (NO_FLOATS, part.data, NO_BITS, NOWHERE, cut))
        self._bind_join(host, parts)

    def _bind_join(self, host: Binding, parts: Sequence[Buffer]) -> None:
        real = host.buffers[self.name].values()
        host.step(lambda: np.copyto(real, joined(parts)))

    @abstractmethod
    def _source(self, host: Binding) -> Buffer:
        """Its input as the kernel reads it."""

    @abstractmethod
    def _bind_part(self, host: Binding, group: int, source: Buffer, tail: Tail) -> None:
        """The kernel of one group."""

    def _rows(self, group: int) -> slice:
        """The output channels of a group."""
        each = self.outputs // self.groups
        return slice(group * each, (group + 1) * each)

    def _pieces(self, group: int, depth: int) -> NDArray:
        """The numbers (or words) of each pixel that a group reads."""
        return group * depth + np.arange(depth)

    def _epilogue(self, rows: slice) -> tuple[NDArray, NDArray]:
        """Scale and shift of some output channels; absent channels give 0."""
        count = len(range(*rows.indices(self.outputs)))
        ones, zeros = np.ones(count, np.float32), np.zeros(count, np.float32)
        # -0 leaves every number as it is; 0 would turn -0 into 0.
        scale = ones if self.scale is None else self.scale[rows]
        shift = -zeros if self.shift is None else self.shift[rows]
        return widened(scale, 0), widened(shift, 0)


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


def joined(parts: Sequence[Buffer]) -> NDArray:
    """Values side by side along their channels."""
    return np.concatenate([part.values() for part in parts], axis=-1)
