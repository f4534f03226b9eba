"""Batch norms as scale and shift of each channel."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.onnx.drafts import AffineDraft
from tilewright.nn.onnx.importer import Importer, Traced, operator


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
