"""Softmax and normalisations as what engines of values are asked: rows, or channels of pictures.

Softmax                  along the last axis, or channels of pictures, channels last  -> Rows
LayerNormalization       of one result, by constants of the axes from one on          -> Rows
InstanceNormalization    by constants: of 16 channels and more, channels last     -> Channels
                         of fewer, and of other ranks, channels first                 -> Rows
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.engines.conv import Format
from tilewright.engines.values import Channels, Rows, ValueWork
from tilewright.nn.graph import Node, Tensor

_LANES = 16  # channels from which channels last are worth it

# The work, what it reads, and how a picture has to lie.
Asked = tuple[ValueWork, tuple[str, ...], Format | None]


def rows_of(node: Node, tensors: Mapping[str, Tensor]) -> Asked | None:
    """What engines are asked of a node of float32; None where it is left to its definition."""
    make = _MADE.get(node.operator)
    return None if make is None else make(node, tensors)


def _softmax(node: Node, tensors: Mapping[str, Tensor]) -> Asked | None:
    shape = tensors[node.inputs[0]].shape
    axis = node.attributes["axis"] % max(1, len(shape))
    flat = node.version < 13  # the axis and all behind it are one
    columns = math.prod(shape[axis:]) if flat else shape[axis]
    if flat or axis == len(shape) - 1:
        return Rows("softmax", math.prod(shape) // columns, columns), node.inputs, _first(shape)
    if axis == 1 and len(shape) == 4:
        rows = shape[0] * shape[2] * shape[3]
        return Rows("softmax", rows, columns), node.inputs, "channels_last"
    return None


def _layer(node: Node, tensors: Mapping[str, Tensor]) -> Asked | None:
    x, *others = (tensors[name] for name in node.inputs if name)
    axis = node.attributes["axis"] % max(1, len(x.shape))
    whole = x.shape[axis:]
    if not _are_constants(others, whole) or any(node.outputs[1:]):
        return None
    columns = math.prod(whole)
    work = Rows("layer", x.size // columns, columns, epsilon=node.attributes["epsilon"])
    return work, tuple(name for name in node.inputs if name), _first(x.shape)


def _instance(node: Node, tensors: Mapping[str, Tensor]) -> Asked | None:
    x, *others = (tensors[name] for name in node.inputs)
    if len(x.shape) < 3 or not _are_constants(others, x.shape[1:2]):
        return None
    images, channels = x.shape[:2]
    pixels, epsilon = math.prod(x.shape[2:]), node.attributes["epsilon"]
    if len(x.shape) == 4 and channels >= _LANES:
        return Channels(images, channels, pixels, epsilon), node.inputs, "channels_last"
    work = Rows("instance", images * channels, pixels, channels, epsilon)
    return work, node.inputs, _first(x.shape)


def _are_constants(others: list[Tensor], shape: tuple[int, ...]) -> bool:
    """Whether scale and bias are known, one number for each of what they belong to."""
    known = [t.value is not None and t.dtype == "float32" and t.shape == shape for t in others]
    return all(known)


def _first(shape: tuple[int, ...]) -> Format | None:
    """How a value lies whose last axis follows itself in memory."""
    return "channels_first" if len(shape) == 4 else None


_MADE = {
    "Softmax": _softmax,
    "LayerNormalization": _layer,
    "InstanceNormalization": _instance,
}
