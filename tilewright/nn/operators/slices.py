"""Slice and Pad: a part of an array, or more than the array."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import Given, axis_of, content_of
from tilewright.nn.operators.layout import Layout


class Slice(Layout):
    """From a start to an end along some axes, by steps that may be negative."""

    name = "Slice"
    versions = (1, 10, 11, 13)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """How many steps there are along each axis."""
        assert given[0] is not None
        lists = [None if t is None else content_of(t, "what is taken").ravel() for t in given[1:]]
        shape = given[0].shape
        taken = _ranges(node, lists, shape)
        return (tuple(len(taken[at]) if at in taken else s for at, s in enumerate(shape)),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """A view; where a step is negative, turned around first."""
        x = given[0]
        place = [slice(None)] * x.ndim
        for axis, along in _ranges(node, given[1:], tuple(x.shape)).items():
            step, size = along.step, x.shape[axis]
            if step < 0:
                x = xp.flip(x, axis=axis)
            start = along.start if step > 0 else size - 1 - along.start
            end = start + (len(along) - 1) * abs(step) + 1 if len(along) else start
            place[axis] = slice(start, end, abs(step))
        return x[tuple(place)]


class Pad(Layout):
    """Elements around an array (or less of it): a number, its edges, its mirror, or itself."""

    name = "Pad"
    versions = (2, 11, 13, 18, 19, 21, 23, 24, 25)

    def why_not(self, node: Node) -> str | None:
        """There are four modes."""
        known = ("constant", "edge", "reflect", "wrap")
        mode = node.attributes["mode"]
        return None if mode in known else f"mode={mode!r}: accepted are {', '.join(known)}"

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Sizes with what is added before and behind."""
        assert given[0] is not None
        lists = [
            None if t is None or at == 1 else content_of(t, "how much is added").ravel()
            for at, t in enumerate(given[1:])
        ]
        shape = given[0].shape
        added = _added(node, lists, len(shape))
        sizes = tuple(s + sum(added.get(at, (0, 0))) for at, s in enumerate(shape))
        if min(sizes, default=0) < 0:
            raise ShapeError(f"{list(shape)} with {added} more; accepted are sizes from 0")
        return (sizes,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """One axis after another; less than nothing cuts off first."""
        x = given[0]
        mode = node.attributes["mode"]
        value = given[2] if len(given) > 2 else None
        number = node.attributes.get("value", 0.0) if value is None else value.reshape(-1)[0]
        for axis, (before, behind) in _added(node, given[1:], x.ndim).items():
            size = x.shape[axis]
            kept = slice(max(0, -before), size - max(0, -behind))
            x = x[(*[slice(None)] * axis, kept)]
            before, behind = max(0, before), max(0, behind)
            if not before and not behind:
                continue
            if mode == "constant":
                x = _framed(xp, x, axis, before, behind, number)
            else:
                places = _places(mode, x.shape[axis], before, behind)
                x = xp.take(x, xp.asarray(places, device=x.device), axis=axis)
        return x


def _ranges(node: Node, given: Any, shape: Shape) -> dict[int, range]:
    """What is taken of each axis that is named."""
    if node.version < 10:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.attributes.get("axes"), None
    else:
        lists = [None if a is None else [int(n) for n in a.tolist()] for a in given]
        starts, ends, axes, steps = (*lists, None, None)[:4]
    axes = list(range(len(starts))) if axes is None else list(axes)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ShapeError(
            f"starts {list(starts)}, ends {list(ends)}, axes {axes}, steps {steps}; accepted are"
            " as many of each, and no step of 0"
        )
    found = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        at = axis_of(axis, len(shape), "axes")
        found[at] = range(*slice(start, end, step).indices(shape[at]))
    return found


def _added(node: Node, given: Any, rank: int) -> dict[int, tuple[int, int]]:
    """How much is added before and behind, by axis."""
    if node.version < 11:
        pads, axes = list(node.attributes["pads"]), None
    else:
        pads, axes = given[0].tolist(), given[2] if len(given) > 2 else None
    named = range(rank) if axes is None else [axis_of(int(a), rank, "axes") for a in axes.tolist()]
    if len(pads) != 2 * len(named):
        raise ShapeError(f"pads {pads} for {len(named)} axes; accepted are two for each")
    return {axis: (int(pads[at]), int(pads[at + len(named)])) for at, axis in enumerate(named)}


def _framed(xp: Any, x: Any, axis: int, before: int, behind: int, value: Any) -> Any:
    """x with a number before and behind it."""
    size = x.shape[axis]
    sizes = (*x.shape[:axis], before + size + behind, *x.shape[axis + 1 :])
    made = xp.zeros(sizes, dtype=x.dtype, device=x.device)
    if value != 0:
        made[...] = value
    made[(*[slice(None)] * axis, slice(before, before + size))] = x
    return made


def _places(mode: str, size: int, before: int, behind: int) -> Any:
    """What element of an axis each place of the result shows."""
    places = np.arange(-before, size + behind)
    if size == 0:
        raise ShapeError(f"mode={mode!r} of an axis without elements; accepted is 'constant'")
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    turn = max(1, 2 * (size - 1))
    places = places % turn
    return np.minimum(places, turn - places) if size > 1 else places * 0


OPERATORS = (Pad(), Slice())
