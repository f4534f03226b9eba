"""Pools: the largest or the mean of windows, or the mean of the whole image."""

from __future__ import annotations

import numpy as np

from tilewright.errors import FileError
from tilewright.nn.layers.average_pool import AveragePool
from tilewright.nn.layers.max_pool import MaxPool
from tilewright.nn.onnx.graph import Node
from tilewright.nn.onnx.importer import Importer, Traced
from tilewright.nn.onnx.table import ANY, FLAG, operator
from tilewright.nn.onnx.windows import POOL, window_of


@operator(
    "AveragePool",
    (7, 10, 11, 19, 22),
    {**POOL, "count_include_pad": FLAG},
    "not ceil_mode with count_include_pad",
)
@operator("GlobalAveragePool", (1, 22), note="of images")
@operator("MaxPool", (1, 8, 10, 11, 12, 22), {**POOL, "storage_order": FLAG}, "one output")
@operator(
    "ReduceMean",
    (1, 11, 13, 18),
    {"axes": ANY, "keepdims": FLAG, "noop_with_empty_axes": FLAG},
    "over height and width",
)
def pool(at: Importer, node: Node) -> Traced:
    """Windows, or the whole image."""
    value, size = at.plain(node.inputs[0]), at.image(node)
    if node.op == "ReduceMean":
        axes = node.attributes.get("axes")
        given = at.optional(node, 1, "axes") if axes is None else np.asarray(axes)
        if given is None or sorted(int(axis) % 4 for axis in given.reshape(-1)) != [2, 3]:
            raise FileError(f"axes={None if given is None else given.tolist()}; accepted are 2, 3")
    if node.op in ("GlobalAveragePool", "ReduceMean"):
        return Traced(at.emit(node, AveragePool, value.draft, window=None))
    window = window_of(node, node.attributes["kernel_shape"], size)
    if node.op == "MaxPool":
        return Traced(at.emit(node, MaxPool, value.draft, window=window), is_bits=value.is_bits)
    every = bool(node.attributes["count_include_pad"])
    if every and node.attributes.get("ceil_mode", 0):
        raise FileError("ceil_mode with count_include_pad")
    return Traced(at.emit(node, AveragePool, value.draft, window=window, count_padding=every))
