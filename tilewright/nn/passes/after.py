"""Takes what follows a convolution into it: node after node, while each has one reader.

Convs -> BatchNormalization -> Add(·, residual) -> Relu -> DepthToSpace      one Convs
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.convs import NAME, convs_node
from tilewright.nn.passes.epilogues import taken


def followed(graph: Graph, tensors: Mapping[str, Tensor], whole_adds: bool = False) -> Graph:
    """The graph with every such node taken in, until none is left.

    whole_adds: residuals go into convolutions of whole numbers too.

    A convolution moves to the place of what it takes in: what that reads is there by then.
    """
    readers, last = graph.readers(), set(graph.outputs)
    chains: dict[str, Node] = {}  # by the value that each gives at present
    kept: list[Node] = []
    for node in graph.nodes:
        if node.operator == NAME:
            chains[node.outputs[0]] = node
            kept.append(node)
            continue
        made = _merged(node, chains, readers, last, tensors, whole_adds)
        if made is None:
            kept.append(node)
            continue
        old, new = made
        kept = [one for one in kept if one is not old]
        kept.append(new)
        del chains[old.outputs[0]]
        chains[new.outputs[0]] = new
    return graph.with_nodes(kept)


def _merged(
    node: Node,
    chains: Mapping[str, Node],
    readers: Mapping[str, list[Node]],
    last: set[str],
    tensors: Mapping[str, Tensor],
    whole_adds: bool,
) -> tuple[Node, Node] | None:
    """A chain and the one that it becomes with this node; the chain that was made last is asked
    first, as a residual is there before it."""
    asked = [chains[name] for name in node.inputs if name in chains]
    order = list(chains.values())
    for chain in sorted(asked, key=order.index, reverse=True):
        name = chain.outputs[0]
        if name in last or any(reader is not node for reader in readers[name]):
            continue
        (layer,) = chain.attributes["layers"]
        found = taken(layer, node, name, tensors, whole_adds)
        if found is not None:
            new, added = found
            parts = ((*chain.attributes["parts"][0], node.name),)
            inputs = (*chain.inputs, *added)
            return chain, convs_node(chain.name, (new,), inputs, node.outputs[0], parts)
    return None
