"""Add, Sub, Mul, Div: with a constant for each channel, or the sum of two values."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.layers.add import Add
from tilewright.nn.onnx.drafts import AffineDraft
from tilewright.nn.onnx.importer import Importer, Traced, operator


@operator("Add", "one constant for each channel, or two values of equal shapes")
@operator("Div", "by a constant for each channel")
@operator("Mul", "by a constant for each channel")
@operator("Sub", "one constant for each channel")
def arithmetic(at: Importer, node: Node) -> Traced:
    """Add, Sub, Mul, Div: with a constant an affine, of two values only Add."""
    beside = at.beside(node)
    if beside is None:
        first, second = (at.plain(name) for name in node.inputs)
        if node.operator != "Add" or first.order is not None or second.order is not None:
            raise FileError("of two values that depend on the input")
        shapes = [at.shape(node, position) for position in (0, 1)]
        if shapes[0] != shapes[1]:
            raise FileError(f"of {shapes[0]} and {shapes[1]}; accepted are equal shapes")
        return Traced(at.emit(node, Add, first.draft, second.draft))
    value, vector, place, _ = beside
    ones, zeros = np.ones_like(vector), np.zeros_like(vector)
    if node.operator == "Div" and (place == 0 or not vector.all()):
        raise FileError("a division by a value, or by 0")
    scale, shift = {
        "Add": (ones, vector),
        "Sub": (ones, -vector) if place == 1 else (-ones, vector),
        "Mul": (vector, zeros),
        "Div": (1 / np.where(vector == 0, 1, vector), zeros),
    }[node.operator]
    return Traced(at.emit(node, AffineDraft, value.draft, scale=scale, shift=shift), value.order)
