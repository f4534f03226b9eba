"""Pools: the largest, the mean or the norm of windows, and of whole pictures.

    window of 3 x 3 = along one dimension after another: 3 + 3 operations an element, not 9

Largest values, sums and sums of powers may be taken so; only the places of the largest need every
element of the window in turn. Nothing is padded: each element of a window is joined into those
results whose window has it in the picture.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.kinds import dtype_name
from tilewright.nn.operators.base import FLOATS, Given, Operator, computed_bytes
from tilewright.nn.operators.element_types import as_type, limits
from tilewright.nn.operators.windows import Windows, filled, padded, windows_of


class _Pool(Operator):
    """Windows on [N, C, ...]."""

    dtypes: tuple[str, ...] = FLOATS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, C, windows along each dimension], for every output."""
        x = given[0]
        assert x is not None
        if len(x.shape) < 3:
            raise ShapeError(f"x {list(x.shape)}; accepted are [N, C, ...]")
        windows = _windows(node, x.shape)
        return ((*x.shape[:2], *windows.counts(x.shape[2:])),) * len(node.outputs)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """One for each element of each window."""
        return float(made[0].size * math.prod(node.attributes["kernel_shape"]))


class MaxPool(_Pool):
    """The largest of each window, and where it is if that is asked for."""

    name = "MaxPool"
    versions = (1, 8, 10, 11, 12, 22)
    dtypes = (*FLOATS, "int8", "uint8")

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Places are int64."""
        return (given[0], "int64")[: len(node.outputs)]

    def scratch(self, node: Node, given: Given) -> int:
        """Of the padded picture, and of places before the last, where places are asked for."""
        x = given[0]
        assert x is not None
        if len(node.outputs) < 2:
            return 0
        windows = _windows(node, x.shape)
        results = math.prod(x.shape[:2]) * math.prod(windows.counts(x.shape[2:]))
        return computed_bytes(x) * math.prod(windows.padded(x.shape)) + 16 * results

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """What is padded is never the largest."""
        (x,) = given
        windows = _windows(node, tuple(x.shape))
        name = dtype_name(x)
        lowest = limits(name)[0] if "int" in name else -math.inf
        if len(node.outputs) < 2:
            return _along(xp, x, windows, lowest, lambda a, b: xp.maximum(a, b, out=a))
        source, counts = _room(xp, x, windows, lowest)
        return _placed(xp, x, source, windows, counts, node.attributes["storage_order"])


class AveragePool(_Pool):
    """The mean of each window: of what is in the picture, or of the pads too."""

    name = "AveragePool"
    versions = (7, 10, 11, 19, 22)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Sums divided by how many elements each is of."""
        (x,) = given
        windows = _windows(node, tuple(x.shape))
        sums = _along(xp, x, windows, 0, operator.iadd)
        divisors = divisors_of(node, windows, tuple(x.shape[2:]))
        if len(set(divisors.ravel().tolist())) == 1:
            return sums * (1 / float(divisors.flat[0]))
        held = np.asarray(divisors, np.float32)
        return sums / as_type(xp, xp.asarray(held, device=x.device), dtype_name(x))


class LpPool(_Pool):
    """The p-norm of each window."""

    name = "LpPool"
    versions = (2, 11, 18, 22)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The p-th root of the sum of p-th powers."""
        (x,) = given
        p = node.attributes["p"]
        windows = _windows(node, tuple(x.shape))
        return _along(xp, xp.abs(x) ** p, windows, 0, operator.iadd) ** (1 / p)


class Global(Operator):
    """One number for each channel of each picture: function(xp, x, axes, node)."""

    dtypes = FLOATS

    def __init__(
        self, name: str, versions: tuple[int, ...], function: Callable[[Any, Any, Shape, Node], Any]
    ) -> None:
        self.name, self.versions, self._function = name, versions, function

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """[N, C, 1, ...]."""
        assert given[0] is not None
        shape = given[0].shape
        return ((*shape[:2], *(1 for _ in shape[2:])),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The function over the spatial dimensions."""
        (x,) = given
        return self._function(xp, x, tuple(range(2, x.ndim)), node)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """One for each element that is read."""
        assert given[0] is not None
        return float(given[0].size)


def _windows(node: Node, shape: Shape) -> Windows:
    return windows_of(node.attributes, tuple(node.attributes["kernel_shape"]), shape[2:])


def _room(xp: Any, x: Any, windows: Windows, value: float) -> tuple[Any, Shape]:
    """x with its pads, and with more at the end where the last windows stick out."""
    sizes = tuple(x.shape[2:])
    counts, rank = windows.counts(sizes), len(sizes)
    ends = [
        max(
            windows.pads[at + rank],
            (counts[at] - 1) * windows.strides[at] + windows.reach(at) - size - windows.pads[at],
        )
        for at, size in enumerate(sizes)
    ]
    return padded(xp, x, (*windows.pads[:rank], *ends), value), counts


def _along(
    xp: Any, x: Any, windows: Windows, nothing: float, join: Callable[[Any, Any], Any]
) -> Any:
    """What `join`, which writes into its first argument, makes of each window.

    One dimension after another, the last first. nothing: what joining changes nothing.
    """
    counts = windows.counts(tuple(x.shape[2:]))
    for at in reversed(range(len(counts))):
        taps = [_tap(windows, at, tap, counts[at], x.shape[2 + at]) for tap in
                range(windows.kernel[at])]  # fmt: skip
        whole = next((tap for tap in taps if len(tap[0]) == counts[at]), None)
        shape = (*x.shape[: 2 + at], counts[at], *x.shape[3 + at :])
        front = (slice(None),) * (2 + at)
        if whole is None:
            made = filled(xp, x, shape, nothing)
        else:
            made = xp.asarray(x[(*front, whole[1])], copy=True)
        for tap in taps:
            if tap is not whole and len(tap[0]):
                join(made[(*front, slice(tap[0].start, tap[0].stop))], x[(*front, tap[1])])
        x = made
    return x


def _tap(windows: Windows, at: int, tap: int, count: int, size: int) -> tuple[range, slice]:
    """The windows that have an element in the picture, and where it is for each of them."""
    stride = windows.strides[at]
    offset = tap * windows.dilations[at] - windows.pads[at]
    first, last = max(0, -(offset // stride)), min(count - 1, (size - 1 - offset) // stride)
    inside = range(first, max(first, last + 1))
    begin = first * stride + offset
    return inside, slice(begin, begin + max(0, len(inside) - 1) * stride + 1, stride)


def _placed(
    xp: Any, x: Any, source: Any, windows: Windows, counts: Shape, by_columns: int
) -> tuple[Any, Any]:
    """The largest of each window and its place in all of x, the first of equals."""
    sizes, rank = tuple(x.shape[2:]), len(counts)
    steps = [math.prod(sizes[at + 1 :]) for at in range(rank)]
    if by_columns:
        steps = [math.prod(sizes[:at]) for at in range(rank)]
    best = where = None
    for place, taken in windows.taps(counts):
        tap = source[(slice(None), slice(None), *taken)]
        spots = np.zeros(counts, np.int64)
        for at in range(rank):
            start = place[at] * windows.dilations[at] - windows.pads[at]
            along = start + np.arange(counts[at]) * windows.strides[at]
            spots += (along * steps[at]).reshape(-1, *[1] * (rank - 1 - at))
        here = xp.asarray(spots, device=x.device)
        if best is None:
            best, where = tap, xp.broadcast_to(here, tap.shape)
            continue
        larger = (tap > best) | (xp.isnan(tap) & ~xp.isnan(best)) if _floats(xp, x) else tap > best
        best, where = xp.where(larger, tap, best), xp.where(larger, here, where)
    pictures = np.arange(math.prod(x.shape[:2]), dtype=np.int64) * math.prod(sizes)
    first = xp.asarray(pictures.reshape(*x.shape[:2], *[1] * rank), device=x.device)
    return best, where + first


def _floats(xp: Any, x: Any) -> bool:
    return bool(xp.isdtype(x.dtype, "real floating"))


def divisors_of(node: Node, windows: Windows, sizes: Shape) -> Any:
    """What a mean divides the sum of each window by: int64, an array of the windows."""
    with_pads = bool(node.attributes.get("count_include_pad", 0))
    return _elements(windows, sizes, windows.counts(sizes), with_pads)


def _elements(windows: Windows, sizes: Shape, counts: Shape, with_pads: bool) -> Any:
    """How many elements each window has in the picture, or in it and its pads."""
    rank = len(sizes)
    found = np.ones(counts, np.int64)
    for at, size in enumerate(sizes):
        begin, end = (windows.pads[at], windows.pads[at + rank]) if with_pads else (0, 0)
        starts = np.arange(counts[at]) * windows.strides[at] - windows.pads[at]
        taps = starts[:, None] + np.arange(windows.kernel[at]) * windows.dilations[at]
        inside = ((taps >= -begin) & (taps < size + end)).sum(axis=1)
        found = found * inside.reshape(-1, *[1] * (rank - 1 - at))
    return found


def _norm(xp: Any, x: Any, axes: Shape, node: Node) -> Any:
    p = node.attributes["p"]
    return xp.sum(xp.abs(x) ** p, axis=axes, keepdims=True) ** (1 / p)


OPERATORS = (
    AveragePool(),
    Global(
        "GlobalAveragePool", (1, 22), lambda xp, x, axes, _: xp.mean(x, axis=axes, keepdims=True)
    ),
    Global("GlobalLpPool", (2, 22), _norm),
    Global("GlobalMaxPool", (1, 22), lambda xp, x, axes, _: xp.max(x, axis=axes, keepdims=True)),
    LpPool(),
    MaxPool(),
)
