"""Relu: what is below zero becomes zero; NaN stays."""

from __future__ import annotations

from typing import Any

from tilewright.nn.graph import Node
from tilewright.nn.operators.base import FLOATS, SIGNED, Elementwise


class Relu(Elementwise):
    """max(x, 0)."""

    name = "Relu"
    versions = (6, 13, 14)
    dtypes = (*FLOATS, *SIGNED)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """max(x, 0), and NaN for NaN."""
        (x,) = given
        return xp.where(x < 0, xp.zeros_like(x), x)


OPERATORS = (Relu(),)
