"""Makes one node of a channel shuffle: Concat, Reshape, Transpose, Reshape of two or more pictures.

    a b  ->  Concat  ->  [N, 2, C, H, W]  ->  [N, C, 2, H, W]  ->  a0 b0 a1 b1 ...

As four nodes each element was copied four times, and what came of it lay channels first, so that
the next convolution had it laid out anew: a third of ShuffleNetV2's steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.joins import INTERLEAVE


def in_turns(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """The graph with such nodes as one each; those before it go where nobody else reads them."""
    makers = graph.makers()
    return graph.with_nodes([_shuffle(node, makers, tensors) or node for node in graph.nodes])


def _shuffle(node: Node, makers: Mapping[str, Node], tensors: Mapping[str, Tensor]) -> Node | None:
    """What the last Reshape is, if all four are there."""
    found = [node]
    for operator in ("Reshape", "Transpose", "Reshape", "Concat"):
        if found[-1].operator != operator:
            return None
        if operator != "Concat":
            maker = makers.get(found[-1].inputs[0])
            if maker is None:
                return None
            found.append(maker)
    _, turn, split, join = found
    images, channels, *rest = tensors[join.outputs[0]].shape
    count = len(join.inputs)
    parts = {tensors[name].shape for name in join.inputs}
    if len(rest) != 2 or parts != {(images, channels // count, *rest)}:
        return None
    if tensors[split.outputs[0]].shape != (images, count, channels // count, *rest):
        return None
    whole = tensors[node.outputs[0]].shape == tensors[join.outputs[0]].shape
    if not whole or tuple(turn.attributes["perm"]) != (0, 2, 1, 3, 4):
        return None
    return Node(INTERLEAVE, 1, join.inputs, node.outputs, {}, node.name)
