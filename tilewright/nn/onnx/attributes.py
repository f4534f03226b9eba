"""The attributes of an ONNX node: those it sets and those that have a default, all checked.

    opset of the file -> ONNX's schema in force -> a version of OPERATORS -> its attributes, all set

What a version of an operator is, which attributes it has, of what type and with what default is
read from ONNX's own schemas, never repeated here; operators/ says which of it is understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.errors import FileError
from tilewright.nn.onnx.operators import OPERATORS
from tilewright.nn.onnx.table import Attribute, Operator


def attributes_of(node: Any, opset: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every attribute of a node that is set or has a default, checked against the table.

    Args:
        node: the NodeProto.
        opset: the version of ONNX's operators that the file was written for.
        given: the attributes it sets, by name, as plain values.

    Raises FileError for an operator, a version, an attribute or a value that is not understood,
    and for inputs and outputs that the operator does not have.
    """
    from onnx import defs

    operator = OPERATORS.get(node.op_type)
    if operator is None:
        raise FileError(f"accepted are {', '.join(sorted(OPERATORS))}")
    try:
        schema = defs.get_schema(node.op_type, opset, "")
    except defs.SchemaError:
        raise FileError(f"opset {opset} has no such operator") from None
    if schema.since_version not in operator.versions:
        versions = ", ".join(map(str, operator.versions))
        raise FileError(
            f"its version {schema.since_version}, in force in opset {opset}; understood are"
            f" {versions}"
        )
    _check_places(node, schema)
    found = {
        name: _plain(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    for name, value in given.items():
        _check_attribute(node, schema, operator, name, value)
        found[name] = value
    missing = [n for n, a in schema.attributes.items() if a.required and n not in found]
    if missing:
        raise FileError(f"{missing[0]!r} is missing")
    return found


def _check_attribute(node: Any, schema: Any, operator: Operator, name: str, value: Any) -> None:
    known = schema.attributes.get(name)
    if known is None:
        has = ", ".join(sorted(schema.attributes)) or "none"
        raise FileError(f"attribute {name!r}; version {schema.since_version} has {has}")
    kind = next(a.type for a in node.attribute if a.name == name)
    if kind != known.type.value:
        raise FileError(f"attribute {name!r} is of type {kind}; it must be {known.type.name}")
    rule = operator.attributes.get(name)
    if rule is None:
        raise FileError(f"attribute {name!r} is not understood")
    if not rule.fits(value):
        raise FileError(f"{name}={value!r}; accepted is {rule.accepted}")


def _check_places(node: Any, schema: Any) -> None:
    """Inputs and outputs as many as there may be, none of those absent that must be there."""
    count = len(node.input)
    if not schema.min_input <= count <= schema.max_input:
        raise FileError(
            f"{count} inputs; accepted are {schema.min_input} to {schema.max_input} in version"
            f" {schema.since_version}"
        )
    absent = [i for i, name in enumerate(node.input) if not name and i < schema.min_input]
    if absent:
        raise FileError(f"input {absent[0]} is absent")
    if not node.output or not node.output[0] or any(node.output[1:]):
        raise FileError("more than one output" if any(node.output[1:]) else "no output")


def _plain(attribute: Any) -> Any:
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def documented() -> str:
    """The table of the docs, in Markdown."""
    lines = [
        "| operator | versions | attributes | taken as |",
        "|---|---|---|---|",
    ]
    for name, operator in sorted(OPERATORS.items()):
        versions = ", ".join(map(str, operator.versions))
        attributes = "; ".join(_row(n, a) for n, a in sorted(operator.attributes.items()))
        lines.append(f"| `{name}` | {versions} | {attributes} | {operator.note} |")
    return "\n".join(lines)


def _row(name: str, attribute: Attribute) -> str:
    return f"`{name}`: {attribute.accepted}"
