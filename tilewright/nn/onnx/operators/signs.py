"""Where values become bits: Sign, and a Where that a comparison with a constant decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.onnx.drafts import AffineDraft, SignDraft
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.table import operator

_COMPARISONS = {
    "Greater": (False, True),  # flipped, strict
    "GreaterOrEqual": (False, False),
    "Less": (True, True),
    "LessOrEqual": (True, False),
}


@operator("Sign", (9, 13))
def sign(at: Importer, node: Node) -> Traced:
    """0 becomes +1."""
    value = at.plain(node.inputs[0])
    at.signs[node.output] = (node.inputs[0], np.zeros(()))
    return Traced(at.emit(node, SignDraft, value.draft), value.order, is_bits=True)


@operator("Greater", (7, 9, 13), note="with a constant, read by a Where")
@operator("GreaterOrEqual", (12, 16), note="with a constant, read by a Where")
@operator("Less", (7, 9, 13), note="with a constant, read by a Where")
@operator("LessOrEqual", (12, 16), note="with a constant, read by a Where")
def compare(at: Importer, node: Node) -> Traced:
    """Nothing yet: the Where that reads it becomes a sign."""
    left, right = (at.constant(name) for name in node.inputs)
    if (left is None) == (right is None):
        raise FileError("accepted is a value beside a constant")
    constant, position = (right, 0) if left is None else (left, 1)
    value = at.plain(node.inputs[position])
    flipped, strict = _COMPARISONS[node.op]
    assert constant is not None
    cut = at.channels(node, constant, value, position)
    at.signs[node.output] = (node.inputs[position], constant)
    return replace(value, condition=(cut, flipped == (left is None), strict))


@operator("Where", (9, 16), note="of a comparison, -1 and 1")
def where(at: Importer, node: Node) -> Traced:
    """A sign, of the comparison before it."""
    value = at.found.get(node.inputs[0])
    chosen = [at.constant(name) for name in node.inputs[1:]]
    if value is None or value.condition is None or any(c is None or c.size != 1 for c in chosen):
        raise FileError("accepted is Where(comparison with a constant, -1, 1) or (…, 1, -1)")
    numbers = tuple(float(np.asarray(c).reshape(-1)[0]) for c in chosen)
    if numbers not in ((1.0, -1.0), (-1.0, 1.0)):
        raise FileError(f"of {numbers}; accepted are 1 and -1")
    cut, flipped, strict = value.condition
    if numbers[0] < 0:  # the other branch: not (x > t) is x <= t
        flipped, strict = not flipped, not strict
    draft = value.draft
    if flipped:
        ones = np.ones_like(cut)
        name = f"{node.output}, negated"
        draft = at.emit(node, AffineDraft, draft, name=name, scale=-ones, shift=0 * ones)
        cut = -cut
    plain = 0.0 if not cut.any() else cut
    at.signs[node.output] = at.signs[node.inputs[0]]
    name = at.emit(node, SignDraft, draft, cut=plain, strict=strict)
    return Traced(name, value.order, is_bits=True)
