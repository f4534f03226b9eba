"""Reductions along axes, which are an attribute in old versions and an input in new ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.kinds import dtype_name
from tilewright.nn.operators.base import NUMBERS, Given, Operator, axis_of, content_of
from tilewright.nn.operators.element_types import limits


class Reduce(Operator):
    """function(xp, x, axes): an array with ones in the place of those axes.

    from_input  the version from which on axes are an input
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Any, Any, Shape], Any],
        versions: tuple[int, ...] = (1, 11, 13, 18),
        dtypes: tuple[str, ...] = NUMBERS,
        from_input: int = 18,
    ) -> None:
        self.name, self._function, self.versions = name, function, versions
        self.dtypes, self._from_input = dtypes, from_input

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Ones in the place of the axes, or those left out."""
        x = given[0]
        assert x is not None
        axes_given = given[1] if len(given) > 1 else None
        listed = None if axes_given is None else content_of(axes_given, "what axes are reduced")
        axes = self._axes(node, listed, len(x.shape))
        kept = bool(node.attributes["keepdims"])
        return (
            tuple(
                1 if at in axes else size
                for at, size in enumerate(x.shape)
                if kept or at not in axes
            ),
        )

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The function, and the axes taken out where they are not kept."""
        x = given[0]
        axes = self._axes(node, given[1] if len(given) > 1 else None, x.ndim)
        result = self._function(xp, x, axes)
        if node.attributes["keepdims"]:
            return result
        sizes = tuple(size for at, size in enumerate(x.shape) if at not in axes)
        return xp.reshape(result, sizes)

    def _axes(self, node: Node, listed: Any, rank: int) -> Shape:
        """The axes that are reduced: all where none is named, unless `noop_with_empty_axes`."""
        if node.version < self._from_input:
            named = list(node.attributes.get("axes") or ())
        else:
            named = [] if listed is None else [int(axis) for axis in listed.tolist()]
        if not named:
            return () if node.attributes.get("noop_with_empty_axes") else tuple(range(rank))
        return tuple(sorted({axis_of(axis, rank) for axis in named}))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """One for each element that is read."""
        assert given[0] is not None
        return float(given[0].size)


def _sum(xp: Any, x: Any, axes: Shape) -> Any:
    """In x's own type, which NumPy widens for whole numbers."""
    return xp.sum(x, axis=axes, keepdims=True, dtype=x.dtype) if axes else x


def _product(xp: Any, x: Any, axes: Shape) -> Any:
    for axis in axes:
        x = xp.prod(x, axis=axis, keepdims=True, dtype=x.dtype)
    return x


def _mean(xp: Any, x: Any, axes: Shape) -> Any:
    """Of whole numbers rounded towards zero."""
    if xp.isdtype(x.dtype, "real floating"):
        return xp.mean(x, axis=axes, keepdims=True) if axes else x
    count = math.prod(x.shape[axis] for axis in axes)
    wide = xp.sum(xp.asarray(x, dtype=xp.float64), axis=axes, keepdims=True) if axes else x
    return xp.asarray(xp.trunc(wide / count), dtype=x.dtype)


def _extreme(xp: Any, x: Any, axes: Shape, function: Callable[..., Any], sign: int) -> Any:
    """The largest or smallest; of nothing what every number beats."""
    if not axes:
        return x
    if x.dtype == xp.bool:
        return (xp.any if sign > 0 else xp.all)(x, axis=axes, keepdims=True)
    if math.prod(x.shape[axis] for axis in axes) == 0:
        sizes = tuple(1 if at in axes else size for at, size in enumerate(x.shape))
        name = dtype_name(x)
        worst = limits(name)[sign < 0] if "int" in name else -sign * math.inf
        return xp.full(sizes, worst, dtype=x.dtype, device=x.device)
    return function(x, axis=axes, keepdims=True)


def _largest(xp: Any, x: Any, axes: Shape) -> Any:
    return _extreme(xp, x, axes, xp.max, 1)


def _smallest(xp: Any, x: Any, axes: Shape) -> Any:
    return _extreme(xp, x, axes, xp.min, -1)


def _log_sum_exp(xp: Any, x: Any, axes: Shape) -> Any:
    """The largest taken off before, unless it is infinite."""
    if not xp.isdtype(x.dtype, "real floating"):
        x = xp.asarray(x, dtype=xp.float64)
    top = _largest(xp, x, axes)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))
    return xp.log(_sum(xp, xp.exp(x - top), axes)) + top


OPERATORS = (
    Reduce("ReduceL1", lambda xp, x, axes: _sum(xp, xp.abs(x), axes)),
    Reduce("ReduceL2", lambda xp, x, axes: xp.sqrt(_sum(xp, x * x, axes))),
    Reduce("ReduceLogSum", lambda xp, x, axes: xp.log(_sum(xp, x, axes)), (1, 11, 13, 18, 28)),
    Reduce("ReduceLogSumExp", _log_sum_exp, (1, 11, 13, 18, 28)),
    Reduce("ReduceMax", _largest, (1, 11, 12, 13, 18, 20), (*NUMBERS, "bool")),
    Reduce("ReduceMean", _mean),
    Reduce("ReduceMin", _smallest, (1, 11, 12, 13, 18, 20), (*NUMBERS, "bool")),
    Reduce("ReduceProd", _product),
    Reduce("ReduceSum", _sum, (1, 11, 13), from_input=13),
    Reduce("ReduceSumSquare", lambda xp, x, axes: _sum(xp, x * x, axes)),
)
