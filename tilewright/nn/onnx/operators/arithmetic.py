"""Add, Sub, Mul, Div: with a constant for each channel, or the sum of two values."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.layers.add import Add
from tilewright.nn.onnx.drafts import AffineDraft
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.table import operator


@operator("Add", (7, 13, 14), note="one constant for each channel; Add also of two values")
@operator("Div", (7, 13, 14), note="by a constant for each channel")
@operator("Mul", (7, 13, 14), note="by a constant for each channel")
@operator("Sub", (7, 13, 14), note="one constant for each channel; Add also of two values")
def arithmetic(at: Importer, node: Node) -> Traced:
    """Add, Sub, Mul, Div: with a constant an affine, of two values only Add."""
    left, right = (at.constant(name) for name in node.inputs)
    if left is None and right is None:
        first, second = (at.plain(name) for name in node.inputs)
        if node.op != "Add" or first.order is not None or second.order is not None:
            raise FileError("of two values that depend on the input")
        shapes = [at.shape(node, position) for position in (0, 1)]
        if shapes[0] != shapes[1]:
            raise FileError(f"of {shapes[0]} and {shapes[1]}; accepted are equal shapes")
        return Traced(at.emit(node, Add, first.draft, second.draft))
    constant, position = (right, 0) if left is None else (left, 1)
    value = at.plain(node.inputs[position])
    assert constant is not None
    vector = at.channels(node, constant, value, position)
    ones, zeros = np.ones_like(vector), np.zeros_like(vector)
    if node.op == "Div" and (left is not None or not vector.all()):
        raise FileError("a division by a value, or by 0")
    scale, shift = {
        "Add": (ones, vector),
        "Sub": (ones, -vector) if left is None else (-ones, vector),
        "Mul": (vector, zeros),
        "Div": (1 / np.where(vector == 0, 1, vector), zeros),
    }[node.op]
    return Traced(at.emit(node, AffineDraft, value.draft, scale=scale, shift=shift), value.order)
