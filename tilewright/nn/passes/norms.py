"""Takes batch norms of constants into the weights of the convolutions before them, node by node.

For whoever looks at weights in a graph of ONNX's own operators, quantisation above all; when a
network is bound, after.py does the same and more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.nn.graph import Graph, Node, Tensor


def without_norms(graph: Graph) -> Graph:
    """The graph in which such batch norms are gone, computed in float64 and rounded once."""
    readers, makers = graph.readers(), graph.makers()
    constants = dict(graph.constants)
    joined: dict[str, Node] = {}  # convolutions that gained a norm, by what they gave
    gone = {}
    for node in graph.nodes:
        conv = makers.get(node.inputs[0]) if node.operator == "BatchNormalization" else None
        if conv is None or conv.operator != "Conv" or len(readers[conv.outputs[0]]) > 1:
            continue
        names = [name for name in (*conv.inputs[1:], *node.inputs[1:]) if name]
        if any(name not in constants for name in names) or conv.outputs[0] in graph.outputs:
            continue
        weights, bias = f"{node.outputs[0]}, weights", f"{node.outputs[0]}, bias"
        if weights in constants or bias in constants or len(node.outputs) > 1:
            continue
        constants.update(_numbers(graph, conv, node, weights, bias))
        inputs = (conv.inputs[0], weights, bias)
        joined[conv.outputs[0]] = replace(conv, inputs=inputs, outputs=node.outputs)
        gone[node.outputs[0]] = node
    nodes = [joined.get(n.outputs[0], n) for n in graph.nodes if n.outputs[0] not in gone]
    return graph.with_nodes(nodes, constants)


def _numbers(graph: Graph, conv: Node, norm: Node, weights: str, bias: str) -> dict[str, Tensor]:
    """Weights and bias under their new names."""

    def wide(name: str) -> Any:
        return np.asarray(graph.constants[name].value, np.float64)

    gamma, beta, mean, variance = (wide(name) for name in norm.inputs[1:])
    factor = gamma / np.sqrt(variance + norm.attributes["epsilon"])
    old = wide(conv.inputs[1])
    before = wide(conv.inputs[2]) if len(conv.inputs) > 2 and conv.inputs[2] else 0.0
    made = {
        weights: old * factor.reshape(-1, *[1] * (old.ndim - 1)),
        bias: (before - mean) * factor + beta,
    }
    dtype = graph.constants[conv.inputs[1]].dtype
    return {n: Tensor(value.shape, dtype, value.astype(dtype)) for n, value in made.items()}
