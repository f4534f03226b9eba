"""Elements at places that an input names, read or written: Gather and Scatter, all forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.errors import ArgumentError, ShapeError
from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import Given, axis_of
from tilewright.nn.operators.layout import Layout

# What becomes of an element and what is written to it, by `reduction`.
_JOINS = {
    "add": lambda xp, old, new: old + new,
    "mul": lambda xp, old, new: old * new,
    "max": lambda xp, old, new: xp.maximum(old, new),
    "min": lambda xp, old, new: xp.minimum(old, new),
}


class Gather(Layout):
    """Slices of x along an axis."""

    name = "Gather"
    versions = (1, 11, 13)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The sizes of the places in the place of the axis."""
        x, places = given
        assert x is not None
        assert places is not None
        axis = axis_of(node.attributes["axis"], len(x.shape))
        return ((*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Places below 0 count from the end."""
        x, places = given
        axis = axis_of(node.attributes["axis"], x.ndim)
        flat = _from_front(xp, xp.reshape(places, (-1,)), x.shape[axis])
        made = xp.take(x, flat, axis=axis)
        return xp.reshape(made, (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


class GatherElements(Layout):
    """Of every line along an axis the elements that are named."""

    name = "GatherElements"
    versions = (11, 13)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of the places."""
        x, places = given
        assert x is not None
        assert places is not None
        if len(x.shape) != len(places.shape):
            raise ShapeError(
                f"x {list(x.shape)}, indices {list(places.shape)}; accepted are equal ranks"
            )
        axis_of(node.attributes["axis"], len(x.shape))
        return (places.shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Of other axes as many lines as there are places."""
        x, places = given
        axis = axis_of(node.attributes["axis"], x.ndim)
        flat = _from_front(xp, places, x.shape[axis])
        part = tuple(
            slice(None) if at == axis else slice(size) for at, size in enumerate(places.shape)
        )
        return xp.take_along_axis(x[part], flat, axis=axis)


class GatherND(Layout):
    """Slices of x at places of several axes."""

    name = "GatherND"
    versions = (11, 12, 13)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """The places' sizes but for the last, then those of a slice."""
        x, places = given
        assert x is not None
        assert places is not None
        batch = node.attributes.get("batch_dims", 0)
        depth = places.shape[-1] if places.shape else 0
        if not 1 <= depth <= len(x.shape) - batch or x.shape[:batch] != places.shape[:batch]:
            raise ShapeError(
                f"x {list(x.shape)}, indices {list(places.shape)}, batch_dims={batch}; accepted"
                " are indices [..., 1 to the rank that is left]"
            )
        return ((*places.shape[:-1], *x.shape[batch + depth :]),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """As if the axes that places count were one."""
        x, places = given
        batch = node.attributes.get("batch_dims", 0)
        depth = places.shape[-1]
        many, sizes = math.prod(x.shape[:batch]), x.shape[batch : batch + depth]
        rows = xp.reshape(x, (many * math.prod(sizes), -1))
        flat = xp.reshape(_flat(xp, places, sizes), (many, -1))
        first = xp.arange(many, device=x.device) * math.prod(sizes)
        made = xp.take(rows, xp.reshape(flat + xp.reshape(first, (many, 1)), (-1,)), axis=0)
        return xp.reshape(made, (*places.shape[:-1], *x.shape[batch + depth :]))


class ScatterND(Layout):
    """x with slices at places of several axes replaced, or joined with others."""

    name = "ScatterND"
    versions = (11, 13, 16, 18)

    def why_not(self, node: Node) -> str | None:
        """What is joined how."""
        return _why_not_join(node)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        x, places, updates = given
        assert x is not None
        assert places is not None
        assert updates is not None
        depth = places.shape[-1] if places.shape else 0
        if not 1 <= depth <= len(x.shape):
            raise ShapeError(f"indices {list(places.shape)} of x {list(x.shape)}")
        if updates.shape != (*places.shape[:-1], *x.shape[depth:]):
            raise ShapeError(
                f"updates {list(updates.shape)}; accepted are"
                f" {[*places.shape[:-1], *x.shape[depth:]]}"
            )
        return (x.shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """As if the axes that places count were one."""
        x, places, updates = given
        depth = places.shape[-1]
        sizes = x.shape[:depth]
        rows = _copy(xp, x, (math.prod(sizes), -1))
        flat = xp.reshape(_flat(xp, places, sizes), (-1,))
        news = xp.reshape(updates, (flat.shape[0], -1))
        return xp.reshape(_written(xp, node, rows, flat, news), x.shape)


class ScatterElements(Layout):
    """x with elements of every line along an axis replaced, or joined with others."""

    versions: tuple[int, ...] = (11, 13, 16, 18)

    def __init__(self, name: str, versions: tuple[int, ...]) -> None:
        self.name, self.versions = name, versions

    def why_not(self, node: Node) -> str | None:
        """What is joined how."""
        return _why_not_join(node)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        x, places, updates = given
        assert x is not None
        assert places is not None
        assert updates is not None
        axis_of(node.attributes["axis"], len(x.shape))
        if len(places.shape) != len(x.shape) or updates.shape != places.shape:
            raise ShapeError(
                f"x {list(x.shape)}, indices {list(places.shape)}, updates"
                f" {list(updates.shape)}; accepted are equal ranks, indices as updates"
            )
        return (x.shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Every element's place in x as a whole."""
        x, places, updates = given
        axis = axis_of(node.attributes["axis"], x.ndim)
        flat = _from_front(xp, places, x.shape[axis]) * math.prod(x.shape[axis + 1 :])
        for at, size in enumerate(places.shape):
            if at != axis:
                along = xp.arange(size, device=x.device) * math.prod(x.shape[at + 1 :])
                flat = flat + xp.reshape(along, (-1, *[1] * (x.ndim - 1 - at)))
        rows = _copy(xp, x, (-1,))
        news = xp.reshape(updates, (-1,))
        return xp.reshape(_written(xp, node, rows, xp.reshape(flat, (-1,)), news), x.shape)


def _from_front(xp: Any, places: Any, size: int) -> Any:
    """Places counted from the front, as int64.

    Raises ArgumentError for those of no element; on a GPU, which would have to be waited for, that
    is left to the library.
    """
    places = xp.asarray(places, dtype=xp.int64)
    if (xp is np or str(places.device) == "cpu") and 0 not in places.shape:
        for place in (int(xp.min(places)), int(xp.max(places))):
            if not -size <= place < size:
                raise ArgumentError(f"index {place}: accepted are {-size} to {size - 1}")
    return xp.where(places < 0, places + size, places)


def _flat(xp: Any, places: Any, sizes: Shape) -> Any:
    """Places [..., axes] as if these axes were one."""
    total = None
    for at, size in enumerate(sizes):
        along = _from_front(xp, places[..., at], size) * math.prod(sizes[at + 1 :])
        total = along if total is None else total + along
    return total


def _copy(xp: Any, x: Any, sizes: Shape) -> Any:
    return xp.reshape(xp.asarray(x, copy=True), sizes)


def _written(xp: Any, node: Node, rows: Any, places: Any, news: Any) -> Any:
    """`rows` with `news` at places; where they are joined, one after another."""
    join = _JOINS.get(node.attributes.get("reduction", "none"))
    if join is None:
        rows[places] = news
        return rows
    for at, place in enumerate(places.tolist()):
        rows[place] = join(xp, rows[place], news[at])
    return rows


def _why_not_join(node: Node) -> str | None:
    kind = node.attributes.get("reduction", "none")
    known = ("none", *_JOINS)
    return None if kind in known else f"reduction={kind!r}: accepted are {', '.join(known)}"


OPERATORS = (
    Gather(),
    GatherElements(),
    GatherND(),
    ScatterElements("Scatter", (9,)),
    ScatterElements("ScatterElements", (11, 13, 16, 18)),
    ScatterND(),
)
