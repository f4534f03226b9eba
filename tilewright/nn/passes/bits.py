"""Joins the layers of a network of bits, so that its compiled program runs them as passes."""

from __future__ import annotations

from tilewright.nn.graph import Graph, Node
from tilewright.nn.operators.bits import BITS, LAYER


def joined_bits(graph: Graph) -> Graph:
    """The graph with one node for all layers of each network of bits.

    Layers stay alone where another node, or a caller, reads a value between them.
    """
    networks = {id(n.attributes["of"]): n.attributes["of"] for n in graph.nodes if _is_layer(n)}
    for network in networks.values():
        names = {layer.name for layer in network.layers}
        mine = [n for n in graph.nodes if _is_layer(n) and n.attributes["of"] is network]
        outside = [n for n in graph.nodes if n not in mine]
        read = {name for n in outside for name in n.inputs} | set(graph.outputs)
        sources = {name for n in mine for name in n.inputs} - names
        made = {n.outputs[0] for n in mine}
        if network.output not in made or len(sources) != 1 or read & names - {network.output}:
            continue
        whole = Node(
            BITS,
            1,
            tuple(sources),
            (network.output,),
            {"network": network, "parts": (tuple(layer.name for layer in network.layers),)},
            "bits",
        )
        at = graph.nodes.index(mine[-1])
        kept = [whole if i == at else n for i, n in enumerate(graph.nodes)]
        graph = graph.with_nodes([n for n in kept if n not in mine])
    return graph


def _is_layer(node: Node) -> bool:
    return node.operator == LAYER
