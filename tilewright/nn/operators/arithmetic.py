"""Arithmetic of inputs that broadcast, element by element: a line each, and Mod."""

from __future__ import annotations

import functools
import operator
from typing import Any

from tilewright.nn.graph import Node
from tilewright.nn.operators.activations import leaky
from tilewright.nn.operators.base import FLOATS, NUMBERS, SIGNED, UNSIGNED, Elementwise
from tilewright.nn.operators.formula import Formula


class Mod(Elementwise):
    """What a division leaves, with the divisor's sign, or with fmod=1 the dividend's."""

    name = "Mod"
    versions = (10, 13, 28)
    dtypes = NUMBERS

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """a - b * (a / b rounded down, or towards zero)."""
        a, b = given
        return xp.fmod(a, b) if node.attributes["fmod"] else xp.remainder(a, b)


def _quotient(xp: Any, a: Any, b: Any) -> Any:
    """a / b; of whole numbers rounded towards zero."""
    if xp.isdtype(a.dtype, "real floating"):
        return a / b
    down = a // b
    return down + xp.asarray((down * b != a) & ((a < 0) != (b < 0)), dtype=down.dtype)


def _sum(xp: Any, *given: Any) -> Any:
    return functools.reduce(operator.add, given)


OPERATORS = (
    Formula("Add", (7, 13, 14), lambda xp, a, b: a + b),
    Formula("BitwiseAnd", (18,), lambda xp, a, b: a & b, (*SIGNED, *UNSIGNED)),
    Formula("BitwiseOr", (18,), lambda xp, a, b: a | b, (*SIGNED, *UNSIGNED)),
    Formula("BitwiseXor", (18,), lambda xp, a, b: a ^ b, (*SIGNED, *UNSIGNED)),
    Formula("Div", (7, 13, 14), _quotient),
    Formula("Mul", (7, 13, 14), lambda xp, a, b: a * b),
    Formula("PRelu", (7, 9, 16), lambda xp, x, slope: leaky(xp, x, slope)),
    Formula("Pow", (7, 12, 13, 15), lambda xp, a, b: a**b),  # of a's type
    Formula("Sub", (7, 13, 14), lambda xp, a, b: a - b),
    Formula("Max", (6, 8, 12, 13), lambda xp, *given: functools.reduce(xp.maximum, given)),
    Formula("Mean", (6, 8, 13), lambda xp, *given: _sum(xp, *given) / len(given), FLOATS),
    Formula("Min", (6, 8, 12, 13), lambda xp, *given: functools.reduce(xp.minimum, given)),
    Formula("Sum", (6, 8, 13), _sum, FLOATS),
    Mod(),
)
