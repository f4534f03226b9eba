"""ONNX files, read with distrust: plain records of nodes and arrays, or one clear error.

A file can claim anything: sizes are compared with the bytes that are there before an array is made,
data in other files is refused, and nothing is executed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import FileError
from tilewright.nn.onnx.attributes import understood
from tilewright.nn.onnx.graph import IR_VERSIONS, OPSETS, Graph, Node
from tilewright.nn.onnx.model import DOMAINS, content_of, model_of, opset_of, unique_initializers
from tilewright.nn.onnx.schemas import given_to
from tilewright.nn.onnx.tensors import array_of

_LARGEST_INPUT = 1 << 28  # elements
_FLOAT = 1
# ONNX's element types that weights come in.
_TYPES = ("FLOAT", "FLOAT16", "DOUBLE", "INT64", "INT32", "INT8", "UINT8", "BOOL")


def read_onnx(path: Path, argument: str = "path") -> Graph:
    """The graph of a file. Raises FileError for what is damaged, hostile or of another format."""
    label = f"{argument}={str(path)!r}"
    return parse_onnx(content_of(path, label), label)


def parse_onnx(content: bytes, label: str = "content") -> Graph:
    """The same for bytes in memory."""
    model = model_of(content, label)
    constants = {
        t.name: _tensor(t, label, f"initializer {t.name!r}")
        for t in unique_initializers(model, label)
    }
    opset = opset_of(model, label, OPSETS, IR_VERSIONS)
    nodes = tuple(_node(node, index, opset, label) for index, node in enumerate(model.graph.node))
    name, batch, shape = _input(model.graph, constants, label)
    if len(model.graph.output) != 1:
        raise FileError(f"{label}: {len(model.graph.output)} outputs; accepted is one")
    output = model.graph.output[0].name
    _check_order(nodes, {name, *constants, ""}, output, label)
    return Graph(label, opset, nodes, constants, name, batch, shape, output, content)


def _tensor(tensor: Any, label: str, what: str) -> NDArray:
    """A TensorProto as an array of numbers, its claims checked first."""
    array = array_of(tensor, label, what, _TYPES)
    _check_numbers(array, f"{label}: {what}")
    return array


def _check_numbers(array: NDArray, what: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FileError(f"{what} has NaN or infinities; accepted are numbers")


def _node(node: Any, index: int, opset: int, label: str) -> Node:
    title = f"node {node.name or f'number {index}'!r} ({node.op_type})"
    if node.domain not in DOMAINS:
        raise FileError(f"{label}: {title}: domain {node.domain!r}; accepted is ONNX's own")
    try:
        given = {n: _plain(value) for n, value in given_to(node, label, title).items()}
        attributes = understood(node, opset, given)
    except FileError as error:
        raise FileError(f"{label}: {title} is not supported: {error}") from None
    return Node(node.op_type, title, tuple(node.input), node.output[0], attributes, node)


def _plain(value: Any) -> Any:
    """An attribute's value: lists as such, arrays of numbers alone."""
    if isinstance(value, np.ndarray):
        _check_numbers(value, "it")
    return list(value) if isinstance(value, tuple) else value


def _input(
    graph: Any, constants: Mapping[str, Any], label: str
) -> tuple[str, int | None, tuple[int, ...]]:
    """The one input, its batch and its other sizes."""
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        names = ", ".join(repr(value.name) for value in inputs) or "none"
        raise FileError(f"{label}: inputs {names}; accepted is one")
    (value,) = inputs
    if value.type.tensor_type.elem_type != _FLOAT:
        number = value.type.tensor_type.elem_type
        raise FileError(
            f"{label}: input {value.name!r} is of type {number}; accepted is 1, float32"
        )
    dims = value.type.tensor_type.shape.dim
    sizes = tuple(int(d.dim_value) for d in dims)
    batch, fixed = (sizes or (0,))[0], sizes[1:]
    small = all(0 < s < 1 << 16 for s in fixed)
    small = small and max(batch, 1) * math.prod(fixed) <= _LARGEST_INPUT
    if len(sizes) not in (2, 4) or not small or batch < 0:
        raise FileError(
            f"{label}: input {value.name!r} is {list(sizes)}; accepted are [batch, features] and"
            " [batch, channels, height, width], fixed but for the batch, up to 2^28 elements"
        )
    return value.name, batch or None, fixed


def _check_order(nodes: tuple[Node, ...], known: set[str], output: str, label: str) -> None:
    for node in nodes:
        for name in node.inputs:
            if name not in known:
                raise FileError(f"{label}: {node.title}: input {name!r} is no value before it")
        if node.output in known:
            raise FileError(f"{label}: {node.title}: {node.output!r} is there already")
        known.add(node.output)
    if output not in known:
        raise FileError(f"{label}: no node gives the output {output!r}")
