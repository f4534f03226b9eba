"""Layers of small whole numbers: DequantizeLinear, Conv or Gemm, and QuantizeLinear in one.

    x int8 or uint8 -> int32 sums -> float32(sum) * scale -> limits -> float32 or whole

Every step is exact or one float32 operation with one rounding, so that all devices give the same
bits: those of the nodes it stands for, computed with exact sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv as Layer
from tilewright.engines.conv import Whole
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import Given, Operator
from tilewright.nn.operators.conv import Conv, convolved, room_of
from tilewright.nn.operators.element_types import NAMES, as_type
from tilewright.nn.operators.products import product_shape
from tilewright.nn.operators.quantise import saturated
from tilewright.nn.operators.windows import Windows, windows_of

NAME, DENSE = "ConvInt8", "DenseInt8"


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The numbers of such a layer; strides, pads and groups are the node's attributes.

    weights  int8 [outputs, inputs / groups, kernel height, kernel width] or [outputs, inputs]
    bias     int32 [outputs], or None
    short    no sum passes 2^24, so that float32 holds all of them exactly, in any order
    """

    weights: NDArray
    bias: NDArray | None
    whole: Whole
    short: bool = False

    @property
    def sums(self) -> str:
        """The float type that sums are exact in, which libraries multiply fastest."""
        return "float32" if self.short else "float64"


class ConvInt8(Operator):
    """Attributes: `numbers`, a `Numbers`; `dtype`, ONNX's number of the result's type; Conv's."""

    name = NAME
    versions = (1,)
    dtypes = ("int8", "uint8")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """A float type, or int8 or uint8."""
        return (NAMES[node.attributes["dtype"]],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As Conv."""
        weights = node.attributes["numbers"].weights
        return Conv().shapes(node, (given[0], Tensor(weights.shape, "int8")))

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Sums in floats that hold them exactly: whole numbers are multiplied slowly."""
        (x,) = given
        numbers: Numbers = node.attributes["numbers"]
        windows = windows_of(node.attributes, numbers.weights.shape[2:], tuple(x.shape[2:]))
        sums = _convolved(xp, x, numbers, windows, int(node.attributes["group"]))
        dtype = NAMES[node.attributes["dtype"]]
        return _ended(xp, numbers.whole, sums, (1, -1, 1, 1), dtype)

    def scratch(self, node: Node, given: Given) -> int:
        """Of x and the sums as floats, and what their convolution takes besides."""
        assert given[0] is not None
        weights = node.attributes["numbers"].weights
        shape = given[0].shape
        windows = windows_of(node.attributes, weights.shape[2:], shape[2:])
        sums = shape[0] * len(weights) * math.prod(windows.counts(shape[2:]))
        return 8 * (given[0].size + sums + room_of(shape, len(weights), windows))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each weight that a sum meets."""
        weights = node.attributes["numbers"].weights
        return 2.0 * made[0].size * float(math.prod(weights.shape[1:]))


class DenseInt8(Operator):
    """Attributes: `numbers`, a `Numbers`; `dtype`, ONNX's number of the result's type."""

    name = DENSE
    versions = (1,)
    dtypes = ("int8", "uint8")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """A float type, or int8 or uint8."""
        return (NAMES[node.attributes["dtype"]],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[rows, outputs]."""
        weights = node.attributes["numbers"].weights
        return (product_shape(given[0], Tensor(weights.T.shape, "int8")),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Sums in floats that hold them exactly: whole numbers are multiplied slowly."""
        (x,) = given
        numbers: Numbers = node.attributes["numbers"]
        weights = _there(xp, x, numbers.weights, numbers.sums)
        lower = as_type(xp, x, numbers.sums) - numbers.whole.zero
        sums = xp.matmul(lower, xp.permute_dims(weights, (1, 0)))
        if numbers.bias is not None:
            sums = sums + _there(xp, x, numbers.bias, numbers.sums)
        return _ended(xp, numbers.whole, sums, (1, -1), NAMES[node.attributes["dtype"]])

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each weight that a sum meets."""
        return 2.0 * made[0].size * float(node.attributes["numbers"].weights.shape[1])


def whole_layer(xp: Any, layer: Layer, x: Any, residual: Any = None) -> Any:
    """A layer of a chain by its definition, before its shuffle; `residual` is float32 or None."""
    whole = layer.whole
    assert whole is not None
    if whole.taken is not None:
        x = _rounded(xp, x, whole.taken, whole.zero, whole.source)
    short = is_short(layer.weights, layer.bias, whole.zero, whole.source)
    numbers = Numbers(layer.weights, layer.bias, whole, short)
    windows = Windows(layer.kernel, layer.strides, layer.dilations, layer.pads)
    sums = _convolved(xp, x, numbers, windows, layer.groups)
    return _ended(xp, whole, sums, (1, -1, 1, 1), whole.dtype, residual)


def is_short(weights: NDArray, bias: NDArray | None, zero: int, dtype: str) -> bool:
    """Whether no sum of products, in whatever order, passes what float32 counts exactly."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    furthest = max(int(zero) - int(low), int(high) - int(zero))
    most = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(axis=1) * furthest
    if bias is not None:
        most = most + np.abs(bias.astype(np.int64))
    return int(most.max(initial=0)) <= 1 << 24


def _convolved(xp: Any, x: Any, numbers: Numbers, windows: Windows, groups: int) -> Any:
    """The sums, in floats that hold them exactly."""
    weights = _there(xp, x, numbers.weights, numbers.sums)
    bias = None if numbers.bias is None else _there(xp, x, numbers.bias, numbers.sums)
    lower = as_type(xp, x, numbers.sums) - numbers.whole.zero
    return convolved(xp, lower, weights, bias, windows, groups)


def _ended(
    xp: Any, whole: Whole, sums: Any, across: Shape, dtype: str, residual: Any = None
) -> Any:
    """What sums are worth, a residual added, within the limits, whole again where that is asked."""
    scale = xp.reshape(_there(xp, sums, whole.scale, "float32"), across)
    y = as_type(xp, sums, "float32") * scale
    y = xp.clip(y if residual is None else y + residual, whole.low, whole.high)
    return y if whole.step is None else _rounded(xp, y, whole.step, whole.shift, dtype)


def _rounded(xp: Any, y: Any, step: float, shift: int, dtype: str) -> Any:
    """saturated(round(y / step) + shift)."""
    one = xp.full((), step, dtype=xp.float32, device=y.device)
    more = xp.full((), shift, dtype=xp.float32, device=y.device)
    return saturated(xp, xp.round(y / one), more, dtype)


def _there(xp: Any, x: Any, numbers: NDArray, dtype: str) -> Any:
    return as_type(xp, xp.asarray(numbers, device=x.device), dtype)


OPERATORS = (ConvInt8(), DenseInt8())
