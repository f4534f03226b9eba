"""The same network with its float32 values in another type: float16 or bfloat16.

Weights are rounded once; what other types hold (indices, shapes, float64) stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.nn.evaluate import rounded
from tilewright.nn.graph import Graph, Node, Tensor

_ONNX = {"float32": 1, "float16": 10, "bfloat16": 16}  # ONNX's numbers, which Cast's `to` is one of


def retyped(graph: Graph, dtype: str) -> Graph:
    """A graph whose inputs, constants and casts say `dtype` where they said float32."""
    if dtype == "float32":
        return graph
    constants = {name: _tensor(tensor, dtype) for name, tensor in graph.constants.items()}
    inputs = tuple(replace(i, dtype=dtype) if i.dtype == "float32" else i for i in graph.inputs)
    nodes = tuple(
        replace(node, attributes=_attributes(node, dtype)) if node.attributes else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes, inputs=inputs, constants=constants)


def _tensor(tensor: Tensor, dtype: str) -> Tensor:
    if tensor.dtype != "float32":
        return tensor
    return Tensor(tensor.shape, dtype, rounded(tensor.value, dtype))


def _attributes(node: Node, dtype: str) -> Mapping[str, Any]:
    """Element types among a node's attributes, by number or as those of an array."""
    found = dict(node.attributes)
    for name in ("to", "dtype", "output_dtype"):
        if found.get(name) == _ONNX["float32"]:
            found[name] = _ONNX[dtype]
    value = found.get("value")
    if dtype == "float16" and isinstance(value, np.ndarray) and value.dtype == np.float32:
        found["value"] = value.astype(np.float16)
    return found
