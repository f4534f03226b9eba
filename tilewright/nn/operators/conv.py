"""Conv: convolutions over pictures of any number of dimensions, in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import FLOATS, Given, Operator, computed_bytes
from tilewright.nn.operators.windows import Windows, padded, windows_of


class Conv(Operator):
    """out[n, o, p] = bias[o] + the sum over c and k of x[n, c, p * stride + k] * w[o, c, k]."""

    name = "Conv"
    versions = (1, 11, 22)
    dtypes = FLOATS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, outputs, windows along each dimension]."""
        x, weights = given[:2]
        assert x is not None
        assert weights is not None
        groups = int(node.attributes["group"])
        if len(x.shape) < 3 or len(weights.shape) != len(x.shape):
            raise ShapeError(
                f"x {list(x.shape)} and weights {list(weights.shape)}; accepted are"
                " [N, C, ...] and [outputs, C / group, ...] of the same rank"
            )
        outputs, depth, *kernel = weights.shape
        named = node.attributes.get("kernel_shape")
        if named and tuple(named) != tuple(kernel):
            raise ShapeError(f"kernel_shape={list(named)}: the weights are {list(weights.shape)}")
        if groups < 1 or depth * groups != x.shape[1] or outputs % groups:
            raise ShapeError(
                f"group={groups}, weights {list(weights.shape)}, {x.shape[1]} channels;"
                " accepted are outputs and channels that the groups divide"
            )
        bias = given[2] if len(given) > 2 else None
        if bias is not None and bias.shape != (outputs,):
            raise ShapeError(f"bias {list(bias.shape)}: accepted is [{outputs}]")
        windows = windows_of(node.attributes, tuple(kernel), x.shape[2:])
        return ((x.shape[0], outputs, *windows.counts(x.shape[2:])),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """A product of matrices for each element of the window, summed."""
        x, weights, bias = (*given, None)[:3]
        windows = windows_of(node.attributes, tuple(weights.shape[2:]), tuple(x.shape[2:]))
        return convolved(xp, x, weights, bias, windows, int(node.attributes["group"]))

    def scratch(self, node: Node, given: Given) -> int:
        """Of the padded picture, and of one element of every window."""
        x, weights = given[:2]
        assert x is not None
        assert weights is not None
        windows = windows_of(node.attributes, weights.shape[2:], x.shape[2:])
        return computed_bytes(x) * room_of(x.shape, weights.shape[0], windows)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each weight that a sum meets."""
        weights = given[1]
        assert weights is not None
        return 2.0 * made[0].size * math.prod(weights.shape[1:])


def room_of(shape: Shape, outputs: int, windows: Windows) -> int:
    """Elements that `convolved` takes besides x and its result."""
    pixels = math.prod(windows.counts(shape[2:]))
    taken = shape[0] * pixels * (shape[1] + outputs)
    return taken + (math.prod(windows.padded(shape)) if any(windows.pads) else 0)


def convolved(xp: Any, x: Any, weights: Any, bias: Any, windows: Windows, groups: int) -> Any:
    """The convolution of x [N, C, ...] with weights [outputs, C / groups, ...], bias or None."""
    images, channels = x.shape[:2]
    outputs = weights.shape[0]
    counts = windows.counts(tuple(x.shape[2:]))
    source = padded(xp, x, windows.pads, 0)
    total = None
    each = (1, -1, *[1] * len(counts))
    for place, where in windows.taps(counts):
        tap = source[(slice(None), slice(None), *where)]
        if groups == channels == outputs:  # a number for each channel is no product of matrices
            part = tap * xp.reshape(weights[(slice(None), 0, *place)], each)
            total = part if total is None else total + part
            continue
        columns = xp.reshape(tap, (images, groups, channels // groups, math.prod(counts)))
        rows = weights[(slice(None), slice(None), *place)]
        rows = xp.reshape(rows, (1, groups, outputs // groups, channels // groups))
        part = xp.matmul(rows, columns)
        total = part if total is None else total + part
    result = xp.reshape(total, (images, outputs, *counts))
    if bias is None:
        return result
    return result + xp.reshape(bias, each)


OPERATORS = (Conv(),)
