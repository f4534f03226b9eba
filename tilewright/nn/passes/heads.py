"""Makes convolutions of means, and of how classifiers end: a product with weights.

    GlobalAveragePool, ReduceMean of rows and columns
                                every channel by itself, a kernel as large as the picture
    ReduceMean of channels      1 x 1, of equal weights
    Flatten, Gemm               1 x 1 on a picture of one pixel, then Flatten

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
    """A Gemm by constants of pictures of one pixel, flattened, or of means."""
    flat = makers.get(node.inputs[0]) if node.operator == "Gemm" else None
    if flat is None:
        return None
    rows = tensors[node.inputs[0]]
    source = flat.inputs[0] if flat.inputs else ""
    if flat.operator == "ReduceMean":
        made = _mean(flat, tensors)
        if made is None or len(made) == 1:
            return None
        source = _pixels(flat)
    elif flat.operator not in ("Flatten", "Reshape", "Squeeze") or tensors[source].shape != (
        *rows.shape,
        1,
        1,
    ):
        return None
    given = [tensors[name] if name else None for name in node.inputs[1:]]
    if rows.dtype != "float32" or node.attributes["transA"]:
        return None
    if any(one is not None and one.value is None for one in given) or not rows.shape[0]:
        return None
    layer = _layer(node, given)
    if layer is None:
        return None
    chain = convs_node(node.name, (layer,), (source,), _pixels(node), ((node.name,),))
    return [chain, _flattened(node)]


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
