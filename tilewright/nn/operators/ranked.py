"""Where the largest elements are: ArgMax, ArgMin, TopK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import NUMBERS, Given, Operator, axis_of, content_of


class Arg(Operator):
    """The place of the largest (or smallest) along an axis, of equals the first or the last."""

    versions = (1, 11, 12, 13)
    dtypes = NUMBERS

    def __init__(self, name: str, function: str) -> None:
        self.name, self._function = name, function

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Places are int64."""
        return ("int64",)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """One along the axis, or without it."""
        assert given[0] is not None
        shape = given[0].shape
        axis = axis_of(node.attributes["axis"], len(shape))
        if not shape[axis]:
            raise ShapeError(f"axis={axis} of {list(shape)}: accepted are axes that have elements")
        kept = (1,) if node.attributes["keepdims"] else ()
        return ((*shape[:axis], *kept, *shape[axis + 1 :]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The last of equals is the first from the end."""
        (x,) = given
        axis = axis_of(node.attributes["axis"], x.ndim)
        kept = bool(node.attributes["keepdims"])
        function = getattr(xp, self._function)
        if not node.attributes.get("select_last_index", 0):
            return function(x, axis=axis, keepdims=kept)
        return x.shape[axis] - 1 - function(xp.flip(x, axis=axis), axis=axis, keepdims=kept)


class TopK(Operator):
    """The k largest (or smallest) along an axis and where they are, in order."""

    name = "TopK"
    versions = (1, 10, 11, 24)
    dtypes = NUMBERS

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Places are int64."""
        return (given[0], "int64")[: len(node.outputs)]

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """k along the axis, for both outputs."""
        assert given[0] is not None
        shape = given[0].shape
        axis = axis_of(node.attributes["axis"], len(shape))
        count = _count(node, None if node.version < 10 else content_of(given[1], "how many"))
        if not 0 <= count <= shape[axis]:
            raise ShapeError(f"k={count}: accepted are 0 to {shape[axis]}")
        return ((*shape[:axis], count, *shape[axis + 1 :]),) * len(node.outputs)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Sorted whether asked for or not; of equals the first comes first."""
        x = given[0]
        axis = axis_of(node.attributes["axis"], x.ndim)
        count = _count(node, given[1] if len(given) > 1 else None)
        if node.attributes.get("largest", 1):
            backwards = xp.argsort(xp.flip(x, axis=axis), axis=axis, stable=True)
            order = x.shape[axis] - 1 - xp.flip(backwards, axis=axis)
        else:
            order = xp.argsort(x, axis=axis, stable=True)
        kept = [slice(None)] * x.ndim
        kept[axis] = slice(0, count)
        order = order[tuple(kept)]
        return (xp.take_along_axis(x, order, axis=axis), order)


def _count(node: Node, given: Any) -> int:
    return int(node.attributes["k"]) if given is None else int(given.reshape(-1)[0])


OPERATORS = (Arg("ArgMax", "argmax"), Arg("ArgMin", "argmin"), TopK())
