"""The same network with its real numbers in another type: float32, float16 or bfloat16.

Weights are rounded once; what other types hold (indices, shapes, float64) stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.nn.evaluate import rounded
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.infer import types

_ONNX = {"float32": 1, "float16": 10, "bfloat16": 16}  # ONNX's numbers, which Cast's `to` is one of

_HALVES = ("float16", "bfloat16")


def retyped(graph: Graph, dtype: str, kinds: Collection[str] = tuple(_ONNX)) -> Graph:
    """A graph whose inputs, constants and casts say `dtype` where they said one of `kinds`."""
    others = [kind for kind in kinds if kind != dtype]
    constants = {name: _tensor(tensor, dtype, others) for name, tensor in graph.constants.items()}
    inputs = tuple(replace(i, dtype=dtype) if i.dtype in others else i for i in graph.inputs)
    nodes = tuple(
        replace(node, attributes=_attributes(node, dtype, others)) if node.attributes else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes, inputs=inputs, constants=constants)


def widened(graph: Graph, kinds: Collection[str]) -> tuple[Graph, dict[str, str]]:
    """The graph with values of these types as float32; what its inputs and outputs were, by name.

    No value between is rounded then, so that results are as near as those of the graph, or nearer.
    """
    known = types(graph)
    if not any(kind in kinds for kind in known.values()):
        return graph, {}
    ends = (*(source.name for source in graph.inputs), *graph.outputs)
    outside = {name: known[name] for name in ends if known[name] in kinds}
    return retyped(graph, "float32", kinds), outside


def of_float32(graph: Graph) -> Graph:
    """The graph as it is, or of a file of halves the one that holds and takes float32.

    Where only some layers between float32 ones hold halves they stay.
    """
    if any(source.dtype in _HALVES for source in graph.inputs):
        return retyped(graph, "float32")
    return graph


def _tensor(tensor: Tensor, dtype: str, others: Collection[str]) -> Tensor:
    if tensor.dtype not in others:
        return tensor
    return Tensor(tensor.shape, dtype, rounded(tensor.value, dtype))


def _attributes(node: Node, dtype: str, others: Collection[str]) -> Mapping[str, Any]:
    """Element types among a node's attributes, by number or as those of an array."""
    found = dict(node.attributes)
    for name in ("to", "dtype", "output_dtype"):
        if found.get(name) in [_ONNX[kind] for kind in others]:
            found[name] = _ONNX[dtype]
    value = found.get("value")
    if dtype != "bfloat16" and isinstance(value, np.ndarray) and str(value.dtype) in others:
        found["value"] = rounded(value, dtype)
    return found
