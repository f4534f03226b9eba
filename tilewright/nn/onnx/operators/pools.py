"""Pools: the largest or the mean of windows, or the mean of the whole image."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.layers.pools import AveragePool, MaxPool
from tilewright.nn.onnx.importer import Importer, Traced, operator
from tilewright.nn.onnx.windows import window_of

_PLAIN = ((1, 1),)  # dilations


@operator("GlobalAveragePool", "of images")
@operator("ReduceMean", "over height and width")
def mean(at: Importer, node: Node) -> Traced:
    """The whole image."""
    value = at.plain(node.inputs[0])
    at.image(node)
    if node.operator == "ReduceMean":
        axes = node.attributes.get("axes")
        given = at.optional(node, 1, "axes") if axes is None else np.asarray(axes)
        if given is None or sorted(int(axis) % 4 for axis in given.reshape(-1)) != [2, 3]:
            raise FileError(f"axes={None if given is None else given.tolist()}; accepted are 2, 3")
    return Traced(at.emit(node, AveragePool, value.draft, window=None))


@operator("AveragePool", "no dilations; not ceil_mode with count_include_pad", dilations=_PLAIN)
@operator("MaxPool", "no dilations; one output", dilations=_PLAIN)
def pool(at: Importer, node: Node) -> Traced:
    """Windows."""
    value, size = at.plain(node.inputs[0]), at.image(node)
    window = window_of(node, node.attributes["kernel_shape"], size)
    if node.operator == "MaxPool":
        return Traced(at.emit(node, MaxPool, value.draft, window=window), is_bits=value.is_bits)
    every = bool(node.attributes["count_include_pad"])
    if every and node.attributes.get("ceil_mode", 0):
        raise FileError("ceil_mode with count_include_pad")
    return Traced(at.emit(node, AveragePool, value.draft, window=window, count_padding=every))
