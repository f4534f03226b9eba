"""Relu and Clip."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.layers.clamp import Clamp
from tilewright.nn.onnx.importer import Importer, Traced, operator


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
