"""What makes rows of images and changes no number: Flatten, Reshape, Squeeze."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.layers.flatten import Flatten
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.table import ANY, FLAG, operator

_VERSIONS = (13, 14, 19, 21, 23, 24, 25)  # that Flatten, Reshape and Squeeze have in common


@operator("Flatten", (1, 9, 11, *_VERSIONS[:1], *_VERSIONS[3:]), {"axis": ANY}, "to rows of images")
@operator("Reshape", (5, *_VERSIONS), {"allowzero": FLAG}, "to rows of images")
@operator("Squeeze", (1, 11, 13, *_VERSIONS[3:]), {"axes": ANY}, "of images of one pixel, to rows")
def flatten(at: Importer, node: Node) -> Traced:
    """Rows of features; the order of our features is another than ONNX's."""
    value, shape = at.plain(node.inputs[0]), at.shape(node)
    rows = (shape[0], int(np.prod(shape[1:])))
    if at.facts.shape(node.output) != rows:
        given = at.optional(node, 1, "a shape") if node.op != "Flatten" else None
        asked = node.attributes.get("axis" if node.op == "Flatten" else "axes")
        name = "shape" if node.op == "Reshape" else "axis" if node.op == "Flatten" else "axes"
        asked = asked if given is None else given.tolist()
        raise FileError(
            f"{name}={asked} makes {list(at.facts.shape(node.output))} of {list(shape)}; accepted"
            f" is {list(rows)}, a row for each of {shape[0]} images"
        )
    if len(shape) == 2:
        return value
    name = at.emit(node, Flatten, value.draft)
    order = np.arange(rows[1]).reshape(shape[1:]).transpose(1, 2, 0).reshape(-1)
    kept = None if shape[2:] == (1, 1) else order
    return Traced(name, kept, is_bits=value.is_bits)
