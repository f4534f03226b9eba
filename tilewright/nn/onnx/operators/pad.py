"""Pad: zeros, or -1 round signs, for the convolution that reads it."""

from __future__ import annotations

from dataclasses import replace

from tilewright.nn.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced, operator
from tilewright.nn.onnx.windows import pads_of


@operator("Pad", "rows and columns, constant, no axes; read by a Conv", mode=("constant",))
def pad(at: Importer, node: Node) -> Traced:
    """What the next convolution pads; nothing is computed."""
    value = at.plain(node.inputs[0])
    at.image(node)
    given = [at.optional(node, position, "pads") for position in (1, 2, 3)]
    return replace(value, pads=pads_of(node, given))
