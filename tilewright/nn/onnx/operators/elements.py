"""What is done to every element: arithmetic with a constant a channel, batch norms, Relu, Clip.

Beside it Add of two values, a shortcut.
"""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.layers.maps import Add, Clamp
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


@operator("BatchNormalization", "of constants; one output", training_mode=(0,))
def norm(at: Importer, node: Node) -> Traced:
    """A batch norm as scale and shift of each channel."""
    value = at.plain(node.inputs[0])
    parts = [at.optional(node, place, "a part") for place in (1, 2, 3, 4)]
    gamma, beta, mean, variance = (np.asarray(part, np.float64) for part in parts)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + node.attributes["epsilon"])
    if not np.isfinite(scale).all():
        raise FileError("a variance below 0")
    shift = beta - mean * scale
    if value.order is not None:
        scale, shift = scale[value.order], shift[value.order]
    return Traced(at.emit(node, AffineDraft, value.draft, scale=scale, shift=shift), value.order)


@operator("Clip", "constant limits, least first")
@operator("Relu")
def clamp(at: Importer, node: Node) -> Traced:
    """Relu is a Clip from 0 on."""
    value = at.plain(node.inputs[0])
    limits = {"min": -np.inf, "max": np.inf} if node.operator == "Clip" else {"min": 0.0}
    for place, name in enumerate(limits, 1):
        given = at.optional(node, place, "a limit")
        if given is not None and given.size != 1:
            raise FileError("limits that are no single numbers")
        found = node.attributes.get(name, limits[name]) if given is None else given.reshape(())
        limits[name] = float(found)
    low, high = limits["min"], limits.get("max", np.inf)
    return Traced(at.emit(node, Clamp, value.draft, low=low, high=high), value.order)
