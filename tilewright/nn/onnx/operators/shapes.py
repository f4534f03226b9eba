"""What makes rows of images and changes no number: Flatten, Reshape, Squeeze."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.layers.maps import Flatten
from tilewright.nn.onnx.importer import Importer, Traced, operator


@operator("Flatten", "to rows of images")
@operator("Reshape", "to rows of images")
@operator("Squeeze", "of images of one pixel, to rows")
def flatten(at: Importer, node: Node) -> Traced:
    """Rows of features; the order of our features is another than ONNX's."""
    value, shape = at.plain(node.inputs[0]), at.shape(node)
    rows = (shape[0], int(np.prod(shape[1:])))
    made = at.file.shape(node.outputs[0])
    if made != rows:
        name = {"Flatten": "axis", "Reshape": "shape", "Squeeze": "axes"}[node.operator]
        given = at.optional(node, 1, name)
        asked = node.attributes.get(name) if given is None else given.tolist()
        raise FileError(
            f"{name}={asked} makes {list(made)} of {list(shape)}; accepted is {list(rows)}, a row"
            f" for each of {shape[0]} images"
        )
    if len(shape) == 2:
        return value
    name = at.emit(node, Flatten, value.draft)
    order = np.arange(rows[1]).reshape(shape[1:]).transpose(1, 2, 0).reshape(-1)
    kept = None if shape[2:] == (1, 1) else order
    return Traced(name, kept, is_bits=value.is_bits)
