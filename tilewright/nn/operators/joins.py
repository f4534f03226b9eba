"""Concat and Split: arrays put together along an axis, and taken apart; channels in turns."""

from __future__ import annotations

import math
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import Given, axis_of, content_of
from tilewright.nn.operators.layout import Layout

INTERLEAVE = "Interleave"  # our own


class Concat(Layout):
    """Arrays one after another along an axis."""

    name = "Concat"
    versions = (4, 11, 13)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The sum of the sizes along the axis."""
        shapes = [tensor.shape for tensor in given if tensor is not None]
        axis = axis_of(node.attributes["axis"], len(shapes[0]))
        others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
        if len(others) > 1 or len({len(shape) for shape in shapes}) > 1:
            said = " and ".join(str(list(shape)) for shape in shapes)
            raise ShapeError(f"{said}; accepted are sizes that differ along axis {axis} alone")
        size = sum(shape[axis] for shape in shapes)
        return ((*shapes[0][:axis], size, *shapes[0][axis + 1 :]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's."""
        return xp.concat(given, axis=node.attributes["axis"])


class Split(Layout):
    """Parts of an array along an axis, of sizes that are named or equal."""

    name = "Split"
    versions = (2, 11, 13, 18)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """x's with each part's size along the axis."""
        assert given[0] is not None
        shape = given[0].shape
        axis = axis_of(node.attributes["axis"], len(shape))
        named = None
        if len(given) > 1 and given[1] is not None:
            named = content_of(given[1], "what sizes parts have")
        sizes = _parts(node, named, shape[axis])
        return tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Views."""
        x = given[0]
        axis = axis_of(node.attributes["axis"], x.ndim)
        sizes = _parts(node, given[1] if len(given) > 1 else None, x.shape[axis])
        made, begin = [], 0
        for size in sizes:
            made.append(x[(*[slice(None)] * axis, slice(begin, begin + size))])
            begin += size
        return tuple(made)


class Interleave(Layout):
    """Pictures of equal sizes, their channels in turns: the first of each, the second of each."""

    name = INTERLEAVE
    versions = (1,)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """As many times the channels."""
        assert given[0] is not None
        images, channels, *rest = given[0].shape
        return ((images, len(given) * channels, *rest),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Side by side, then as one axis."""
        images, channels, *rest = given[0].shape
        return xp.reshape(xp.stack(given, axis=2), (images, len(given) * channels, *rest))


def _parts(node: Node, named: Any, size: int) -> list[int]:
    """Sizes of the parts. Raises ShapeError where they do not make up the whole."""
    count = node.attributes.get("num_outputs") or len(node.outputs)
    if named is not None:
        parts = [int(part) for part in named.tolist()]
    elif node.attributes.get("split"):
        parts = list(node.attributes["split"])
    elif node.version < 18 and size % count:
        raise ShapeError(f"{size} elements in {count} parts; accepted are equal ones")
    else:
        each = math.ceil(size / count)
        parts = [max(0, min(each, size - at * each)) for at in range(count)]
    if sum(parts) != size or min(parts, default=0) < 0 or len(parts) < len(node.outputs):
        raise ShapeError(f"parts {parts}; accepted are {len(node.outputs)} that make up {size}")
    return parts[: len(node.outputs)]


OPERATORS = (Concat(), Split(), Interleave())
