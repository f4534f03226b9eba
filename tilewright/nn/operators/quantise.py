"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: numbers as small whole ones and back.

    q = saturate(round(x / scale) + zero)        x = (q - zero) * scale        halves round to even

Scale and zero are of all elements, of each slice along an axis, or of blocks along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape
from tilewright.nn.kinds import dtype_name
from tilewright.nn.operators.base import FLOATS, Given, Operator, axis_of
from tilewright.nn.operators.element_types import NAMES, as_type, limits, why_not_type

_SMALL = ("int8", "uint8", "int16", "uint16")


class QuantizeLinear(Operator):
    """Numbers as whole ones."""

    name = "QuantizeLinear"
    versions = (10, 13, 19, 21, 23, 24, 25, 28)
    dtypes = (*FLOATS, "int32", *_SMALL)

    def why_not(self, node: Node) -> str | None:
        """Types that nothing here holds."""
        asked = node.attributes.get("output_dtype", 0)
        if asked and NAMES.get(asked) not in _SMALL:
            return f"output_dtype={asked}: accepted are {', '.join(_SMALL)}"
        return _why_not_precision(node, "precision")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """The zero's, else the one that is asked for, else uint8."""
        zero = given[2] if len(given) > 2 else ""
        return (zero or NAMES[node.attributes.get("output_dtype", 0) or 2],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        return (_checked(node, given),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Divided in the type of the scale, or in `precision`."""
        x, scale, zero = (*given, None)[:3]
        asked = NAMES[node.attributes.get("output_dtype", 0) or 2]
        name = asked if zero is None else dtype_name(zero)
        precision = node.attributes.get("precision", 0)
        wide = NAMES[precision] if precision else dtype_name(scale)
        scale = as_type(xp, placed(xp, node, scale, x), wide)
        ratio = xp.round(as_type(xp, x, wide) / scale)
        return saturated(xp, ratio, placed(xp, node, zero, x), name)


class DequantizeLinear(Operator):
    """Whole numbers as what they stand for."""

    name = "DequantizeLinear"
    versions = (10, 13, 19, 21, 23, 24, 25, 28)
    dtypes = (*FLOATS, "int32", *_SMALL)

    def why_not(self, node: Node) -> str | None:
        """Types that nothing here holds."""
        return _why_not_precision(node, "output_dtype")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """The one that is asked for, else the scale's."""
        asked = node.attributes.get("output_dtype", 0)
        return (NAMES[asked] if asked else given[1],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        return (_checked(node, given),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Subtracted as whole numbers, multiplied in the type of the result."""
        x, scale, zero = (*given, None)[:3]
        lower = as_type(xp, x, "int32")
        if zero is not None:
            lower = lower - as_type(xp, placed(xp, node, zero, x), "int32")
        asked = node.attributes.get("output_dtype", 0)
        name = NAMES[asked] if asked else dtype_name(scale)
        return as_type(xp, lower, name) * as_type(xp, placed(xp, node, scale, x), name)


class DynamicQuantizeLinear(Operator):
    """Numbers as uint8 by a scale and a zero that their own range gives."""

    name = "DynamicQuantizeLinear"
    versions = (11,)
    dtypes = ("float32",)

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """The numbers, the scale, the zero."""
        return ("uint8", "float32", "uint8")[: len(node.outputs)]

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x, and two single numbers."""
        assert given[0] is not None
        return (given[0].shape, (), ())[: len(node.outputs)]

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The range is widened to hold 0, so that 0 stays exact."""
        (x,) = given
        none = xp.zeros((), dtype=x.dtype, device=x.device)
        low, high = xp.minimum(xp.min(x), none), xp.maximum(xp.max(x), none)
        scale = (high - low) / 255
        scale = xp.where(scale == 0, xp.ones_like(scale), scale)
        zero = as_type(xp, xp.clip(xp.round(-low / scale), 0, 255), "uint8")
        return (saturated(xp, xp.round(x / scale), zero, "uint8"), scale, zero)


def saturated(xp: Any, ratio: Any, zero: Any, name: str) -> Any:
    """round(ratio) + zero as a whole number of a type: its ends beyond them, the least for NaN."""
    low, high = limits(name)
    if dtype_name(ratio) != "float64":
        ratio = as_type(xp, ratio, "float32")
    if zero is not None:
        ratio = ratio + as_type(xp, zero, dtype_name(ratio))
    least, most = (xp.full((), n, dtype=ratio.dtype, device=ratio.device) for n in (low, high))
    return as_type(xp, xp.minimum(xp.where(ratio > least, ratio, least), most), name)


def placed(xp: Any, node: Node, numbers: Any, x: Any) -> Any:
    """A scale or a zero such that it broadcasts against x."""
    if numbers is None or numbers.ndim == 0 or tuple(numbers.shape) == (1,):
        return numbers if numbers is None or numbers.ndim == 0 else xp.reshape(numbers, ())
    axis = axis_of(node.attributes.get("axis", 1), x.ndim) if x.ndim > 1 else 0
    if numbers.ndim == 1 and not node.attributes.get("block_size", 0):
        return xp.reshape(numbers, (-1, *[1] * (x.ndim - 1 - axis)))
    size = node.attributes["block_size"]
    many = xp.repeat(numbers, size, axis=axis)
    return many[(*[slice(None)] * axis, slice(0, x.shape[axis]))]


def _checked(node: Node, given: Given) -> Shape:
    """Sizes of x. Raises ShapeError for a scale that does not fit them."""
    x, scale, zero = (*given, None)[:3]
    assert x is not None
    assert scale is not None
    single = scale.size == 1 and len(scale.shape) < 2
    alike = zero is None or zero.shape == scale.shape  # one number may be [] or [1], as files mix
    if zero is not None and not alike and not (single and zero.shape in ((), (1,))):
        raise ShapeError(f"scale {list(scale.shape)}, zero {list(zero.shape)}; accepted are equal")
    block = node.attributes.get("block_size", 0)
    if single:
        return x.shape
    axis = axis_of(node.attributes.get("axis", 1), len(x.shape)) if len(x.shape) > 1 else 0
    if block:
        blocks = -(-x.shape[axis] // block)
        wanted: Shape = (*x.shape[:axis], blocks, *x.shape[axis + 1 :])
    else:
        wanted = (x.shape[axis],)
    if scale.shape != wanted:
        raise ShapeError(f"scale {list(scale.shape)}; accepted are [] and {list(wanted)}")
    return x.shape


def _why_not_precision(node: Node, name: str) -> str | None:
    asked = node.attributes.get(name, 0)
    return why_not_type(asked, name) if asked else None


OPERATORS = (DequantizeLinear(), DynamicQuantizeLinear(), QuantizeLinear())
