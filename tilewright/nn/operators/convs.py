"""Operators that no file has, as passes make them: chains of convolutions foremost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.engines.conv import Activation, Conv, ConvWork
from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.activate import activate
from tilewright.nn.operators.base import FLOATS, Elementwise, Given, Operator, computed_bytes
from tilewright.nn.operators.conv import convolved, room_of
from tilewright.nn.operators.conv_int8 import whole_layer
from tilewright.nn.operators.windows import Windows

NAME, LAY_OUT, SILU = "Convs", "LayOut", "Silu"
Parts = tuple[tuple[str, ...], ...]


def convs_node(
    name: str, layers: tuple[Conv, ...], inputs: tuple[str, ...], output: str, parts: Parts
) -> Node:
    """A chain as a node: x, then a residual for each layer that adds one.

    parts: for each layer the names of the file's nodes that it does.
    """
    attributes = {"layers": layers, "parts": parts}
    return Node(NAME, 1, inputs, (output,), attributes, name)


class Convs(Operator):
    """Each layer: activation(convolution + bias [+ residual]), then a pixel shuffle."""

    name = NAME
    versions = (1,)
    dtypes = (*FLOATS, "uint8", "int8")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Of x, or what the last layer says."""
        whole = node.attributes["layers"][-1].whole
        return (given[0] if whole is None else whole.dtype,)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Of the last layer."""
        x = given[0]
        assert x is not None
        layers = node.attributes["layers"]
        images, channels, height, width = x.shape
        if channels != layers[0].inputs:
            raise ShapeError(f"{channels} channels; accepted are {layers[0].inputs}")
        return ((images, *ConvWork(layers, images, height, width).sizes[-1]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Layer after layer."""
        x, *residuals = given
        waiting = iter(residuals)
        for layer in node.attributes["layers"]:
            x = layer_of(xp, layer, x, next(waiting) if layer.adds else None)
        return x

    def scratch(self, node: Node, given: Given) -> int:
        """Of the layer that takes most: its x and sums beside what `convolved` takes."""
        x = given[0]
        assert x is not None
        layers = node.attributes["layers"]
        images, _, height, width = x.shape
        sizes = ConvWork(layers, images, height, width).sizes
        found = []
        for layer, before in zip(layers, sizes, strict=False):
            windows = Windows(layer.kernel, layer.strides, layer.dilations, layer.pads)
            sums = math.prod(layer.sums(*before[1:])) * layer.outputs
            room = room_of((images, *before), layer.outputs, windows)
            found.append(room + images * (math.prod(before) + sums))
        return int(computed_bytes(x) * max(found))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each weight that a sum meets."""
        x = given[0]
        assert x is not None
        images, _, height, width = x.shape
        return ConvWork(node.attributes["layers"], images, height, width).flops


def layer_of(xp: Any, layer: Conv, x: Any, residual: Any) -> Any:
    """One layer by its definition."""
    if layer.whole is not None:
        return _shuffled(xp, whole_layer(xp, layer, x, residual), layer.shuffle)
    weights, bias = (
        None if part is None else xp.asarray(part, dtype=x.dtype, device=x.device)
        for part in (layer.weights, layer.bias)
    )
    windows = Windows(layer.kernel, layer.strides, layer.dilations, layer.pads)
    sums = convolved(xp, x, weights, bias, windows, layer.groups)
    if residual is not None:
        sums = sums + residual
    return _shuffled(xp, activate(xp, sums, layer.activation), layer.shuffle)


def _shuffled(xp: Any, x: Any, r: int) -> Any:
    """Channels [c * r * r] become r x r pixels."""
    if r == 1:
        return x
    images, channels, height, width = x.shape
    parts = xp.reshape(x, (images, channels // (r * r), r, r, height, width))
    pixels = xp.permute_dims(parts, (0, 1, 4, 2, 5, 3))
    return xp.reshape(pixels, (images, channels // (r * r), height * r, width * r))


class LayOut(Operator):
    """The same value; binding makes it where an engine wants its memory in another order."""

    name = LAY_OUT
    versions = (1,)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As given."""
        assert given[0] is not None
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """As given."""
        return given[0]


class Silu(Elementwise):
    """x * sigmoid(x)."""

    name = SILU
    versions = (1,)
    dtypes = FLOATS

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """As convolutions end with it."""
        return activate(xp, given[0], Activation("silu"))


OPERATORS = (Convs(), LayOut(), Silu())
