"""Leaves out nodes whose values nobody reads, and constants that no node does."""

from __future__ import annotations

from tilewright.nn.graph import Graph


def without_dead(graph: Graph) -> Graph:
    """The nodes that the outputs depend on."""
    wanted = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    constants = {name: tensor for name, tensor in graph.constants.items() if name in wanted}
    return graph.with_nodes(kept[::-1], constants)
