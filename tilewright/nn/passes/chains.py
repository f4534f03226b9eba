"""Joins convolutions that follow each other, each value between them read by the next alone."""

from __future__ import annotations

from tilewright.nn.graph import Graph, Node
from tilewright.nn.operators.convs import NAME, convs_node


def chained(graph: Graph) -> Graph:
    """The graph with chains as long as they can be; binding cuts them where that is faster."""
    readers, last = graph.readers(), set(graph.outputs)
    open_: dict[str, Node] = {}  # chains that may go on, by the value that they give
    kept: list[Node] = []
    for node in graph.nodes:
        if node.operator == NAME:
            before = open_.pop(node.inputs[0], None)
            if before is not None and _goes_on(before, node):
                kept = [one for one in kept if one is not before]
                node = _joined(before, node)
            name = node.outputs[0]
            if name not in last and len(readers[name]) == 1:
                open_[name] = node
        kept.append(node)
    return graph.with_nodes(kept)


def _goes_on(first: Node, second: Node) -> bool:
    """Whether a chain gives what the next takes: floats, or whole numbers as they are."""
    last, following = first.attributes["layers"][-1].whole, second.attributes["layers"][0].whole
    if last is None or following is None:
        return last is following
    return last.dtype == following.source and following.taken is None


def _joined(first: Node, second: Node) -> Node:
    layers, parts = (
        (*first.attributes[part], *second.attributes[part]) for part in ("layers", "parts")
    )
    inputs = (*first.inputs, *second.inputs[1:])
    return convs_node(first.name, layers, inputs, second.outputs[0], parts)
