"""Takes a Pad of zeros into the convolution that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.convs import NAME, convs_node

Pads = tuple[int, int, int, int]


def padded(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """The graph in which such convolutions pad by themselves."""
    makers, kept = graph.makers(), []
    for node in graph.nodes:
        pad = makers.get(node.inputs[0]) if node.operator == NAME else None
        pads = None if pad is None else _zeros(pad, tensors)
        if pad is None or pads is None:
            kept.append(node)
            continue
        (layer,) = node.attributes["layers"]
        if layer.whole is not None and layer.whole.taken is None:
            kept.append(node)  # what stands for 0 there may be another number
            continue
        top, left, bottom, right = (a + b for a, b in zip(layer.pads, pads, strict=True))
        layer = replace(layer, pads=(top, left, bottom, right))
        parts = ((pad.name, *node.attributes["parts"][0]),)
        kept.append(convs_node(node.name, (layer,), pad.inputs[:1], node.outputs[0], parts))
    return graph.with_nodes(kept)


def _zeros(node: Node, tensors: Mapping[str, Tensor]) -> Pads | None:
    """Rows and columns of zeros that a Pad puts round pictures; None where it does anything else.

    The Pad itself stays for others that read it, and goes where nobody does.
    """
    if node.operator != "Pad" or node.attributes.get("mode", "constant") != "constant":
        return None
    pads = node.attributes.get("pads")
    value = node.attributes.get("value", 0.0)
    if pads is None:
        given = [tensors[name].value if name else None for name in node.inputs[1:]]
        if given[0] is None or (len(given) > 2 and given[2] is not None):
            return None
        if len(node.inputs) > 2 and node.inputs[2]:
            if given[1] is None:
                return None
            value = float(given[1].reshape(-1)[0])
        pads = given[0].tolist()
    whole = len(pads) == 8 and not any(pads[i] for i in (0, 1, 4, 5)) and min(pads) >= 0
    return (pads[2], pads[3], pads[6], pads[7]) if whole and value == 0 else None
