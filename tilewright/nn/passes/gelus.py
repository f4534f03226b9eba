"""Joins Gelu as exporters write it, five nodes by Erf, into one.

    Div(x, root 2) -> Erf -> Add(., 1) -> Mul(., x) -> Mul(., 1/2)      in any order of the factors

Erf alone runs by its definition, which took 4.3 ms of NumPy's where the products beside it, which
can end in Gelu, took 0.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tilewright.nn.graph import Graph, Node, Tensor

_NEAR = 1e-3  # of constants: halves have few digits


def with_gelus(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """The graph with such products as one node; the others go where nobody else reads them."""
    at = _Gelus(graph.makers(), tensors)
    return graph.with_nodes([at.gelu(node) or node for node in graph.nodes])


class _Gelus:
    def __init__(self, makers: Mapping[str, Node], tensors: Mapping[str, Tensor]) -> None:
        self._makers, self._tensors = makers, tensors

    def gelu(self, node: Node) -> Node | None:
        """What a Mul is whose three factors are x, 1/2 and 1 + Erf(x / root 2)."""
        if node.operator != "Mul":
            return None
        factors = self._factors(node)
        for number, name in enumerate(factors):
            x = self._inside(name)
            rest = [*factors[:number], *factors[number + 1 :]]
            if x is None or len(rest) != 2 or x not in rest:
                continue
            rest.remove(x)
            if self._is(rest[0], 0.5):
                fields = {"approximate": "none"}
                return replace(node, operator="Gelu", version=20, inputs=(x,), attributes=fields)
        return None

    def _factors(self, node: Node) -> list[str]:
        """Of a product and of the first product among its factors."""
        for index, name in enumerate(node.inputs):
            maker = self._makers.get(name)
            if maker is not None and maker.operator == "Mul":
                return [*maker.inputs, *node.inputs[:index], *node.inputs[index + 1 :]]
        return list(node.inputs)

    def _inside(self, name: str) -> str | None:
        """x, where a value is 1 + Erf(x / root 2)."""
        added = self._made(name, "Add")
        erf = None if added is None else self._beside(added, 1.0)
        maker = None if erf is None else self._made(erf, "Erf")
        if maker is None:
            return None
        source = self._makers.get(maker.inputs[0])
        if source is None or source.operator not in ("Div", "Mul"):
            return None
        if source.operator == "Div":
            whole = self._is(source.inputs[1], math.sqrt(2))
            return source.inputs[0] if whole else None
        return self._beside(source, math.sqrt(0.5))

    def _made(self, name: str, operator: str) -> Node | None:
        maker = self._makers.get(name)
        return maker if maker is not None and maker.operator == operator else None

    def _beside(self, node: Node, value: float) -> str | None:
        """The other input of a node that has this number as one."""
        first, second = node.inputs
        if self._is(second, value):
            return first
        return second if self._is(first, value) else None

    def _is(self, name: str, value: float) -> bool:
        """Whether a value is this one number."""
        known = self._tensors[name].value
        return known is not None and known.size == 1 and abs(float(known.flat[0]) - value) < _NEAR
