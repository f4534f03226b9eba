"""Makes the record that engines are asked with of each convolution of whole numbers.

QuantizeLinear -> ConvInt8      one Convs, which rounds x as it reads it
ConvInt8 -> ConvInt8            one Convs each; chains.py joins them
Flatten -> QuantizeLinear -> DenseInt8      a Convs of 1 x 1 on pictures of one pixel, then flat
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.conv_int8 import DENSE, NAME, Numbers
from tilewright.nn.operators.convs import convs_node
from tilewright.nn.operators.element_types import NAMES
from tilewright.nn.operators.windows import windows_of

_FLAT = ("Flatten", "Reshape", "Squeeze")


def with_whole_convs(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """Each such node as a chain of one layer; nobody may read a QuantizeLinear then."""
    makers = graph.makers()
    nodes: list[Node] = []
    for node in graph.nodes:
        chain = _chain(node, makers, tensors)
        nodes += [chain] if chain else _product(node, makers, tensors) or [node]
    return graph.with_nodes(nodes)


def _chain(node: Node, makers: Mapping[str, Node], tensors: Mapping[str, Tensor]) -> Node | None:
    if node.operator != NAME:
        return None
    numbers: Numbers = node.attributes["numbers"]
    whole, x = numbers.whole, tensors[node.inputs[0]]
    if len(x.shape) != 4 or NAMES[node.attributes["dtype"]] != whole.dtype:
        return None
    source, parts = node.inputs[0], [node.name]
    taken = _taken(makers.get(source), tensors)
    if taken is not None:
        source, parts = makers[source].inputs[0], [makers[source].name, node.name]
        whole = replace(whole, taken=taken)
    windows = windows_of(node.attributes, numbers.weights.shape[2:], x.shape[2:])
    layer = Conv(
        numbers.weights,
        numbers.bias,
        strides=(windows.strides[0], windows.strides[1]),
        dilations=(windows.dilations[0], windows.dilations[1]),
        pads=(windows.pads[0], windows.pads[1], windows.pads[2], windows.pads[3]),
        groups=int(node.attributes["group"]),
        whole=whole,
    )
    return convs_node(node.name, (layer,), (source,), node.outputs[0], (tuple(parts),))


def _product(
    node: Node, makers: Mapping[str, Node], tensors: Mapping[str, Tensor]
) -> list[Node] | None:
    """A dense layer of what was flattened from pictures of one pixel: 1 x 1 there, then flat."""
    if node.operator != DENSE or NAMES[node.attributes["dtype"]] != "float32":
        return None
    numbers: Numbers = node.attributes["numbers"]
    rounding = makers.get(node.inputs[0])
    taken = _taken(rounding, tensors)
    flat = None if rounding is None else makers.get(rounding.inputs[0])
    if taken is None or rounding is None or flat is None or flat.operator not in _FLAT:
        return None
    rows = tensors[rounding.inputs[0]].shape
    if tensors[flat.inputs[0]].shape != (*rows, 1, 1) or not rows[0]:
        return None
    weights = numbers.weights[:, :, None, None]
    layer = Conv(weights, numbers.bias, whole=replace(numbers.whole, taken=taken))
    pixels, parts = f"{node.outputs[0]}, as pixels", ((rounding.name, node.name),)
    chain = convs_node(node.name, (layer,), flat.inputs[:1], pixels, parts)
    made = Node("Flatten", 13, (pixels,), node.outputs, {"axis": 1}, f"flatten {node.name}")
    return [chain, made]


def _taken(node: Node | None, tensors: Mapping[str, Tensor]) -> float | None:
    """The step of a QuantizeLinear of float32 by one number, as layers do it themselves."""
    if node is None or node.operator != "QuantizeLinear":
        return None
    x, step = tensors[node.inputs[0]], tensors[node.inputs[1]]
    if x.dtype != "float32" or step.value is None or node.attributes.get("precision", 0):
        return None
    value: NDArray = np.asarray(step.value)
    return float(value.reshape(-1)[0]) if value.size == 1 and value.dtype == np.float32 else None
