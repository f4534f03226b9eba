"""Comparisons, logic and choices, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.nn.graph import Node
from tilewright.nn.operators.base import ALL, FLOATS, SIGNED, UNSIGNED, Elementwise
from tilewright.nn.operators.formula import Formula


class IsInf(Elementwise):
    """Which elements are infinite, of the signs that are asked for."""

    name = "IsInf"
    versions = (10, 20)
    dtypes = FLOATS

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Bool."""
        return ("bool",)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """True where it is."""
        (x,) = given
        found = xp.isinf(x)
        if not node.attributes["detect_negative"]:
            found = found & (x > 0)
        return found if node.attributes["detect_positive"] else found & (x < 0)


class Where(Elementwise):
    """One of two inputs, by a third."""

    name = "Where"
    versions = (9, 16)
    dtypes = ALL

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """That of what is chosen from."""
        return (given[1],)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x where the condition holds, else y."""
        return xp.where(*given)


class BitShift(Elementwise):
    """Bits of whole numbers moved left or right."""

    name = "BitShift"
    versions = (11, 28)
    dtypes = (*UNSIGNED, *SIGNED)

    def why_not(self, node: Node) -> str | None:
        """There are two directions."""
        way = node.attributes["direction"]
        known = way in ("LEFT", "RIGHT")
        return None if known else f"direction={way!r}: accepted are 'LEFT' and 'RIGHT'"

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Zeros come in; from the left, copies of the sign."""
        a, b = given
        return a << b if node.attributes["direction"] == "LEFT" else a >> b


OPERATORS = (
    Formula("And", (7,), lambda xp, a, b: a & b, ("bool",)),
    Formula("Equal", (7, 11, 13, 19), lambda xp, a, b: a == b, ALL, "bool"),
    Formula("Greater", (7, 9, 13), lambda xp, a, b: a > b, gives="bool"),
    Formula("GreaterOrEqual", (12, 16), lambda xp, a, b: a >= b, gives="bool"),
    Formula("IsNaN", (9, 13, 20), lambda xp, x: xp.isnan(x), FLOATS, "bool"),
    Formula("Less", (7, 9, 13), lambda xp, a, b: a < b, gives="bool"),
    Formula("LessOrEqual", (12, 16), lambda xp, a, b: a <= b, gives="bool"),
    Formula("Or", (7,), lambda xp, a, b: a | b, ("bool",)),
    Formula("Xor", (7,), lambda xp, a, b: a ^ b, ("bool",)),
    BitShift(),
    IsInf(),
    Where(),
)
