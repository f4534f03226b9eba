"""Joins gates that exporters write as several nodes: x * Sigmoid(x), x * HardSigmoid(x).

The node that comes of it is one that ONNX has for newer files (HardSwish), or our own (Silu), and
a convolution before it can take it in.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.nn.graph import Graph, Node
from tilewright.nn.operators.convs import SILU

_SIXTH = 1 / 6


def gated(graph: Graph) -> Graph:
    """The graph with such products as one node; the sigmoid goes where nobody else reads it."""
    makers = graph.makers()
    return graph.with_nodes([_gate(node, makers) or node for node in graph.nodes])


def _gate(node: Node, makers: dict[str, Node]) -> Node | None:
    """What a Mul of a value with a sigmoid of it is."""
    if node.operator != "Mul":
        return None
    for value, other in (node.inputs, node.inputs[::-1]):
        maker = makers.get(other)
        if maker is None or maker.inputs[:1] != (value,):
            continue
        if maker.operator == "Sigmoid":
            return replace(node, operator=SILU, version=1, inputs=(value,), attributes={})
        if maker.operator == "HardSigmoid" and _is_swish(maker):
            return replace(node, operator="HardSwish", version=14, inputs=(value,), attributes={})
    return None


def _is_swish(node: Node) -> bool:
    """alpha is a sixth, as far as float32 can say so, and beta a half."""
    alpha, beta = node.attributes["alpha"], node.attributes["beta"]
    return bool(abs(alpha - _SIXTH) < 1e-7 and beta == 0.5)
