"""Makes convolutions of how classifiers end: the mean of each channel, and a product with weights.

    GlobalAveragePool           every channel by itself, a kernel as large as the picture
    Flatten, Gemm               1 x 1 on a picture of one pixel, then Flatten

So they join the chain, by the same engines: MobileNetV2's end took 0.74 ms by NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.engines.conv import Conv
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.convs import convs_node

_LARGEST = 256  # pixels of a picture whose mean has weights: they are as many for each channel


def with_heads(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """The graph with such nodes as chains of one layer."""
    makers = graph.makers()
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _mean(node, tensors) or _product(node, tensors, makers) or [node]
    return graph.with_nodes(nodes)


def _mean(node: Node, tensors: Mapping[str, Tensor]) -> list[Node] | None:
    """A GlobalAveragePool of small float32 pictures: halves would round the weights."""
    if node.operator != "GlobalAveragePool":
        return None
    x = tensors[node.inputs[0]]
    if len(x.shape) != 4 or x.dtype != "float32" or not 0 < x.shape[2] * x.shape[3] <= _LARGEST:
        return None
    channels, height, width = x.shape[1:]
    weights = np.full((channels, 1, height, width), 1 / (height * width), np.float32)
    layer = Conv(weights, groups=channels)
    return [convs_node(node.name, (layer,), node.inputs[:1], node.outputs[0], ((node.name,),))]


def _product(
    node: Node, tensors: Mapping[str, Tensor], makers: Mapping[str, Node]
) -> list[Node] | None:
    """A Gemm by constants of what was flattened from pictures of one pixel."""
    flat = makers.get(node.inputs[0]) if node.operator == "Gemm" else None
    if flat is None or flat.operator not in ("Flatten", "Reshape", "Squeeze"):
        return None
    x, rows = tensors[flat.inputs[0]], tensors[node.inputs[0]]
    given = [tensors[name] if name else None for name in node.inputs[1:]]
    if x.shape != (*rows.shape, 1, 1) or rows.dtype != "float32" or node.attributes["transA"]:
        return None
    if any(one is not None and one.value is None for one in given) or not rows.shape[0]:
        return None
    layer = _layer(node, given)
    if layer is None:
        return None
    pixels = f"{node.outputs[0]}, as pixels"
    chain = convs_node(node.name, (layer,), flat.inputs[:1], pixels, ((node.name,),))
    made = Node("Flatten", 13, (pixels,), node.outputs, {"axis": 1}, f"flatten {node.name}")
    return [chain, made]


def _layer(node: Node, given: list[Tensor | None]) -> Conv | None:
    """Weights and bias of a Gemm; None where the bias is another for each row."""
    assert given[0] is not None
    weights = np.asarray(given[0].value, np.float32)
    weights = weights if node.attributes["transB"] else weights.T
    weights = np.ascontiguousarray(weights * np.float32(node.attributes["alpha"]))
    bias = None
    if len(given) > 1 and given[1] is not None:
        value = np.asarray(given[1].value, np.float32) * np.float32(node.attributes["beta"])
        if value.ndim == 2 and value.shape[0] != 1:
            return None
        bias = np.ascontiguousarray(np.broadcast_to(value.reshape(-1), weights.shape[:1]))
    return Conv(weights[:, :, None, None], bias)
