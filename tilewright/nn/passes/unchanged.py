"""Leaves out what gives its input back: Identity, Dropout, casts and reshapes to what is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.nn.graph import Graph, Node, Tensor

_ALWAYS = ("Identity",)
_IF_ALIKE = ("Cast", "Reshape", "Expand", "Flatten", "Squeeze", "Unsqueeze")


def without_unchanged(graph: Graph, tensors: Mapping[str, Tensor]) -> Graph:
    """The graph in which readers of such nodes read what these were given.

    Outputs keep their order; one may bear the name of the value that it equals.
    """
    renamed: dict[str, str] = {}
    kept = []
    for old in graph.nodes:
        node = replace(old, inputs=tuple(renamed.get(name, name) for name in old.inputs))
        if _gives_its_input(node, tensors):
            renamed[node.outputs[0]] = node.inputs[0]
        else:
            kept.append(node)
    outputs = tuple(renamed.get(name, name) for name in graph.outputs)
    return replace(graph, nodes=tuple(kept), outputs=outputs)


def _gives_its_input(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    if node.operator in _ALWAYS:
        return True
    if node.operator == "Dropout":
        training = tensors[node.inputs[2]].value if len(node.inputs) > 2 else None
        trained = len(node.inputs) < 3 or (training is not None and not training.any())
        return trained and len(node.outputs) == 1
    if node.operator not in _IF_ALIKE:
        return False
    source, made = tensors[node.inputs[0]], tensors[node.outputs[0]]
    return source.shape == made.shape and source.dtype == made.dtype
