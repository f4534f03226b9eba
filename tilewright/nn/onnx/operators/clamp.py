"""Relu and Clip."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.layers.clamp import Clamp
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.table import NUMBER, operator


@operator("Clip", (6, 11, 12, 13), {"min": NUMBER, "max": NUMBER}, "constant limits, least first")
@operator("Relu", (6, 13, 14))
def clamp(at: Importer, node: Node) -> Traced:
    """Relu is a Clip from 0 on."""
    value = at.plain(node.inputs[0])
    low, high = 0.0, np.inf
    if node.op == "Clip":
        get = node.attributes.get
        limits = [at.optional(node, position, "a limit") for position in (1, 2)]
        if any(limit is not None and limit.size != 1 for limit in limits):
            raise FileError("limits that are no single numbers")
        low = float(get("min", -np.inf) if limits[0] is None else limits[0].reshape(()))
        high = float(get("max", np.inf) if limits[1] is None else limits[1].reshape(()))
    return Traced(at.emit(node, Clamp, value.draft, low=low, high=high), value.order)
