"""Softmax, LogSoftmax, Hardmax: along one axis; before version 13 along all from an axis on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.nn.graph import Node, Shape
from tilewright.nn.operators.base import FLOATS, Elementwise, Given, axis_of


class Along(Elementwise):
    """function(xp, x, axis): an array of x's sizes."""

    dtypes = FLOATS
    versions: tuple[int, ...] = (13,)

    def __init__(self, name: str, function: Callable[[Any, Any, int], Any]) -> None:
        self.name, self._function = name, function

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x. Raises ShapeError where it has no such axis."""
        assert given[0] is not None
        axis_of(node.attributes["axis"], len(given[0].shape))
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The function along the axis."""
        return self._of(xp, given[0], node.attributes["axis"])

    def _of(self, xp: Any, x: Any, axis: int) -> Any:
        """Of nothing nothing: the largest of an empty axis is no number."""
        return xp.zeros_like(x) if 0 in x.shape else self._function(xp, x, axis)


class Flat(Along):
    """The axis and all after it are taken as one."""

    versions = (1, 11)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The function along the rows of a matrix."""
        (x,) = given
        axis = axis_of(node.attributes["axis"], x.ndim)
        rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
        return xp.reshape(self._of(xp, xp.reshape(x, (rows, columns)), 1), x.shape)


def _softmax(xp: Any, x: Any, axis: int) -> Any:
    """exp(x) / sum(exp(x)), the largest taken off before."""
    raised = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return raised / xp.sum(raised, axis=axis, keepdims=True)


def _log_softmax(xp: Any, x: Any, axis: int) -> Any:
    """x - log(sum(exp(x))), the largest taken off before."""
    lower = x - xp.max(x, axis=axis, keepdims=True)
    return lower - xp.log(xp.sum(xp.exp(lower), axis=axis, keepdims=True))


def _hardmax(xp: Any, x: Any, axis: int) -> Any:
    """1 at the first of the largest, else 0."""
    where = xp.argmax(x, axis=axis, keepdims=True)
    places = xp.arange(x.shape[axis], device=x.device)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return xp.where(xp.reshape(places, tuple(shape)) == where, xp.ones_like(x), xp.zeros_like(x))


OPERATORS = tuple(
    kind(name, function)
    for kind in (Along, Flat)
    for name, function in (
        ("Hardmax", _hardmax),
        ("LogSoftmax", _log_softmax),
        ("Softmax", _softmax),
    )
)
