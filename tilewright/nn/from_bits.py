"""Networks of bits as networks of any operators, and back: each layer is a node.

    onebit.Network  --of_bits-->  Network: LayerOfBits nodes  --passes/bits.py-->  one Bits node

What is bound runs the same compiled program as before, bit for bit. The input is [N, height, width,
channels] or [N, features], N free; scores of one pixel are [N, channels].
"""

from __future__ import annotations

import numpy as np

from tilewright.nn.graph import Graph, Input, Node, Tensor
from tilewright.nn.net import Network
from tilewright.nn.network_of_bits import INPUT
from tilewright.nn.network_of_bits import Network as NetworkOfBits
from tilewright.nn.operators.bits import LAYER

_ROWS, _SCORES = "sizes of rows", "scores"


def of_bits(network: NetworkOfBits, title: str = "network of bits") -> Network:
    """The network with a node for each layer of a `tilewright.onebit.Network`."""
    nodes = [
        Node(
            LAYER,
            1,
            layer.inputs,
            (layer.name,),
            {"layer": layer, "value": network.values[layer.name], "of": network},
            layer.name,
        )
        for layer in network.layers
    ]
    value = network.values[network.output]
    constants, output = {}, network.output
    if (value.height, value.width) == (1, 1):
        rows = np.array([0, value.channels])
        constants[_ROWS] = Tensor((2,), "int64", rows)
        output = f"{_SCORES} of {network.output}"
        nodes.append(Node("Reshape", 14, (network.output, _ROWS), (output,), {"allowzero": 0}))
    source = Input(INPUT, ("N", *network.input_shape), "float32")
    return Network(Graph(tuple(nodes), (source,), (output,), constants), title)


def bits_of(network: Network) -> NetworkOfBits | None:
    """The network of bits that `of_bits` was given; None for any other network."""
    found = {id(n.attributes["of"]): n for n in network.graph.nodes if n.operator == LAYER}
    others = [n for n in network.graph.nodes if n.operator not in (LAYER, "Reshape")]
    if len(found) != 1 or others:
        return None
    (node,) = found.values()
    whole: NetworkOfBits = node.attributes["of"]
    return whole
