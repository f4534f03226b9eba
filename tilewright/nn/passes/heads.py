"""Makes convolutions of means, and of how classifiers end: a product with weights.

    GlobalAveragePool, ReduceMean of rows and columns
                                every channel by itself, a kernel as large as the picture
    ReduceMean of channels      1 x 1, of equal weights
    Gemm of flattened pictures of one pixel, or of one row
                                1 x 1 on a picture of one pixel, then Flatten

So they join the chain, by the same engines: MobileNetV2's end took 0.74 ms by NumPy, and a
definition between engines ends the program that all cores run together.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.engines.conv import Conv
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.convs import convs_node

_LARGEST = 256  # pixels of a picture whose mean has weights: they are as many for each channel
_FEW = 16  # channels whose mean is a convolution
_WEIGHTS = 1 << 22  # of a product of one row that is one


def with_heads(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """The graph with such nodes as chains of one layer."""
    makers = graph.makers()
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _mean(node, tensors) or _product(node, tensors, makers) or [node]
    return graph.with_nodes(nodes)


def _mean(node: Node, tensors: Mapping[str, Tensor]) -> list[Node] | None:
    """A mean of float32 pictures, small, or of few channels: halves would round the weights."""
    axes = _axes(node, tensors)
    x = tensors[node.inputs[0]] if axes else None
    if x is None or len(x.shape) != 4 or x.dtype != "float32" or not x.size:
        return None
    channels, height, width = x.shape[1:]
    flat = len(tensors[node.outputs[0]].shape) == 2
    if axes == (2, 3) and height * width <= _LARGEST:
        weights = np.full((channels, 1, height, width), 1 / (height * width), np.float32)
        layer = Conv(weights, groups=channels)
    elif axes == (1,) and channels <= _FEW and len(tensors[node.outputs[0]].shape) == 4:
        layer = Conv(np.full((1, channels, 1, 1), 1 / channels, np.float32))
    else:
        return None
    result = _pixels(node) if flat else node.outputs[0]
    chain = convs_node(node.name, (layer,), node.inputs[:1], result, ((node.name,),))
    return [chain, _flattened(node)] if flat else [chain]


def _axes(node: Node, tensors: Mapping[str, Tensor]) -> tuple[int, ...]:
    """What a mean is over; nothing where it is none, or nobody knows."""
    if node.operator == "GlobalAveragePool":
        return (2, 3)
    if node.operator != "ReduceMean":
        return ()
    axes = node.attributes.get("axes")
    if len(node.inputs) > 1 and node.inputs[1]:
        value = tensors[node.inputs[1]].value
        axes = None if value is None else value.tolist()
    rank = len(tensors[node.inputs[0]].shape)
    return tuple(sorted(int(axis) % rank for axis in axes)) if axes else ()


def _pixels(node: Node) -> str:
    """The name of a node's result as a picture of one pixel."""
    return f"{node.outputs[0]}, as pixels"


def _flattened(node: Node) -> Node:
    """That picture as rows, as the node gives it."""
    return Node("Flatten", 13, (_pixels(node),), node.outputs, {"axis": 1}, f"flatten {node.name}")


def _product(
    node: Node, tensors: Mapping[str, Tensor], makers: Mapping[str, Node]
) -> list[Node] | None:
    """A Gemm by constants: of pictures of one pixel, flattened, of means, or of one short row."""
    if node.operator != "Gemm" or node.attributes["transA"]:
        return None
    rows = tensors[node.inputs[0]]
    given = [tensors[name] if name else None for name in node.inputs[1:]]
    if any(one is not None and one.value is None for one in given) or not rows.shape[0]:
        return None
    layer = _layer(node, given) if rows.dtype == "float32" else None
    if layer is None:
        return None
    source, before = _source(makers.get(node.inputs[0]), tensors), []
    if source is None:
        if rows.shape[0] > 1 or not 0 < layer.weights.size <= _WEIGHTS:
            return None
        source = f"{node.outputs[0]}, of pixels"
        name = f"pixels for {node.name}"
        before = [Node("Unsqueeze", 11, node.inputs[:1], (source,), {"axes": [2, 3]}, name)]
    chain = convs_node(node.name, (layer,), (source,), _pixels(node), ((node.name,),))
    return [*before, chain, _flattened(node)]


def _source(flat: Node | None, tensors: Mapping[str, Tensor]) -> str | None:
    """The picture of one pixel that a node makes rows of."""
    if flat is not None and flat.operator == "ReduceMean":
        made = _mean(flat, tensors)
        return None if made is None or len(made) == 1 else _pixels(flat)
    if flat is None or flat.operator not in ("Flatten", "Reshape", "Squeeze"):
        return None
    pixels = (*tensors[flat.outputs[0]].shape, 1, 1)
    return flat.inputs[0] if tensors[flat.inputs[0]].shape == pixels else None


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
