"""Makes the record that engines are asked with of each convolution of whole numbers.

QuantizeLinear -> ConvInt8        one Convs, which rounds x as it reads it
ConvInt8 -> ConvInt8              one Convs each; chains.py joins them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.conv_int8 import NAME, Numbers
from tilewright.nn.operators.convs import convs_node
from tilewright.nn.operators.element_types import NAMES
from tilewright.nn.operators.windows import windows_of


def with_whole_convs(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """Each such node as a chain of one layer; nobody may read a QuantizeLinear then."""
    makers = graph.makers()
    return graph.with_nodes([_chain(node, makers, tensors) or node for node in graph.nodes])


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


def _taken(node: Node | None, tensors: Mapping[str, Tensor]) -> float | None:
    """The step of a QuantizeLinear of float32 by one number, as layers do it themselves."""
    if node is None or node.operator != "QuantizeLinear":
        return None
    x, step = tensors[node.inputs[0]], tensors[node.inputs[1]]
    if x.dtype != "float32" or step.value is None or node.attributes.get("precision", 0):
        return None
    value: NDArray = np.asarray(step.value)
    return float(value.reshape(-1)[0]) if value.size == 1 and value.dtype == np.float32 else None
