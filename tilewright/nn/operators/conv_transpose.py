"""ConvTranspose: what a convolution's gradient is; every pixel spreads over a window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import FLOATS, Given, Operator, computed_bytes
from tilewright.nn.operators.windows import Windows, filled, windows_of


class ConvTranspose(Operator):
    """out[n, o, p * stride + k] gets x[n, c, p] * w[c, o, k], summed over c, p and k."""

    name = "ConvTranspose"
    versions = (1, 11, 22)
    dtypes = FLOATS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, outputs, what the windows reach over, without the pads]."""
        x, weights = given[:2]
        assert x is not None
        assert weights is not None
        groups = node.attributes["group"]
        if len(x.shape) < 3 or len(weights.shape) != len(x.shape):
            raise ShapeError(
                f"x {list(x.shape)} and weights {list(weights.shape)}; accepted are"
                " [N, C, ...] and [C, outputs / group, ...] of the same rank"
            )
        if groups < 1 or weights.shape[0] != x.shape[1] or x.shape[1] % groups:
            raise ShapeError(
                f"group={groups}, weights {list(weights.shape)}, {x.shape[1]} channels;"
                " accepted are channels that the groups divide"
            )
        outputs = weights.shape[1] * groups
        bias = given[2] if len(given) > 2 else None
        if bias is not None and bias.shape != (outputs,):
            raise ShapeError(f"bias {list(bias.shape)}: accepted is [{outputs}]")
        _, _begins, sizes = spread(node.attributes, weights.shape[2:], x.shape[2:])
        return ((x.shape[0], outputs, *sizes),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """A product of matrices for each line of the window, added where it reaches."""
        x, weights, bias = (*given, None)[:3]
        groups = node.attributes["group"]
        images, channels, *counts = x.shape
        each = weights.shape[1]
        windows, begins, sizes = spread(node.attributes, tuple(weights.shape[2:]), tuple(counts))
        room = _room(tuple(counts), windows, begins, sizes)
        made = filled(xp, x, (images, groups * each, *room), 0)
        columns = xp.reshape(x, (images, groups, channels // groups, math.prod(counts)))
        for place, where in windows.taps(tuple(counts)):
            if not any(place[1:]):
                parts = _row(xp, columns, weights, place[0], groups)
            part = xp.reshape(parts[place[1:]], (images, groups * each, *counts))
            made[(slice(None), slice(None), *where)] += part
        kept = (slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))
        result = made[(slice(None), slice(None), *kept)]
        if bias is not None:
            result = result + xp.reshape(bias, (1, -1, *[1] * len(counts)))
        return result

    def scratch(self, node: Node, given: Given) -> int:
        """Of all that windows reach over, and of what one line of them adds."""
        x, weights = given[:2]
        assert x is not None
        assert weights is not None
        kernel, counts = weights.shape[2:], x.shape[2:]
        reached = _room(counts, *spread(node.attributes, kernel, counts))
        lines = math.prod(counts) * math.prod(kernel[1:])
        outputs = weights.shape[1] * node.attributes["group"]
        return int(computed_bytes(x) * x.shape[0] * outputs * (math.prod(reached) + 2 * lines))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each weight that an element of x meets."""
        x, weights = given[:2]
        assert x is not None
        assert weights is not None
        return 2.0 * x.size * math.prod(weights.shape[1:])


def _room(counts: Shape, windows: Windows, begins: Shape, sizes: Shape) -> Shape:
    """Elements along each dimension that windows reach over, or that are kept."""
    return tuple(
        max(begin + size, (count - 1) * windows.strides[at] + windows.reach(at))
        for at, (begin, size, count) in enumerate(zip(begins, sizes, counts, strict=True))
    )


def _row(xp: Any, columns: Any, weights: Any, at: int, groups: int) -> Any:
    """What one line of the window adds: [other places of the window, N, outputs, pixels].

    One product for all of a line: of a few outputs each, products for single places are slow.
    """
    images, _, channels, pixels = columns.shape
    each, others = weights.shape[1], tuple(weights.shape[3:])
    many = math.prod(others)  # of no channels or pixels nothing could be counted from the others
    line = xp.reshape(weights[:, :, at, ...], (groups, channels, each * many))
    turned = xp.reshape(xp.permute_dims(line, (0, 2, 1)), (1, groups, each * many, channels))
    parts = xp.reshape(xp.matmul(turned, columns), (images, groups, each, many, pixels))
    moved = xp.permute_dims(parts, (3, 0, 1, 2, 4))
    return xp.reshape(moved, (*others, images, groups * each, pixels))


def spread(
    attributes: Mapping[str, Any], kernel: Shape, counts: Shape
) -> tuple[Windows, Shape, Shape]:
    """The windows, how much is cut off before along each dimension, and the sizes that are left.

    Raises ShapeError for attributes of another rank.
    """
    rank = len(counts)
    plain = {**attributes, "auto_pad": "NOTSET"}
    mode, asked = attributes["auto_pad"], attributes.get("output_shape")
    if mode != "NOTSET" or asked:
        plain["pads"] = (0,) * (2 * rank)
    windows = windows_of(plain, kernel, counts)
    extra = tuple(attributes.get("output_padding") or (0,) * rank)
    if len(extra) != rank or (asked and len(asked) != rank):
        raise ShapeError(f"output_padding {list(extra)}, output_shape {asked}; one a dimension")
    full = [
        (count - 1) * windows.strides[at] + windows.reach(at) + extra[at]
        for at, count in enumerate(counts)
    ]
    if asked:
        sizes = tuple(asked)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = tuple(count * windows.strides[at] for at, count in enumerate(counts))
    else:
        sizes = tuple(
            size - windows.pads[at] - windows.pads[at + rank] for at, size in enumerate(full)
        )
        return windows, windows.pads[:rank], sizes
    cut = [max(0, size - wanted) for size, wanted in zip(full, sizes, strict=True)]
    begins = [size // 2 if mode == "SAME_UPPER" else size - size // 2 for size in cut]
    return windows, tuple(begins), sizes


OPERATORS = (ConvTranspose(),)
