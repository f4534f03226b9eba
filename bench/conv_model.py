"""Chains of convolutions: the networks that figures are given of, and a chain as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.engines.conv import Activation, Conv, ConvWork
from tilewright.nn.graph import Node
from tilewright.nn.net import Network

CHANNELS = {
    "S": (1, 16, 16, 16, 16, 4),
    "M": (1, 32, 32, 32, 32, 32, 4),
    "L": (1, *[64] * 9, 4),
}


def drawn(channels: Sequence[int], height: int, width: int, **options: Any) -> ConvWork:
    """3x3 layers, ReLU between, a pixel shuffle by 2 at the end; weights drawn as He's."""
    rng = np.random.default_rng(0)
    layers = []
    for number, (inputs, outputs) in enumerate(pairwise(channels), start=2):
        last = number == len(channels)
        weights = rng.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs))
        layers.append(
            Conv(
                weights.astype(np.float32),
                (rng.standard_normal(outputs) * 0.05).astype(np.float32),
                pads=(1, 1, 1, 1),
                activation=Activation("none" if last else "relu"),
                shuffle=2 if last else 1,
            )
        )
    return ConvWork(tuple(layers), 1, height, width, **options)


def onnx_model(work: ConvWork) -> bytes:
    """The chain as an ONNX file, from "x" to "y"; activations are relu or none."""
    from onnx import helper, numpy_helper

    nodes, constants, name = [], [], "x"
    for number, layer in enumerate(work.layers):
        kinds = {"w": layer.weights, "b": layer.bias}
        given = {f"{kind}{number}": array for kind, array in kinds.items() if array is not None}
        constants += [numpy_helper.from_array(array, key) for key, array in given.items()]
        nodes.append(
            helper.make_node("Conv", [name, *given], [f"c{number}"], pads=list(layer.pads))
        )
        name = f"c{number}"
        if layer.activation.kind == "relu":
            nodes.append(helper.make_node("Relu", [name], [f"r{number}"]))
            name = f"r{number}"
    last = {"blocksize": work.layers[-1].shuffle, "mode": "CRD"}
    nodes.append(helper.make_node("DepthToSpace", [name], ["y"], **last))
    ends = [
        helper.make_tensor_value_info(value, 1, [work.images, *size])
        for value, size in (("x", work.sizes[0]), ("y", work.sizes[-1]))
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    opset = [helper.make_opsetid("", 17)]
    made: bytes = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    return made


def onnx_of(net: Network, x: Sequence[int], y: Sequence[int]) -> bytes:
    """A network of one input and one output as an ONNX file, from "x" to "y"."""
    from onnx import helper, numpy_helper

    graph = net.graph
    named = {graph.inputs[0].name: "x", graph.outputs[0]: "y"}
    constants = [
        numpy_helper.from_array(np.asarray(tensor.value), name)
        for name, tensor in graph.constants.items()
    ]
    nodes = []
    for node in graph.nodes:
        inputs, outputs = (
            [named.get(name, name) for name in names] for names in (node.inputs, node.outputs)
        )
        nodes.append(helper.make_node(node.operator, inputs, outputs, node.name, **_told(node)))
    ends = [
        helper.make_tensor_value_info(name, 1, list(sizes)) for name, sizes in (("x", x), ("y", y))
    ]
    made = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    opset = [helper.make_opsetid("", 17)]
    model: bytes = helper.make_model(made, opset_imports=opset, ir_version=9).SerializeToString()
    return model


def _told(node: Node) -> dict[str, Any]:
    """A node's attributes that opset 17 has; numbers as they are."""
    from onnx import defs

    known = defs.get_schema(node.operator, 17).attributes
    return {
        key: value
        for key, value in node.attributes.items()
        if key in known and value is not None and not (value == "" or value == [])
    }
