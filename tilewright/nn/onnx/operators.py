"""The operators of ONNX that the importer takes: which versions of each, and which attributes.

One table says it all: `OPERATORS`. The importer refuses by name whatever is not in it, and the
table of the docs is made of it. What a version of an operator is, which attributes it has, of what
type and with what default is read from ONNX's own schemas, never repeated here.

    opset of the file -> ONNX's schema in force -> a version of OPERATORS -> its attributes, all set
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import FileError

OPSETS = (7, 28)  # below 7 constants are broadcast by attributes; beyond 28 nothing was tried
IR_VERSIONS = (3, 14)
_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that is understood: what it may be, in words and as a test of its value."""

    accepted: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: the versions that are understood, and what their attributes may be."""

    versions: tuple[int, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    note: str = ""


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and least <= value < _MOST


def _list(count: int, least: int) -> Attribute:
    """So many whole numbers."""
    return Attribute(
        f"{count} of {least} to {_MOST - 1}",
        lambda value: len(value) == count and all(_whole(v, least) for v in value),
    )


def _one_of(*values: Any) -> Attribute:
    return Attribute(" or ".join(str(value) for value in values), lambda value: value in values)


_ANY = Attribute("any", lambda value: True)
_NUMBER = Attribute("a finite number", lambda value: abs(value) < float("inf"))
_FLAG = _one_of(0, 1)
_WINDOW = {
    "auto_pad": _one_of("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
    "kernel_shape": _list(2, 1),
    "pads": _list(4, 0),
    "strides": _list(2, 1),
}
_POOL = {**_WINDOW, "ceil_mode": _FLAG, "dilations": _one_of([1, 1])}
_ELEMENTWISE = Operator((7, 13, 14), note="one constant for each channel; Add also of two values")
_COMPARISON = Operator((7, 9, 13), note="with a constant, read by a Where")
_COMPARISON_OR_EQUAL = Operator((12, 16), note="with a constant, read by a Where")
_SHAPES = (13, 14, 19, 21, 23, 24, 25)

OPERATORS: Mapping[str, Operator] = {
    "Add": _ELEMENTWISE,
    "AveragePool": Operator(
        (7, 10, 11, 19, 22),
        {**_POOL, "count_include_pad": _FLAG},
        "not ceil_mode with count_include_pad",
    ),
    "BatchNormalization": Operator(
        (7, 9, 14, 15),
        {
            "epsilon": _NUMBER,
            "momentum": _ANY,
            "spatial": _one_of(1),
            "training_mode": _one_of(0),
        },
        "of constants; one output",
    ),
    "Cast": Operator(
        (6, 9, 13, 19, 21, 23, 24, 25, 28),
        {
            "to": Attribute("1, 11 (float32, float64); 10 (float16) of signs", lambda value: True),
            "saturate": _one_of(1),
            "round_mode": _one_of("up"),
        },
        "constants to any type",
    ),
    "Clip": Operator(
        (6, 11, 12, 13), {"min": _NUMBER, "max": _NUMBER}, "constant limits, least first"
    ),
    "Constant": Operator(
        (1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
        dict.fromkeys(("value", "value_float", "value_floats", "value_int", "value_ints"), _ANY),
    ),
    "Conv": Operator(
        (1, 11, 22),
        {**_WINDOW, "dilations": _list(2, 1), "group": Attribute("1 and more", lambda v: v >= 1)},
        "of images, constant weights",
    ),
    "Div": Operator((7, 13, 14), note="by a constant for each channel"),
    "Dropout": Operator(
        (7, 10, 12, 13, 22),
        {"ratio": _ANY, "seed": _ANY},
        "training_mode absent or false; one output",
    ),
    "Flatten": Operator(
        (1, 9, 11, *_SHAPES[:1], *_SHAPES[3:]), {"axis": _ANY}, "to rows of images"
    ),
    "Gemm": Operator(
        (7, 9, 11, 13),
        {"alpha": _NUMBER, "beta": _NUMBER, "transA": _one_of(0), "transB": _FLAG},
        "B constant; C absent or one constant for each column",
    ),
    "GlobalAveragePool": Operator((1, 22), note="of images"),
    "Greater": _COMPARISON,
    "GreaterOrEqual": _COMPARISON_OR_EQUAL,
    "Identity": Operator((1, 13, 14, 16, 19, 21, 23, 24, 25)),
    "Less": _COMPARISON,
    "LessOrEqual": _COMPARISON_OR_EQUAL,
    "MatMul": Operator((1, 9, 13), note="features by a constant matrix"),
    "MaxPool": Operator((1, 8, 10, 11, 12, 22), {**_POOL, "storage_order": _FLAG}, "one output"),
    "Mul": Operator((7, 13, 14), note="by a constant for each channel"),
    "Pad": Operator(
        (2, 11, 13, 18, 19, 21, 23, 24, 25),
        {"mode": _one_of("constant"), "pads": _list(8, 0), "value": _NUMBER},
        "rows and columns, constant, no axes; read by a Conv",
    ),
    "ReduceMean": Operator(
        (1, 11, 13, 18),
        {"axes": _ANY, "keepdims": _FLAG, "noop_with_empty_axes": _FLAG},
        "over height and width",
    ),
    "Relu": Operator((6, 13, 14)),
    "Reshape": Operator((5, *_SHAPES), {"allowzero": _FLAG}, "to rows of images"),
    "Sign": Operator((9, 13)),
    "Squeeze": Operator(
        (1, 11, 13, *_SHAPES[3:]), {"axes": _ANY}, "of images of one pixel, to rows"
    ),
    "Sub": _ELEMENTWISE,
    "Where": Operator((9, 16), note="of a comparison, -1 and 1"),
}


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
    for name, operator in OPERATORS.items():
        versions = ", ".join(map(str, operator.versions))
        attributes = "; ".join(_row(n, a) for n, a in sorted(operator.attributes.items()))
        lines.append(f"| `{name}` | {versions} | {attributes} | {operator.note} |")
    return "\n".join(lines)


def _row(name: str, attribute: Attribute) -> str:
    return f"`{name}`: {attribute.accepted}"
