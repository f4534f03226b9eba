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

from tilewright.arrays.array import NDArray
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import Given, Operator
from tilewright.nn.operators.conv import Conv, convolved
from tilewright.nn.operators.element_types import NAMES, as_type
from tilewright.nn.operators.products import product_shape
from tilewright.nn.operators.quantise import saturated
from tilewright.nn.operators.windows import windows_of

NAME, DENSE = "ConvInt8", "DenseInt8"


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """The numbers of such a layer; strides, pads and groups are the node's attributes.

    weights      int8 [outputs, inputs / groups, kernel height, kernel width] or [outputs, inputs]
    bias         int32 [outputs], or None
    zero         of x: what stands for 0
    scale        float32 [outputs]: what one of the sums is worth
    low, high    limits of the result before it is whole: those of an activation
    step, shift  of the result where it is whole again: round(y / step) + shift; else None and 0
    short        no sum passes 2^24, so that float32 holds all of them exactly, in any order
    """

    weights: NDArray
    bias: NDArray | None
    zero: int
    scale: NDArray
    low: float = -math.inf
    high: float = math.inf
    step: float | None = None
    shift: int = 0
    short: bool = False

    @property
    def sums(self) -> str:
        """The float type that sums are exact in, which libraries multiply fastest."""
        return "float32" if self.short else "float64"


class ConvInt8(Operator):
    """Attributes: `numbers`, a `Whole`; `dtype`, ONNX's number of the result's type; Conv's."""

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
        numbers: Whole = node.attributes["numbers"]
        weights = _there(xp, x, numbers.weights, numbers.sums)
        windows = windows_of(node.attributes, numbers.weights.shape[2:], tuple(x.shape[2:]))
        lower = as_type(xp, x, numbers.sums) - numbers.zero
        bias = None if numbers.bias is None else _there(xp, x, numbers.bias, numbers.sums)
        groups = int(node.attributes["group"])
        sums = convolved(xp, lower, weights, bias, windows, groups)
        return _ended(xp, node, sums, (1, -1, 1, 1))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each weight that a sum meets."""
        weights = node.attributes["numbers"].weights
        return 2.0 * made[0].size * float(math.prod(weights.shape[1:]))


class DenseInt8(Operator):
    """Attributes: `numbers`, a `Whole`; `dtype`, ONNX's number of the result's type."""

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
        numbers: Whole = node.attributes["numbers"]
        weights = _there(xp, x, numbers.weights, numbers.sums)
        lower = as_type(xp, x, numbers.sums) - numbers.zero
        sums = xp.matmul(lower, xp.permute_dims(weights, (1, 0)))
        if numbers.bias is not None:
            sums = sums + _there(xp, x, numbers.bias, numbers.sums)
        return _ended(xp, node, sums, (1, -1))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each weight that a sum meets."""
        return 2.0 * made[0].size * float(node.attributes["numbers"].weights.shape[1])


def _ended(xp: Any, node: Node, sums: Any, across: Shape) -> Any:
    """What sums are worth, within the limits, and whole again where that is asked for."""
    numbers: Whole = node.attributes["numbers"]
    scale = xp.reshape(_there(xp, sums, numbers.scale, "float32"), across)
    y = xp.clip(as_type(xp, sums, "float32") * scale, numbers.low, numbers.high)
    if numbers.step is None:
        return y
    step = xp.full((), numbers.step, dtype=xp.float32, device=y.device)
    shift = xp.full((), numbers.shift, dtype=xp.float32, device=y.device)
    return saturated(xp, xp.round(y / step), shift, NAMES[node.attributes["dtype"]])


def _there(xp: Any, x: Any, numbers: NDArray, dtype: str) -> Any:
    return as_type(xp, xp.asarray(numbers, device=x.device), dtype)


OPERATORS = (ConvInt8(), DenseInt8())
