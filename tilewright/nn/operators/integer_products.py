"""Products of small whole numbers: QLinearMatMul, QLinearConv, MatMulInteger, ConvInteger.

Zeros are taken off first, then float64 sums up: products of 8 bits fit in it exactly for up to 2^37
of them, and libraries multiply matrices of it fast, of whole numbers slowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.kinds import dtype_name
from tilewright.nn.operators.base import FLOATS, Given, Operator
from tilewright.nn.operators.conv import Conv, convolved, room_of
from tilewright.nn.operators.element_types import as_type
from tilewright.nn.operators.products import product_shape
from tilewright.nn.operators.quantise import saturated
from tilewright.nn.operators.windows import windows_of

_BYTES = ("int8", "uint8")


class _Sums(Operator):
    """Where x, weights, their scales and zeros, the result's, and a bias are among the inputs."""

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each product."""
        weights = given[self._weights]
        assert weights is not None
        assert given[0] is not None
        inner = given[0].shape[-1]
        if "group" in node.attributes:
            inner = weights.size // weights.shape[0]
        return 2.0 * made[0].size * inner

    _weights = 1


class MatMulInteger(_Sums):
    """Sums as int32; the zero of A may be one for each row, that of B for each column."""

    name = "MatMulInteger"
    versions = (10,)
    dtypes = _BYTES

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Sums are int32."""
        return ("int32",)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As MatMul."""
        return (product_shape(given[0], given[1]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """(A - zero) * (B - zero)."""
        a, b, a_zero, b_zero = (*given, None, None)[:4]
        sums = xp.matmul(_lower(xp, a, _rows(a_zero)), _lower(xp, b, b_zero))
        return as_type(xp, sums, "int32")


class ConvInteger(_Sums):
    """Sums as int32; what is padded is the zero."""

    name = "ConvInteger"
    versions = (10,)
    dtypes = _BYTES

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Sums are int32."""
        return ("int32",)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As Conv."""
        return Conv().shapes(node, given[:2])

    def scratch(self, node: Node, given: Given) -> int:
        """As of all convolutions here."""
        return _scratch(node, given[0], given[1])

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The convolution of x - zero with w - zero."""
        x, w, x_zero, w_zero = (*given, None, None)[:4]
        sums = _convolution(xp, node.attributes, x, w, x_zero, w_zero)
        return as_type(xp, sums, "int32")


class QLinearMatMul(_Sums):
    """Sums scaled and rounded to whole numbers of the result's zero."""

    name = "QLinearMatMul"
    versions = (10, 21)
    dtypes = (*_BYTES, *FLOATS)
    _weights = 3

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """That of the result's zero."""
        return (given[7],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As MatMul."""
        return (product_shape(given[0], given[3]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """A's scale and zero may be one for each row, B's for each column."""
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = given
        sums = xp.matmul(_lower(xp, a, _rows(a_zero)), _lower(xp, b, b_zero))
        factor = _wide(xp, _rows(a_scale)) * _wide(xp, b_scale) / _wide(xp, y_scale)
        return saturated(xp, xp.round(sums * factor), y_zero, dtype_name(y_zero))


class QLinearConv(_Sums):
    """Sums with an int32 bias, scaled and rounded to whole numbers of the result's zero."""

    name = "QLinearConv"
    versions = (10,)
    dtypes = (*_BYTES, "int32", "float32")
    _weights = 3

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """That of the result's zero."""
        return (given[7],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As Conv."""
        bias = given[8] if len(given) > 8 else None
        return Conv().shapes(node, (given[0], given[3], bias))

    def scratch(self, node: Node, given: Given) -> int:
        """As of all convolutions here."""
        return _scratch(node, given[0], given[3])

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The weights' scale and zero may be one for each output."""
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*given, None)[:9]
        sums = _convolution(xp, node.attributes, x, w, x_zero, w_zero)
        channels = (1, -1, *[1] * (x.ndim - 2))
        if bias is not None:
            sums = sums + xp.reshape(_wide(xp, bias), channels)
        factor = _wide(xp, x_scale) * _wide(xp, w_scale) / _wide(xp, y_scale)
        factor = xp.reshape(factor, channels) if factor.ndim == 1 else factor
        return saturated(xp, xp.round(sums * factor), y_zero, dtype_name(y_zero))


def _scratch(node: Node, x: Tensor | None, w: Tensor | None) -> int:
    """x and the sums in float64, and what their convolution takes besides."""
    assert x is not None
    assert w is not None
    windows = windows_of(node.attributes, w.shape[2:], x.shape[2:])
    sums = x.shape[0] * w.shape[0] * math.prod(windows.counts(x.shape[2:]))
    return 8 * (x.size + sums + room_of(x.shape, w.shape[0], windows))


def _convolution(
    xp: Any, attributes: Mapping[str, Any], x: Any, w: Any, x_zero: Any, w_zero: Any
) -> Any:
    """Sums in float64, zeros taken off; the weights' may be one for each output."""
    if w_zero is not None and w_zero.ndim == 1:
        w_zero = xp.reshape(w_zero, (-1, *[1] * (w.ndim - 1)))
    windows = windows_of(attributes, tuple(w.shape[2:]), tuple(x.shape[2:]))
    lower = (_lower(xp, x, x_zero), _lower(xp, w, w_zero))
    return convolved(xp, *lower, None, windows, int(attributes["group"]))


def _lower(xp: Any, numbers: Any, zero: Any) -> Any:
    """numbers - zero in float64."""
    return _wide(xp, numbers) if zero is None else _wide(xp, numbers) - _wide(xp, zero)


def _wide(xp: Any, numbers: Any) -> Any:
    return as_type(xp, numbers, "float64")


def _rows(numbers: Any) -> Any:
    """Numbers of all rows: one, or one for each row."""
    many = numbers is not None and numbers.ndim == 1 and numbers.shape[0] > 1
    return numbers[:, None] if many else numbers


OPERATORS = (ConvInteger(), MatMulInteger(), QLinearConv(), QLinearMatMul())
