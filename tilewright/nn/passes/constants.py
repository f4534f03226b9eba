"""Computes once what constants and sizes alone decide."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.nn.evaluate import computed, named
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.infer import operator_of

MOST = 256 << 20  # bytes of constants that a graph may gain: beyond, its nodes run each time


def folded(graph: Graph, tensors: Mapping[str, Tensor], most: int = MOST) -> Graph:
    """The graph with nodes whose inputs are known replaced by what they give.

    most: bytes that the new constants may take in all.
    """
    constants = dict(graph.constants)
    room = most
    kept = []
    for node in graph.nodes:
        made = _given(node, constants, tensors, room)
        if made is None:
            kept.append(node)
            continue
        constants.update(made)
        room -= sum(tensor.bytes for tensor in made.values())
    return graph.with_nodes(kept, constants)


def _given(
    node: Node, constants: Mapping[str, Tensor], tensors: Mapping[str, Tensor], room: int
) -> dict[str, Tensor] | None:
    """What a node gives, where that is known now and fits; None elsewhere."""
    made = {name: tensors[name] for name in node.outputs if name}
    if sum(tensor.bytes for tensor in made.values()) > room:
        return None
    if all(tensor.value is not None for tensor in made.values()):
        return made
    if not all(name in constants for name in node.inputs if name):
        return None
    given = [constants[name].value if name else None for name in node.inputs]
    dtypes = [made[name].dtype if name else "" for name in node.outputs]
    with named(node):
        values = computed(np, operator_of(node), node, given, dtypes)
    return {
        name: Tensor(value.shape, dtype, value)
        for name, value, dtype in zip(node.outputs, values, dtypes, strict=False)
        if name
    }
