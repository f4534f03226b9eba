"""Any ONNX file as a `Graph`: inputs, outputs, constants, nodes; or one error that names all.

    bytes -> model.py: parsed -> tensors.py: constants -> schemas.py: nodes -> Graph

What is not understood of a model (operators, versions, attributes, element types) is collected and
said at once, each with the names of the nodes that have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import ArgumentError, DtypeError, FileError
from tilewright.files.whole import path_of
from tilewright.nn.graph import Graph, Input, Node, Tensor
from tilewright.nn.infer import types
from tilewright.nn.onnx.model import DOMAINS, content_of, model_of, opset_of, unique_initializers
from tilewright.nn.onnx.quantised import expanded
from tilewright.nn.onnx.schemas import given_to, node_of
from tilewright.nn.onnx.tensors import TYPES, constant, content_of_constant, name_of, tensor_of
from tilewright.nn.onnx.typed import mistyped

_MOST = 20  # problems that one message lists


def read_graph(model: str | Path | bytes) -> Graph:
    """The graph of a file, or of its bytes. Raises FileError."""
    if isinstance(model, bytes):
        return parsed_graph(model, "model", None)
    path = path_of(model, "model")
    label = f"model={str(path)!r}"
    return parsed_graph(content_of(path, label), label, path.parent)


def parsed_graph(content: bytes, label: str, folder: Path | None) -> Graph:
    """The graph of a model in memory; external data lies in `folder`, if anywhere."""
    model = model_of(content, label)
    opset = opset_of(model, label)
    problems: list[str] = []
    constants = _constants(model, label, folder, problems)
    inputs = _inputs(model.graph, constants, problems)
    nodes = []
    for index, proto in enumerate(model.graph.node):
        name = proto.name or next(filter(None, proto.output), f"number {index}")
        title = f"node {name!r} ({proto.op_type})"
        try:
            parts = expanded(proto, constants, opset)
            made = [_taken(part, part.name or name, title, opset, label) for part in parts]
        except FileError as error:
            problems.append(f"{title}: {error}")
            continue
        for part in made:
            if isinstance(part, Node):
                nodes.append(part)
                continue
            if proto.output[0] in constants:
                raise FileError(f"{label}: {title}: {proto.output[0]!r} is there already")
            constants[proto.output[0]] = part
    if problems:
        raise FileError(f"{label}: {_listed(problems)}")
    try:
        outputs = tuple(value.name for value in model.graph.output)
        graph = Graph(tuple(nodes), tuple(inputs), outputs, constants)
        types(graph, mistyped)
    except (ArgumentError, DtypeError) as error:
        raise FileError(f"{label}: {error}") from None
    if not outputs or len(set(outputs)) < len(outputs):
        raise FileError(f"{label}: outputs {list(outputs)}; accepted are one and more, each once")
    return graph


def _listed(problems: list[str]) -> str:
    shown = "; ".join(problems[:_MOST])
    more = len(problems) - _MOST
    return f"not supported: {shown}" + (f"; and {more} more" if more > 0 else "")


def _constants(
    model: Any, label: str, folder: Path | None, problems: list[str]
) -> dict[str, Tensor]:
    """The initializers; those of types that are not accepted are added to the problems."""
    found = {}
    for proto in unique_initializers(model, label):
        what = f"initializer {proto.name!r}"
        if name_of(proto.data_type) is None:
            problems.append(f"{what} is of type {proto.data_type}; accepted are {', '.join(TYPES)}")
            found[proto.name] = Tensor((), "float32")
            continue
        found[proto.name] = tensor_of(proto, label, what, folder)
    return found


def _inputs(graph: Any, constants: Mapping[str, Any], problems: list[str]) -> list[Input]:
    """What is passed at a run: the inputs that have no initializer."""
    found = []
    for value in graph.input:
        if value.name in constants:
            continue
        kind = value.type.WhichOneof("value")
        dtype = name_of(value.type.tensor_type.elem_type) if kind == "tensor_type" else None
        if dtype is None:
            said = f"type {value.type.tensor_type.elem_type}" if kind == "tensor_type" else kind
            problems.append(f"input {value.name!r} is of {said}; accepted are {', '.join(TYPES)}")
            continue
        tensor = value.type.tensor_type
        sizes = None
        if tensor.HasField("shape"):
            sizes = tuple(_size(d, value.name, at) for at, d in enumerate(tensor.shape.dim))
        found.append(Input(value.name, sizes, dtype))
    return found


def _size(dim: Any, name: str, at: int) -> int | str:
    """A size, or the name of one that is free."""
    kind = dim.WhichOneof("value")
    if kind == "dim_value" and dim.dim_value >= 0:
        return int(dim.dim_value)
    return dim.dim_param if kind == "dim_param" and dim.dim_param else f"{name}.{at}"


def _taken(proto: Any, name: str, title: str, opset: int, label: str) -> Node | Tensor:
    """A node; of a Constant what it holds."""
    if proto.domain not in DOMAINS:
        raise FileError(f"domain {proto.domain!r}; accepted is ONNX's own")
    given = given_to(proto, label, title)
    if proto.op_type == "Constant":
        if len(proto.output) != 1:
            raise FileError(f"{len(proto.output)} outputs; accepted is one")
        return constant(content_of_constant(given))
    return node_of(proto, name, opset, given)
