"""What leaves every number as it is: Cast, Dropout, Identity; and Constant."""

from __future__ import annotations

from tilewright.errors import FileError
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.table import ANY, Attribute, one_of, operator

_KEEPS, _HALF = (1, 11), 10  # element types: float32 and float64; float16


@operator(
    "Cast",
    (6, 9, 13, 19, 21, 23, 24, 25, 28),
    {
        "to": Attribute("1, 11 (float32, float64); 10 (float16) of signs", lambda value: True),
        "saturate": one_of(1),
        "round_mode": one_of("up"),
    },
    "constants to any type",
)
def cast(at: Importer, node: Node) -> Traced:
    """To types that hold every number that may come."""
    value, to = at.plain(node.inputs[0]), node.attributes["to"]
    if to not in _KEEPS and not (to == _HALF and value.is_bits):
        raise FileError(
            f"to={to}, which rounds; accepted are 1 (float32), 11 (float64), and 10 (float16) of"
            " signs"
        )
    return value


@operator(
    "Dropout",
    (7, 10, 12, 13, 22),
    {"ratio": ANY, "seed": ANY},
    "training_mode absent or false; one output",
)
def dropout(at: Importer, node: Node) -> Traced:
    """Of a network that is trained."""
    training = at.optional(node, 2, "training_mode")
    if training is not None and bool(training.any()):
        raise FileError("training_mode=True; accepted are trained networks")
    return at.plain(node.inputs[0])


@operator("Identity", (1, 13, 14, 16, 19, 21, 23, 24, 25))
def same(at: Importer, node: Node) -> Traced:
    """Identity."""
    return at.plain(node.inputs[0])


@operator(
    "Constant",
    (1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
    dict.fromkeys(("value", "value_float", "value_floats", "value_int", "value_ints"), ANY),
)
def constant(at: Importer, node: Node) -> Traced:
    """Its number is known without the input (values.py), so no draft is made of it."""
    raise FileError("of values that depend on the input")
