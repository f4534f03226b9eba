"""ONNX's nodes as ours, by ONNX's own schemas: version, attributes, defaults, how many inputs.

    opset of the file -> the schema in force -> its version -> operators.find -> Node

What attributes a version has, of what type and with what default is read from the schemas that the
onnx package carries; which versions mean what we compute is said in nn/operators/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.errors import FileError
from tilewright.nn import operators
from tilewright.nn.graph import Node
from tilewright.nn.onnx.tensors import array_of


def node_of(proto: Any, name: str, opset: int, given: Mapping[str, Any]) -> Node:
    """A node with all attributes that are set or have a default.

    Args:
        proto: the NodeProto.
        name: what the node is called.
        opset: the version of ONNX's operators that the file was written for.
        given: the attributes it sets, by name, as plain values.

    Raises FileError for an operator, a version, an attribute or a number of inputs or outputs that
    is not understood.
    """
    from onnx import defs

    entries = operators.found().get(proto.op_type)
    if entries is None:
        raise FileError("no such operator here; docs/operators.md lists those there are")
    try:
        schema = defs.get_schema(proto.op_type, opset, "")
    except defs.SchemaError:
        raise FileError(f"opset {opset} has no such operator") from None
    version = int(schema.since_version)
    operator = operators.find(proto.op_type, version)
    if operator is None:
        known = ", ".join(map(str, sorted(v for entry in entries for v in entry.versions)))
        raise FileError(f"its version {version}, in force in opset {opset}; understood are {known}")
    _check_places(proto, schema)
    attributes = _attributes(proto, schema, given)
    outputs = list(proto.output)
    while outputs and not outputs[-1]:
        outputs.pop()
    inputs = list(proto.input)
    while inputs and not inputs[-1]:
        inputs.pop()
    node = Node(
        proto.op_type, version, tuple(inputs), tuple(outputs), MappingProxyType(attributes), name
    )
    why = operator.why_not(node)
    if why is not None:
        raise FileError(why)
    return node


def given_to(proto: Any, label: str, title: str) -> dict[str, Any]:
    """The attributes that a node sets, by name, as plain values. Raises FileError."""
    given = {a.name: attribute_value(a, label, title) for a in proto.attribute}
    if len(given) < len(proto.attribute):
        raise FileError("two attributes have one name")
    return given


def stored_node(
    operator: str,
    version: int,
    inputs: Sequence[str],
    outputs: Sequence[str],
    given: Mapping[str, Any],
    name: str,
) -> Node:
    """A node as it was stored, its attributes plain values: checked as one of an ONNX file is.

    Raises FileError.
    """
    from onnx import AttributeProto, NodeProto, defs

    try:
        schema = defs.get_schema(operator, version, "")
        if schema.since_version != version:
            raise TypeError
    except (defs.SchemaError, TypeError):
        raise FileError(f"node {name!r}: ONNX has no {operator!r} of version {version!r}") from None
    title = f"node {name!r} ({operator})"
    proto = NodeProto(op_type=operator, name=name, input=inputs, output=outputs)
    for attribute, value in given.items():
        known = schema.attributes.get(attribute)
        kind = AttributeProto.UNDEFINED if known is None else known.type.value
        if known is not None and not _is_of(value, known.type.name):
            raise FileError(
                f"{title}: attribute {attribute!r} is {value!r}; it must be {known.type}"
            )
        proto.attribute.append(AttributeProto(name=attribute, type=kind))
    try:
        return node_of(proto, name, version, given)
    except FileError as error:
        raise FileError(f"{title}: {error}") from None


def _is_of(value: Any, kind: str) -> bool:
    """Whether a plain value is of an attribute's type."""
    if kind.endswith("S") and isinstance(value, tuple):
        return all(_is_of(one, kind.removesuffix("S")) for one in value)
    wanted = {"INT": int, "FLOAT": float, "STRING": str, "TENSOR": np.ndarray}.get(kind)
    return wanted is not None and isinstance(value, wanted) and not isinstance(value, bool)


def _attributes(proto: Any, schema: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults, and what is set; types checked."""
    found = {
        name: attribute_value(attribute.default_value, "", "")
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    for attribute in proto.attribute:
        known = schema.attributes.get(attribute.name)
        if known is None:
            has = ", ".join(sorted(schema.attributes)) or "none"
            raise FileError(
                f"attribute {attribute.name!r}; version {schema.since_version} has {has}"
            )
        if attribute.type != known.type.value:
            raise FileError(
                f"attribute {attribute.name!r} is of type {attribute.type}; it must be"
                f" {known.type.name}"
            )
        found[attribute.name] = given[attribute.name]
    missing = [n for n, a in schema.attributes.items() if a.required and n not in found]
    if missing:
        raise FileError(f"{missing[0]!r} is missing")
    return found


def _check_places(proto: Any, schema: Any) -> None:
    """Inputs and outputs as many as there may be, none of those absent that must be there."""
    for what, names, low, high in (
        ("inputs", proto.input, schema.min_input, schema.max_input),
        ("outputs", proto.output, schema.min_output, schema.max_output),
    ):
        if not low <= len(names) <= high:
            raise FileError(
                f"{len(names)} {what}; accepted are {low} to {high} in version"
                f" {schema.since_version}"
            )
    absent = [i for i, name in enumerate(proto.input) if not name and i < schema.min_input]
    if absent:
        raise FileError(f"input {absent[0]} is absent")
    if not any(proto.output):
        raise FileError("no output")


def attribute_value(attribute: Any, label: str, title: str) -> Any:
    """An attribute as a plain value: numbers, text, lists of them, arrays. Raises FileError."""
    from onnx import AttributeProto

    kinds = AttributeProto
    if attribute.ref_attr_name:
        raise FileError(f"attribute {attribute.name!r} refers to a function's attribute")
    if attribute.type in (kinds.GRAPH, kinds.GRAPHS):
        raise FileError("has a graph of its own, which is not supported")
    if attribute.type == kinds.TENSOR:
        return array_of(attribute.t, label, f"{title}, attribute {attribute.name!r}")
    simple: dict[int, Callable[[], Any]] = {
        kinds.FLOAT: lambda: attribute.f,
        kinds.INT: lambda: attribute.i,
        kinds.STRING: lambda: attribute.s.decode("utf-8", "replace"),
        kinds.FLOATS: lambda: tuple(attribute.floats),
        kinds.INTS: lambda: tuple(attribute.ints),
        kinds.STRINGS: lambda: tuple(s.decode("utf-8", "replace") for s in attribute.strings),
    }
    read = simple.get(attribute.type)
    if read is None:
        raise FileError(f"attribute {attribute.name!r} is of a kind not supported")
    return read()
