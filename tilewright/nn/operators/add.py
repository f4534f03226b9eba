"""Add: sums of elements, broadcast."""

from __future__ import annotations

from typing import Any

from tilewright.nn.graph import Node
from tilewright.nn.operators.base import NUMBERS, Elementwise


class Add(Elementwise):
    """a + b; whole numbers wrap around."""

    name = "Add"
    versions = (7, 13, 14)
    dtypes = NUMBERS

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The sum."""
        a, b = given
        return a + b


OPERATORS = (Add(),)
