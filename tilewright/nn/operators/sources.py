"""Operators that make numbers out of sizes or of few numbers: Shape, Range, ConstantOfShape, …"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import ALL, NUMBERS, Given, Operator, axis_of, content_of
from tilewright.nn.operators.element_types import NAMES, as_type, why_not_type
from tilewright.nn.operators.layout import Layout


class ShapeOf(Layout):
    """The sizes of x, or some of them."""

    name = "Shape"
    versions = (1, 13, 15, 19, 21, 23, 24, 25)

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Sizes are int64."""
        return ("int64",)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[how many]."""
        assert given[0] is not None
        return ((len(_sizes(node, given[0].shape)),),)

    def known(self, node: Node, given: Given) -> tuple[NDArray, ...] | None:
        """Always."""
        assert given[0] is not None
        return (np.asarray(_sizes(node, given[0].shape), np.int64),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The sizes from `start` to `end`."""
        (x,) = given
        return xp.asarray(_sizes(node, tuple(x.shape)), dtype=xp.int64, device=x.device)


class SizeOf(Layout):
    """How many elements x has."""

    name = "Size"
    versions = (1, 13, 19, 21, 23, 24, 25)

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """It is int64."""
        return ("int64",)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """A number."""
        return ((),)

    def known(self, node: Node, given: Given) -> tuple[NDArray, ...] | None:
        """Always."""
        assert given[0] is not None
        return (np.asarray(given[0].size, np.int64),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The product of the sizes."""
        (x,) = given
        return xp.asarray(math.prod(x.shape), dtype=xp.int64, device=x.device)


class Range(Layout):
    """Numbers from a start to before a limit."""

    name = "Range"
    versions = (11, 27)
    dtypes = NUMBERS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[how many]."""
        return ((_count(*(content_of(t, "how many there are").item() for t in given)),),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """start + i * delta; of halves in float32."""
        start, limit, delta = (array.item() for array in given)
        count = _count(start, limit, delta)
        dtype = given[0].dtype
        wide = xp.float32 if str(dtype).endswith("float16") else dtype
        return xp.arange(count, dtype=wide, device=given[0].device) * delta + start


class ConstantOfShape(Layout):
    """One number everywhere."""

    name = "ConstantOfShape"
    versions = (9, 20, 21, 23, 24, 25)
    dtypes = ("int64",)

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """That of the number; float32 where none is set."""
        value = node.attributes.get("value")
        return ("float32" if value is None else str(value.dtype),)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """What is asked for."""
        return (tuple(int(size) for size in content_of(given[0], "the shape").ravel()),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The number, or 0."""
        value = node.attributes.get("value")
        (name,) = self.types(node, ())
        number = 0.0 if value is None else value.reshape(-1)[0].item()
        wide = xp.full(
            tuple(given[0].tolist()), number, dtype=getattr(xp, name, xp.float32),
            device=given[0].device,
        )  # fmt: skip
        return as_type(xp, wide, name)


class EyeLike(Operator):
    """Ones on a diagonal."""

    name = "EyeLike"
    versions = (9, 22)

    def why_not(self, node: Node) -> str | None:
        """The type that is asked for."""
        return why_not_type(node.attributes.get("dtype", 1), "dtype")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """What is asked for, else x's."""
        asked = node.attributes.get("dtype")
        return (given[0] if asked is None else NAMES[asked],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x, which is a matrix."""
        assert given[0] is not None
        if len(given[0].shape) != 2:
            raise ShapeError(f"x {list(given[0].shape)}; accepted are matrices")
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """1 where column - row is k."""
        (x,) = given
        asked = node.attributes.get("dtype")
        made = xp.eye(x.shape[0], x.shape[1], k=node.attributes["k"], device=x.device)
        return made if asked is None else as_type(xp, made, NAMES[asked])


class OneHot(Operator):
    """A line for each place: one number there, another elsewhere."""

    name = "OneHot"
    versions = (9, 11, 28)
    dtypes = ALL

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """That of the two numbers."""
        return (given[2],)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The places' sizes and one more axis."""
        assert given[0] is not None
        shape = given[0].shape
        axis = axis_of(node.attributes["axis"], len(shape) + 1)
        depth = int(content_of(given[1], "how long lines are").reshape(-1)[0])
        return ((*shape[:axis], depth, *shape[axis:]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Places outside the line have the other number everywhere."""
        places, depth, numbers = given
        axis = axis_of(node.attributes["axis"], places.ndim + 1)
        count = int(depth.reshape(-1)[0])
        spots = xp.asarray(places, dtype=xp.int64)
        spots = xp.where(spots < 0, spots + count, spots)
        along = xp.arange(count, device=places.device)
        along = xp.reshape(along, (-1, *[1] * (places.ndim - axis)))
        return xp.where(xp.expand_dims(spots, axis=axis) == along, numbers[1], numbers[0])


class Trilu(Layout):
    """The upper or the lower triangle of matrices, zeros elsewhere."""

    name = "Trilu"
    versions = (14,)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """What lies on or above (below) the k-th diagonal."""
        x = given[0]
        k = int(given[1].reshape(-1)[0]) if len(given) > 1 and given[1] is not None else 0
        rows = xp.arange(x.shape[-2], device=x.device)[:, None]
        columns = xp.arange(x.shape[-1], device=x.device)[None, :]
        kept = columns - rows >= k if node.attributes["upper"] else columns - rows <= k
        return xp.where(kept, x, xp.zeros_like(x))


class CumSum(Operator):
    """Sums of all elements up to each along an axis."""

    name = "CumSum"
    versions = (11, 14)
    dtypes = NUMBERS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """From the end where `reverse`, without the element itself where `exclusive`."""
        x, axis = given[0], axis_of(int(given[1].reshape(-1)[0]), given[0].ndim)
        backwards = node.attributes["reverse"]
        source = xp.flip(x, axis=axis) if backwards else x
        sums = xp.cumulative_sum(source, axis=axis, dtype=x.dtype)
        if node.attributes["exclusive"]:
            sums = sums - source
        return xp.flip(sums, axis=axis) if backwards else sums


def _sizes(node: Node, shape: Shape) -> Shape:
    return shape[node.attributes.get("start", 0) : node.attributes.get("end")]


def _count(start: float, limit: float, delta: float) -> int:
    if delta == 0:
        raise ShapeError("delta is 0; accepted are other numbers")
    return max(0, math.ceil((limit - start) / delta))


OPERATORS = (
    ConstantOfShape(),
    CumSum(),
    EyeLike(),
    OneHot(),
    Range(),
    ShapeOf(),
    SizeOf(),
    Trilu(),
)
