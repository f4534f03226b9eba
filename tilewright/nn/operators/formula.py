"""Operators that are a formula of elements without attributes: what tables of them consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.nn.graph import Node
from tilewright.nn.operators.base import NUMBERS, Elementwise


class Formula(Elementwise):
    """function(xp, *inputs), in the array API; inputs broadcast.

    gives  the element type of the output where it is not that of the first input
    """

    def __init__(
        self,
        name: str,
        versions: tuple[int, ...],
        function: Callable[..., Any],
        dtypes: tuple[str, ...] = NUMBERS,
        gives: str = "",
    ) -> None:
        self.name, self.versions, self.dtypes = name, versions, dtypes
        self._function, self._gives = function, gives

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """What the formula gives."""
        return (self._gives or given[0],)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The formula for all elements at one place."""
        return self._function(xp, *given)
