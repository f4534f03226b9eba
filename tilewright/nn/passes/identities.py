"""Makes constants of what an Identity gives of one: torch's exporter writes equal biases so."""

from __future__ import annotations

from tilewright.nn.graph import Graph


def without_identities(graph: Graph) -> Graph:
    """The graph without such nodes; no sizes are asked, as whoever quantises has none."""
    constants, kept = dict(graph.constants), []
    for node in graph.nodes:
        tensor = constants.get(node.inputs[0]) if node.operator == "Identity" else None
        if tensor is None or node.outputs[0] in graph.outputs:
            kept.append(node)
        else:
            constants[node.outputs[0]] = tensor
    return graph.with_nodes(kept, constants)
