"""Where values become bits: Sign, and a Where that a comparison with a constant decides; Cast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.onnx.drafts import AffineDraft, SignDraft
from tilewright.nn.onnx.importer import Importer, Traced, operator

_COMPARISONS = {
    "Greater": (False, True),  # flipped, strict
    "GreaterOrEqual": (False, False),
    "Less": (True, True),
    "LessOrEqual": (True, False),
}


@operator("Sign")
def sign(at: Importer, node: Node) -> Traced:
    """0 becomes +1."""
    value = at.plain(node.inputs[0])
    at.signs[node.outputs[0]] = (node.inputs[0], np.zeros(()))
    return Traced(at.emit(node, SignDraft, value.draft), value.order, is_bits=True)


@operator("Greater", "with a constant, read by a Where")
@operator("GreaterOrEqual", "with a constant, read by a Where")
@operator("Less", "with a constant, read by a Where")
@operator("LessOrEqual", "with a constant, read by a Where")
def compare(at: Importer, node: Node) -> Traced:
    """Nothing yet: the Where that reads it becomes a sign."""
    beside = at.beside(node)
    if beside is None:
        raise FileError("accepted is a value beside a constant")
    value, cut, place, constant = beside
    flipped, strict = _COMPARISONS[node.operator]
    at.signs[node.outputs[0]] = (node.inputs[1 - place], constant)
    return replace(value, condition=(cut, flipped == (place == 1), strict))


@operator("Where", "of a comparison, -1 and 1")
def where(at: Importer, node: Node) -> Traced:
    """A sign, of the comparison before it."""
    value = at.found.get(node.inputs[0])
    chosen = [at.file.constant(name) for name in node.inputs[1:]]
    if value is None or value.condition is None or any(c is None or c.size != 1 for c in chosen):
        raise FileError("accepted is Where(comparison with a constant, -1, 1) or (…, 1, -1)")
    numbers = tuple(float(np.asarray(c).item()) for c in chosen)
    if numbers not in ((1.0, -1.0), (-1.0, 1.0)):
        raise FileError(f"of {numbers}; accepted are 1 and -1")
    cut, flipped, strict = value.condition
    if numbers[0] < 0:  # the other branch: not (x > t) is x <= t
        flipped, strict = not flipped, not strict
    draft = value.draft
    if flipped:
        ones = np.ones_like(cut)
        name = f"{node.outputs[0]}, negated"
        draft = at.emit(node, AffineDraft, draft, name=name, scale=-ones, shift=0 * ones)
        cut = -cut
    plain = 0.0 if not cut.any() else cut
    at.signs[node.outputs[0]] = at.signs[node.inputs[0]]
    name = at.emit(node, SignDraft, draft, cut=plain, strict=strict)
    return Traced(name, value.order, is_bits=True)


@operator("Cast", "to float32 and float64; signs to float16", saturate=(1,), round_mode=("up",))
def cast(at: Importer, node: Node) -> Traced:
    """To types that hold every number that may come."""
    value, to = at.plain(node.inputs[0]), at.file.tensors[node.outputs[0]].dtype
    if to not in ("float32", "float64") and not (to == "float16" and value.is_bits):
        raise FileError(
            f"to={node.attributes['to']}, which rounds; accepted are 1 (float32), 11 (float64), and"
            " 10 (float16) of signs"
        )
    return value
