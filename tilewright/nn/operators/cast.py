"""Cast and CastLike: elements in another type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.nn.graph import Node, Shape
from tilewright.nn.kinds import dtype_name
from tilewright.nn.operators.base import Given, Operator
from tilewright.nn.operators.element_types import NAMES, as_type, why_not_type


class Cast(Operator):
    """To the type that an attribute names."""

    name = "Cast"
    versions = (6, 9, 13, 19, 21, 23, 24, 25, 28)

    def why_not(self, node: Node) -> str | None:
        """Types that nothing here holds."""
        return why_not_type(node.attributes["to"], "to")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """The type that is named."""
        return (NAMES[node.attributes["to"]],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's conversion: fractions cut off, false for 0."""
        return as_type(xp, given[0], NAMES[node.attributes["to"]])


class CastLike(Operator):
    """To the type of another input."""

    name = "CastLike"
    versions = (15, 19, 21, 23, 24, 25)

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """That of the second input."""
        return (given[1],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's conversion; NumPy's halves are float32 and rounded later."""
        x, like = given
        return as_type(xp, x, dtype_name(like))


OPERATORS = (Cast(), CastLike())
