"""Batch norms as scale and shift of each channel."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.onnx.drafts import AffineDraft
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.table import ANY, NUMBER, one_of, operator


@operator(
    "BatchNormalization",
    (7, 9, 14, 15),
    {
        "epsilon": NUMBER,
        "momentum": ANY,
        "spatial": one_of(1),
        "training_mode": one_of(0),
    },
    "of constants; one output",
)
def norm(at: Importer, node: Node) -> Traced:
    """A batch norm as scale and shift of each channel."""
    value, parts = at.plain(node.inputs[0]), [at.constant(name) for name in node.inputs[1:]]
    sizes = at.shape(node)
    if any(part is None or part.shape != sizes[1:2] for part in parts):
        raise FileError(f"accepted are constants, one for each of {sizes[1]} channels")
    gamma, beta, mean, variance = (np.asarray(part, np.float64) for part in parts)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + node.attributes["epsilon"])
    if not np.isfinite(scale).all():
        raise FileError("a variance below 0")
    around = (-1, *[1] * (len(sizes) - 2))
    scale, shift = (
        at.channels(node, v.reshape(around), value) for v in (scale, beta - mean * scale)
    )
    return Traced(at.emit(node, AffineDraft, value.draft, scale=scale, shift=shift), value.order)
