"""Operators that move or repeat elements and leave them as they are: sizes are all they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.operators.base import Given, Operator, axis_of, broadcast, content_of


class Layout(Operator):
    """No operation: elements only get other places."""

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """None."""
        return 0.0


class _Reshaped(Layout):
    """The same elements in the same order under the sizes that `shapes` gives."""

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x under other sizes."""
        known = [None if a is None else _tensor(a, at > 0) for at, a in enumerate(given)]
        return xp.reshape(given[0], self.shapes(node, known)[0])


class Reshape(_Reshaped):
    """Sizes as an input: 0 keeps a size, -1 is what is left."""

    name = "Reshape"
    versions = (5, 13, 14, 19, 21, 23, 24, 25)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """What is asked for."""
        assert given[0] is not None
        old = given[0].shape
        asked = [int(size) for size in content_of(given[1], "the shape").ravel()]
        if not node.attributes.get("allowzero", 0):
            if any(size == 0 and at >= len(old) for at, size in enumerate(asked)):
                raise ShapeError(f"shape {asked} keeps a size that {list(old)} has not")
            asked = [old[at] if size == 0 else size for at, size in enumerate(asked)]
        known = math.prod(size for size in asked if size != -1)
        if asked.count(-1) == 1 and known:
            asked[asked.index(-1)] = math.prod(old) // known
        if min(asked, default=0) < 0 or math.prod(asked) != math.prod(old):
            raise ShapeError(f"shape {asked}: x is {list(old)}; accepted are as many elements")
        return (tuple(asked),)


class Flatten(_Reshaped):
    """A matrix: the axes before one, and the others."""

    name = "Flatten"
    versions = (1, 9, 11, 13, 21, 23, 24, 25)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[product of the sizes before the axis, product of the others]."""
        assert given[0] is not None
        shape, axis = given[0].shape, node.attributes["axis"]
        if not -len(shape) <= axis <= len(shape):
            raise ShapeError(f"axis={axis}: accepted are {-len(shape)} to {len(shape)}")
        axis = axis + len(shape) if axis < 0 else axis
        return ((math.prod(shape[:axis]), math.prod(shape[axis:])),)


class Squeeze(_Reshaped):
    """Axes of size 1 taken out."""

    name = "Squeeze"
    versions = (1, 11, 13, 21, 23, 24, 25)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Without the axes that are named, or all of size 1."""
        assert given[0] is not None
        shape = given[0].shape
        named = _axes(node, given)
        if named is None:
            return (tuple(size for size in shape if size != 1),)
        axes = {axis_of(axis, len(shape)) for axis in named}
        if any(shape[axis] != 1 for axis in axes):
            raise ShapeError(f"axes {sorted(axes)} of {list(shape)}; accepted are sizes of 1")
        return (tuple(size for at, size in enumerate(shape) if at not in axes),)


class Unsqueeze(_Reshaped):
    """Axes of size 1 put in."""

    name = "Unsqueeze"
    versions = (1, 11, 13, 21, 23, 24, 25)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Ones at the axes that are named, counted in the result."""
        assert given[0] is not None
        named = _axes(node, given) or ()
        rank = len(given[0].shape) + len(named)
        axes = {axis_of(axis, rank) for axis in named}
        if len(axes) < len(named):
            raise ShapeError(f"axes {list(named)}; accepted is each once")
        sizes = iter(given[0].shape)
        return (tuple(1 if at in axes else next(sizes) for at in range(rank)),)


class Identity(_Reshaped):
    """x."""

    name = "Identity"
    versions = (1, 13, 14, 16, 19, 21, 23, 24, 25)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        return (given[0].shape,)


class Transpose(Layout):
    """Axes in another order."""

    name = "Transpose"
    versions = (1, 13, 21, 23, 24, 25)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The sizes in that order."""
        assert given[0] is not None
        shape = given[0].shape
        return (tuple(shape[axis] for axis in _order(node, len(shape))),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """A view with other strides."""
        return xp.permute_dims(given[0], _order(node, given[0].ndim))


class Expand(Layout):
    """x broadcast against sizes."""

    name = "Expand"
    versions = (8, 13)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The common sizes of x and what is asked for."""
        assert given[0] is not None
        asked = content_of(given[1], "the shape").ravel()
        return (broadcast(given[0].shape, tuple(int(size) for size in asked)),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """A view with strides of 0."""
        x, shape = given
        return xp.broadcast_to(x, broadcast(tuple(x.shape), tuple(shape.tolist())))


class Tile(Layout):
    """x repeated along each axis."""

    name = "Tile"
    versions = (6, 13)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Sizes times repetitions."""
        assert given[0] is not None
        repeats = [int(count) for count in content_of(given[1], "how often").ravel()]
        if len(repeats) != len(given[0].shape) or min(repeats, default=0) < 0:
            raise ShapeError(
                f"repeats {repeats}; accepted are {len(given[0].shape)} numbers from 0"
            )
        return (tuple(s * r for s, r in zip(given[0].shape, repeats, strict=True)),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's tile."""
        return xp.tile(given[0], tuple(given[1].tolist()))


class Dropout(Layout):
    """x: nothing is dropped when a network is run."""

    name = "Dropout"
    versions = (7, 10, 12, 13, 22)
    note = "as it is when a network is run"

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """The mask is bool from version 10 on."""
        return (given[0], "bool" if node.version >= 10 else given[0])[: len(node.outputs)]

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x. Raises ShapeError where training is asked for."""
        assert given[0] is not None
        training = given[2] if len(given) > 2 else None
        if training is not None and bool(content_of(training, "training_mode").any()):
            ratio = given[1]
            if ratio is None or bool(content_of(ratio, "ratio").any()):
                raise ShapeError("training_mode is true; accepted is false, or a ratio of 0")
        return (given[0].shape,) * len(node.outputs)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x, and a mask of ones."""
        x = given[0]
        mask = xp.bool if node.version >= 10 else x.dtype
        return (x, xp.ones(tuple(x.shape), dtype=mask, device=x.device))


def _tensor(array: Any, with_content: bool) -> Tensor:
    """An array's sizes as `shapes` takes them, of the inputs behind the first its content too."""
    content = np.asarray(array.tolist(), np.int64) if with_content else None
    return Tensor(tuple(array.shape), "", content)


def _axes(node: Node, given: Given) -> Sequence[int] | None:
    """Axes as an attribute, or from version 13 on as an input; None where none are named."""
    if node.version < 13:
        return node.attributes.get("axes")
    if len(given) < 2 or given[1] is None:
        return None
    return [int(axis) for axis in content_of(given[1], "what axes they are").ravel()]


def _order(node: Node, rank: int) -> tuple[int, ...]:
    order = tuple(node.attributes.get("perm") or reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"perm={list(order)}: accepted are the numbers 0 to {rank - 1}")
    return order


OPERATORS = (
    Dropout(),
    Expand(),
    Flatten(),
    Identity(),
    Reshape(),
    Squeeze(),
    Tile(),
    Transpose(),
    Unsqueeze(),
)
