"""How a convolution takes in the node that reads it: by operator, or not at all.

scale and shift    BatchNormalization; Mul, Div, Add, Sub with constants     into the weights
residual           Add of a value of the same sizes                          before the activation
activation         those of `engines.conv.ACTIVATIONS`
shuffle            DepthToSpace, either order of channels                    last of all
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv, Whole
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.passes.activating import activation_of

Tensors = Mapping[str, Tensor]
# The convolution with the node taken in, and what that reads beside it.
Taken = tuple[Conv, tuple[str, ...]]


def taken(
    layer: Conv, node: Node, name: str, tensors: Tensors, whole_adds: bool = False
) -> Taken | None:
    """The layer that gives what `node` makes of the layer's value `name`; None where none does.

    Layers of whole numbers take a shuffle, their own pass has done the rest; with `whole_adds`
    those of float32 results take a residual too, and limits behind it.
    """
    if layer.whole is not None and node.operator != "DepthToSpace":
        return _added_whole(layer, layer.whole, node, name, tensors) if whole_adds else None
    plain = layer.activation.kind == "none" and layer.shuffle == 1
    if plain and not layer.adds:
        affine = _AFFINE.get(node.operator)
        found = None if affine is None else affine(layer, node, name, tensors)
        if found is not None:
            return found, ()
    if plain and not layer.adds and node.operator == "Add":
        other = _residual(node, name, tensors)
        if other is not None:
            return replace(layer, adds=True), (other,)
    if layer.activation.kind == "none":
        activation = activation_of(layer, node, name, tensors)
        if activation is not None:
            return replace(layer, activation=activation), ()
    if layer.shuffle == 1 and node.operator == "DepthToSpace":
        shuffled = _shuffled(layer, node)
        return None if shuffled is None else (shuffled, ())
    return None


def _residual(node: Node, name: str, tensors: Tensors) -> str | None:
    """The other value of a sum, where it has the same sizes and is no constant."""
    other = next((n for n in node.inputs if n != name), name)
    sizes = tensors[name].shape
    same = other != name and tensors[other].shape == sizes == tensors[node.outputs[0]].shape
    return other if same and tensors[other].value is None else None


def _added_whole(
    layer: Conv, whole: Whole, node: Node, name: str, tensors: Tensors
) -> Taken | None:
    """A layer whose sums end as float32: a residual, then the limits of an activation."""
    if whole.dtype != "float32" or layer.shuffle != 1:
        return None
    if (whole.low, whole.high) != (-math.inf, math.inf):
        return None
    if node.operator == "Add" and not layer.adds:
        other = _residual(node, name, tensors)
        return None if other is None else (replace(layer, adds=True), (other,))
    found = activation_of(layer, node, name, tensors) if layer.adds else None
    if found is None or found.kind not in ("relu", "clip"):
        return None
    low, high = (0.0, math.inf) if found.kind == "relu" else (found.low, found.high)
    return replace(layer, whole=replace(whole, low=low, high=high)), ()


def _normalised(layer: Conv, node: Node, name: str, tensors: Tensors) -> Conv | None:
    """BatchNormalization of what is trained: one scale and one shift a channel."""
    parts = [tensors[n].value for n in node.inputs[1:5]]
    training = node.attributes.get("training_mode", 0) or len(node.outputs) != 1
    if node.inputs[0] != name or training or any(part is None for part in parts):
        return None
    gamma, beta, mean, variance = (np.asarray(part, np.float64) for part in parts)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + node.attributes["epsilon"])
        return _scaled(layer, scale, beta - mean * scale)


def _arithmetic(layer: Conv, node: Node, name: str, tensors: Tensors) -> Conv | None:
    """A constant for each channel, or one for all, on either side."""
    first = node.inputs[0] == name
    other = node.inputs[1] if first else node.inputs[0]
    constant = None if other == name else tensors[other].value
    if constant is None or tensors[name].shape != tensors[node.outputs[0]].shape:
        return None
    values = _by_channel(constant, layer.outputs)
    if values is None or (node.operator == "Div" and not first):
        return None
    zero, one = np.zeros(layer.outputs), np.ones(layer.outputs)
    with np.errstate(all="ignore"):
        match node.operator:
            case "Mul":
                return _scaled(layer, values, zero)
            case "Div":
                return _scaled(layer, 1 / values, zero)
            case "Add":
                return _scaled(layer, one, values)
        return _scaled(layer, one, -values) if first else _scaled(layer, -one, values)


def _by_channel(constant: NDArray, channels: int) -> NDArray | None:
    """A constant that broadcasts to [N, C, H, W] by channels alone, as float64 [C]."""
    sizes = (1,) * (4 - constant.ndim) + constant.shape
    if len(sizes) != 4 or sizes[0] != 1 or sizes[2:] != (1, 1) or sizes[1] not in (1, channels):
        return None
    return np.broadcast_to(constant.reshape(-1).astype(np.float64), (channels,))


def _scaled(layer: Conv, scale: NDArray, shift: NDArray) -> Conv | None:
    """scale * convolution + shift; None where a number would leave float32."""
    bias = np.zeros(layer.outputs) if layer.bias is None else layer.bias.astype(np.float64)
    weights = (layer.weights * scale.reshape(-1, 1, 1, 1)).astype(np.float32)
    shifted = (bias * scale + shift).astype(np.float32)
    fine = np.isfinite(scale).all() and np.isfinite(weights).all() and np.isfinite(shifted).all()
    return replace(layer, weights=weights, bias=shifted) if fine else None


def _shuffled(layer: Conv, node: Node) -> Conv | None:
    """The channels in the order in which a shuffle takes them: c, then the place in the block.

    Where a residual or groups know the channels by their order, only that order is taken.
    """
    r = int(node.attributes["blocksize"])
    if node.attributes.get("mode", "DCR") == "CRD":
        return replace(layer, shuffle=r)
    if layer.groups > 1 or layer.adds:
        return None
    order = np.arange(layer.outputs).reshape(r * r, -1).T.reshape(-1)
    slopes, whole = layer.activation.slopes, layer.whole
    return replace(
        layer,
        weights=np.ascontiguousarray(layer.weights[order]),
        bias=None if layer.bias is None else layer.bias[order],
        activation=replace(layer.activation, slopes=None if slopes is None else slopes[order]),
        shuffle=r,
        whole=None if whole is None else replace(whole, scale=whole.scale[order]),
    )


_AFFINE: dict[str, Callable[[Conv, Node, str, Tensors], Conv | None]] = {
    "BatchNormalization": _normalised,
    **dict.fromkeys(("Mul", "Div", "Add", "Sub"), _arithmetic),
}
