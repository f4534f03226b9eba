"""Recognises activations of a convolution's value, those of one node."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.engines.conv import Activation, Conv
from tilewright.nn.graph import Node, Tensor

_PLAIN = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "HardSwish": "hard_swish",
    "Tanh": "tanh",
    "Silu": "silu",
}


def activation_of(
    layer: Conv, node: Node, name: str, tensors: Mapping[str, Tensor]
) -> Activation | None:
    """The activation that a node is of the layer's value `name`; None where it is none."""
    if node.inputs[0] != name or name in node.inputs[1:]:
        return None
    plain = _PLAIN.get(node.operator)
    if plain is not None:
        return Activation(plain)
    match node.operator:
        case "LeakyRelu":
            return Activation("leaky", low=float(node.attributes["alpha"]))
        case "HardSigmoid":
            low, high = (float(node.attributes[part]) for part in ("alpha", "beta"))
            return Activation("hard_sigmoid", low=low, high=high)
        case "Gelu" if node.attributes.get("approximate", "none") == "none":
            return Activation("gelu")
        case "PRelu":
            return _prelu(layer, tensors[node.inputs[1]])
        case "Clip":
            return _clip(node, tensors)
    return None


def _prelu(layer: Conv, slope: Tensor) -> Activation | None:
    """Slopes of channels; after a shuffle channels are others."""
    sizes = (1,) * (4 - len(slope.shape)) + slope.shape
    fits = len(sizes) == 4 and sizes[0] == 1 and sizes[2:] == (1, 1) and layer.shuffle == 1
    if slope.value is None or not fits or sizes[1] not in (1, layer.outputs):
        return None
    flat = slope.value.reshape(-1).astype(np.float32)
    slopes = np.ascontiguousarray(np.broadcast_to(flat, (layer.outputs,)))
    return Activation("prelu", slopes=slopes)


def _clip(node: Node, tensors: Mapping[str, Tensor]) -> Activation | None:
    """Bounds that are constants or attributes; absent ones are infinite."""
    bounds = [node.attributes.get("min"), node.attributes.get("max")]
    for at, source in enumerate(node.inputs[1:3]):
        if source:
            value = tensors[source].value
            if value is None:
                return None
            bounds[at] = float(value.reshape(-1)[0])
    low = -np.inf if bounds[0] is None else float(bounds[0])
    high = np.inf if bounds[1] is None else float(bounds[1])
    if low == 0 and high == np.inf:
        return Activation("relu")
    # Where bounds cross ONNX gives the upper one, in whatever order an engine applies them.
    return Activation("clip", low=high if low > high else low, high=high)
