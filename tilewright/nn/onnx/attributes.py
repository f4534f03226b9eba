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
from tilewright.nn.onnx.schemas import attributes_of
from tilewright.nn.onnx.table import Attribute


def understood(node: Any, opset: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every attribute of a node that is set or has a default, checked against the table.

    Args:
        node: the NodeProto.
        opset: the version of ONNX's operators that the file was written for.
        given: the attributes it sets, by name, as plain values.

    Raises FileError for an operator, a version, an attribute or a value that is not understood,
    and for inputs and outputs that the operator does not have.
    """
    operator = OPERATORS.get(node.op_type)
    if operator is None:
        raise FileError(f"accepted are {', '.join(sorted(OPERATORS))}")
    if not node.output or not node.output[0] or any(node.output[1:]):
        raise FileError("more than one output" if any(node.output[1:]) else "no output")
    _, found = attributes_of(node, opset, given, operator.versions)
    for name, value in given.items():
        rule = operator.attributes.get(name)
        if rule is None:
            raise FileError(f"attribute {name!r} is not understood")
        if not rule.fits(value):
            raise FileError(f"{name}={value!r}; accepted is {rule.accepted}")
    return found


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
