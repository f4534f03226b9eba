"""Makes of a ConvTranspose the plain convolution and pixel shuffle that compute the same.

    stride 2: results at even places meet weights 0, 2, 4, …, at odd places 1, 3, 5, …

Of each output channel come stride * stride: one for every place of a block, each with its share of
the weights, and a pixel shuffle lays them side by side. So engines of convolutions compute it, and
what follows joins it. Where shares differ in length they are filled with zeros, so that what is not
finite reaches all of a block that it touches, not only the places that its weights reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.operators.conv_transpose import spread
from tilewright.nn.operators.convs import convs_node


@dataclass(frozen=True, slots=True, eq=False)
class _Axis:
    """Along one dimension: which weight each place of a block meets at each tap, -1 for none.

    weights  [stride, taps]; tap t reads x at the block's place - begin + t
    """

    weights: NDArray
    begin: int
    end: int


def plain(node: Node, tensors: Mapping[str, Tensor]) -> Node | None:
    """The convolution as a chain of one layer; None where it is none, or none of this kind.

    That is: of pictures, with constant weights, one group, no dilation, the same stride both ways,
    and a result of whole blocks.
    """
    if node.operator != "ConvTranspose":
        return None
    x, weights, *rest = (tensors[name] if name else None for name in node.inputs)
    bias = rest[0] if rest else None
    assert x is not None
    assert weights is not None
    if len(x.shape) != 4 or weights.value is None or x.dtype == "float64":
        return None
    if node.attributes["group"] != 1 or (bias is not None and bias.value is None):
        return None
    windows, begins, sizes = spread(node.attributes, weights.shape[2:], x.shape[2:])
    stride = windows.strides[0]
    if set(windows.dilations) != {1} or windows.strides[1] != stride:
        return None
    if any(size % stride or not size for size in sizes):
        return None
    axes = [
        _axis(kernel, stride, begin, count, size // stride)
        for kernel, begin, count, size in zip(
            weights.shape[2:], begins, x.shape[2:], sizes, strict=True
        )
    ]
    if min(min(axis.begin, axis.end) for axis in axes) < 0:
        return None
    layer = Conv(
        _shares(np.asarray(weights.value, np.float32), axes[0], axes[1]),
        None if bias is None else np.repeat(np.asarray(bias.value, np.float32), stride * stride),
        pads=(axes[0].begin, axes[1].begin, axes[0].end, axes[1].end),
        shuffle=stride,
    )
    return convs_node(node.name, (layer,), (node.inputs[0],), node.outputs[0], ((node.name,),))


def _axis(kernel: int, stride: int, cut: int, count: int, blocks: int) -> _Axis:
    """One dimension: `count` elements become `blocks` blocks, `cut` results left out before."""
    reads = {}  # (place in the block, which element beside the block's own) -> weight
    for place in range(stride):
        whole, first = divmod(place + cut, stride)
        for step, weight in enumerate(range(first, kernel, stride)):
            reads[place, whole - step] = weight
    low = min(beside for _, beside in reads)
    taps = max(beside for _, beside in reads) - low + 1
    found = np.full((stride, taps), -1)
    for (place, beside), weight in reads.items():
        found[place, beside - low] = weight
    return _Axis(found, -low, blocks - 1 + taps - count + low)


def _shares(weights: NDArray, rows: _Axis, columns: _Axis) -> NDArray:
    """Weights [C, outputs, ...] as [outputs * stride * stride, C, taps, taps]."""
    none = np.pad(weights, ((0, 0), (0, 0), (0, 1), (0, 1)))  # where index -1 finds zeros
    picked = none[:, :, rows.weights[:, None, :, None], columns.weights[None, :, None, :]]
    channels, outputs, stride = picked.shape[:3]
    turned = picked.transpose(1, 2, 3, 0, 4, 5)
    shape = (outputs * stride * stride, channels, *picked.shape[4:])
    return np.require(turned.reshape(shape), np.float32, ["C", "W"])
