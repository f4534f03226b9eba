"""Lets some layers compute in float16 while others stay float32: casts before and behind."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from tilewright.nn.evaluate import rounded
from tilewright.nn.graph import Graph, Node, Tensor

_FLOAT32, _FLOAT16 = 1, 10  # ONNX's numbers
_VERSION = 13  # of Cast


def halved(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with the nodes of these names in float16, weights rounded once."""
    constants, nodes = dict(graph.constants), list[Node]()
    taken = set(graph.names())
    held: dict[str, str] = {}  # a value's name -> that of its float16

    def half(name: str) -> str:
        if not name or name in held:
            return held.get(name, "")
        label = _free(f"{name}, float16", taken)
        held[name] = label
        tensor = constants.get(name)
        if tensor is None:
            nodes.append(_cast(name, label, _FLOAT16))
        else:
            constants[label] = Tensor(tensor.shape, "float16", rounded(tensor.value, "float16"))
        return label

    for node in graph.nodes:
        if node.name not in names:
            nodes.append(node)
            continue
        inputs = tuple(half(name) for name in node.inputs)
        output = _free(f"{node.outputs[0]}, made", taken)
        nodes.append(replace(node, inputs=inputs, outputs=(output,)))
        nodes.append(_cast(output, node.outputs[0], _FLOAT32))
    return graph.with_nodes(nodes, constants)


def _cast(source: str, output: str, to: int) -> Node:
    return Node("Cast", _VERSION, (source,), (output,), MappingProxyType({"to": to}), output)


def _free(label: str, taken: set[str]) -> str:
    """A name that nothing has."""
    while label in taken:
        label += "'"
    taken.add(label)
    return label
