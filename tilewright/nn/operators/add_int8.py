"""DequantizeLinear twice, Add, Relu or Clip, QuantizeLinear in one: a residual of whole numbers.

    q = saturated(round(clip((a - zero) * scale + (b - zero) * scale, low, high) / step) + shift)

Every step is one float32 operation with one rounding, in the order of the nodes it stands for, so
that all devices give their bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.engines.values import Summand
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.operators.base import Elementwise, Given
from tilewright.nn.operators.element_types import as_type
from tilewright.nn.operators.quantise import saturated

NAME = "AddInt8"


@dataclass(frozen=True, slots=True)
class SumNumbers:
    """Attributes of such a sum.

    summands     what a and b are worth
    low, high    limits of the sum: those of an activation
    step, shift, dtype   of the result
    """

    summands: tuple[Summand, Summand]
    step: float
    shift: int
    dtype: str
    low: float = -math.inf
    high: float = math.inf


class AddInt8(Elementwise):
    """The attribute `numbers`, a `SumNumbers`."""

    name = NAME
    versions = (1,)
    dtypes = ("int8", "uint8", "float32")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """That of the result's zero."""
        return (node.attributes["numbers"].dtype,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """One operation after another."""
        numbers: SumNumbers = node.attributes["numbers"]
        a, b = (_worth(xp, x, one) for x, one in zip(given, numbers.summands, strict=True))
        y = xp.clip(a + b, numbers.low, numbers.high)
        step, shift = (
            xp.full((), number, dtype=xp.float32, device=y.device)
            for number in (numbers.step, numbers.shift)
        )
        return saturated(xp, xp.round(y / step), shift, numbers.dtype)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two products, the sum, a division and a rounding."""
        return 5.0 * made[0].size


def _worth(xp: Any, x: Any, summand: Summand) -> Any:
    """As DequantizeLinear has it; float32 as it is."""
    if summand.scale is None:
        return x
    lower = as_type(xp, as_type(xp, x, "int32") - summand.zero, "float32")
    return lower * xp.full((), summand.scale, dtype=xp.float32, device=x.device)


OPERATORS = (AddInt8(),)
