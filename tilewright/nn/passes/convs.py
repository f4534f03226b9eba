"""Makes the record that engines are asked with of each Conv of pictures with constant weights.

And of each ConvTranspose that is a Conv and a pixel shuffle (transposed.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.operators.convs import convs_node
from tilewright.nn.operators.windows import windows_of
from tilewright.nn.passes.transposed import plain


def with_convs(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """Each such node as a chain of one layer, without an activation."""
    return graph.with_nodes(
        [_chain(node, tensors) or plain(node, tensors) or node for node in graph.nodes]
    )


def _chain(node: Node, tensors: Mapping[str, Tensor]) -> Node | None:
    if node.operator != "Conv":
        return None
    x, weights, *rest = (tensors[name] if name else None for name in node.inputs)
    bias = rest[0] if rest else None
    assert x is not None
    assert weights is not None
    known = weights.value is not None and (bias is None or bias.value is not None)
    if len(x.shape) != 4 or not known or x.dtype == "float64":
        return None
    windows = windows_of(node.attributes, weights.shape[2:], x.shape[2:])
    layer = Conv(
        floats(weights.value),
        None if bias is None else floats(bias.value),
        strides=(windows.strides[0], windows.strides[1]),
        dilations=(windows.dilations[0], windows.dilations[1]),
        pads=(windows.pads[0], windows.pads[1], windows.pads[2], windows.pads[3]),
        groups=int(node.attributes["group"]),
    )
    return convs_node(node.name, (layer,), (node.inputs[0],), node.outputs[0], ((node.name,),))


def floats(value: NDArray | None) -> NDArray:
    """Weights as float32, in one piece; torch warns of memory that may not be written."""
    assert value is not None
    return np.require(value, np.float32, ["C", "W"])
