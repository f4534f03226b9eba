"""Resize, and Upsample before it: pictures of other sizes, one axis after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.kinds import dtype_name
from tilewright.nn.operators.base import NUMBERS, Given, Operator, axis_of, content_of
from tilewright.nn.operators.element_types import as_type
from tilewright.nn.operators.resize_axis import MODES, Along, Lane, Taps, lanes_of, taps_of
from tilewright.nn.operators.windows import filled

_CROP = "tf_crop_and_resize"
_ACCEPTED = {
    "mode": ("nearest", "linear", "cubic", "bilinear"),
    "coordinate_transformation_mode": MODES,
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}


class Resize(Operator):
    """Nearest elements, or sums of neighbours by linear or cubic weights."""

    versions: tuple[int, ...] = (10, 11, 13, 18, 19)
    dtypes = NUMBERS

    def __init__(self, name: str, versions: tuple[int, ...]) -> None:
        self.name, self.versions = name, versions

    def why_not(self, node: Node) -> str | None:
        """Modes that are not ONNX's."""
        for name, accepted in _ACCEPTED.items():
            value = node.attributes.get(name, accepted[0])
            if value not in accepted:
                return f"{name}={value!r}: accepted are {', '.join(accepted)}"
        return None

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Sizes times scales, or those that are asked for."""
        assert given[0] is not None
        lists = [
            None if tensor is None or tensor.shape == (0,) else content_of(tensor, "the new size")
            for tensor in given[1:]
        ]
        axes = _axes(self.name, node, lists, given[0].shape)
        return (tuple(axes[at].new if at in axes else s for at, s in enumerate(given[0].shape)),)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """First along the axes that become smallest."""
        x = given[0]
        lists = [None if a is None or tuple(a.shape) == (0,) else a for a in given[1:]]
        axes = _axes(self.name, node, lists, tuple(x.shape))
        cropped = node.attributes.get("coordinate_transformation_mode") == _CROP
        whole = not xp.isdtype(x.dtype, "real floating")
        if whole and node.attributes["mode"] != "nearest":
            x = as_type(xp, x, "float32")
        outside = []
        if xp is np:  # slices of rows in one piece are faster than of channels last
            x = np.ascontiguousarray(x)
        for at in sorted(axes, key=lambda at: axes[at].new / max(1, axes[at].old)):
            taps = taps_of(axes[at], node.attributes, node.version)
            x = resized(xp, x, at, taps)
            if cropped and taps.outside.any():
                outside.append((at, taps.outside))
        for at, which in outside:
            sizes = [1] * x.ndim
            sizes[at] = -1
            mask = xp.reshape(xp.asarray(which, device=x.device), tuple(sizes))
            value = xp.full((), node.attributes["extrapolation_value"], dtype=x.dtype)
            x = xp.where(mask, xp.asarray(value, device=x.device), x)
        return x

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Two for each neighbour along each axis, as if all were there at the new size."""
        taps = {"nearest": 0, "cubic": 4}.get(node.attributes["mode"], 2)
        return 2.0 * taps * 2 * made[0].size


def steps_of(
    node: Node, given: Sequence[Any], shape: Shape
) -> list[tuple[int, NDArray, NDArray]] | None:
    """Axes in their order, places and weights [new, taps] of each; None where some lie outside.

    given: the other inputs' contents. A place of -1 is one that the definition leaves out.
    """
    lists = [None if a is None or a.shape == (0,) else a for a in given]
    axes = _axes(node.operator, node, lists, shape)
    cropped = node.attributes.get("coordinate_transformation_mode") == _CROP
    found = []
    for at in sorted(axes, key=lambda at: axes[at].new / max(1, axes[at].old)):
        taps = taps_of(axes[at], node.attributes, node.version)
        if cropped and taps.outside.any():
            return None
        places, weights = taps.places, taps.weights
        if places.shape[1] == 1 and np.array_equal(places[:, 0], np.arange(shape[at])):
            continue
        unused = weights == 0 if lanes_of(taps, shape[at]) else (weights == 0).all(axis=0)[None]
        found.append((at, np.where(unused, -1, places), weights.astype(np.float32)))
    return found


def resized(xp: Any, x: Any, axis: int, taps: Taps) -> Any:
    """x along one axis: sums of the old elements by their shares."""
    whole = np.arange(x.shape[axis])
    if taps.places.shape[1] == 1:
        if len(taps.places) == len(whole) and (taps.places[:, 0] == whole).all():
            return x
        times = len(taps.places) // max(1, len(whole))
        if np.array_equal(taps.places[:, 0], np.repeat(whole, times)):
            return xp.repeat(x, times, axis=axis)
        return xp.take(x, xp.asarray(taps.places[:, 0], device=x.device), axis=axis)
    lanes = lanes_of(taps, x.shape[axis])
    if lanes:
        return _by_lanes(xp, x, axis, lanes, len(taps.places))
    shape = (-1, *[1] * (x.ndim - 1 - axis))
    total = None
    for places, weights in zip(taps.places.T, taps.weights.T, strict=True):
        if not weights.any():
            continue
        part = xp.take(x, xp.asarray(np.ascontiguousarray(places), device=x.device), axis=axis)
        shares = xp.asarray(weights.astype(np.float32), device=x.device)
        name = dtype_name(x)
        if name == "float64":
            shares = xp.asarray(np.ascontiguousarray(weights), device=x.device)
        part = part * xp.reshape(as_type(xp, shares, name), shape)
        total = part if total is None else total + part
    return total


def _by_lanes(xp: Any, x: Any, axis: int, lanes: Sequence[Lane], new: int) -> Any:
    """The same where sizes are multiples of each other: by slices, without gathering."""
    made = filled(xp, x, (*x.shape[:axis], new, *x.shape[axis + 1 :]), 0)
    front, old = (slice(None),) * axis, x.shape[axis]
    for at, lane in enumerate(lanes):
        part = made[(*front, slice(at, None, len(lanes)))]
        for first, weight in lane.taps:
            low = min(lane.count, max(0, -(first // lane.step)))
            high = max(low, min(lane.count, (old - 1 - first) // lane.step + 1))
            begin = first + lane.step * low
            taken = slice(begin, begin + max(0, high - low - 1) * lane.step + 1, lane.step)
            if high > low:
                part[(*front, slice(low, high))] += x[(*front, taken)] * weight
            if low:
                part[(*front, slice(0, low))] += x[(*front, slice(0, 1))] * weight
            if high < lane.count:
                part[(*front, slice(high, None))] += x[(*front, slice(old - 1, old))] * weight
    return made


def _axes(name: str, node: Node, given: Sequence[Any], shape: Shape) -> dict[int, Along]:
    """The axes that change, with sizes and scales. Raises ShapeError."""
    attributes = node.attributes
    roi = scales = sizes = None
    if node.version < 11:
        scales = attributes.get("scales") if node.version == 7 else _numbers(given[0])
    else:
        roi, scales, sizes = (_numbers(array) for array in (*given, None, None)[:3])
    named = attributes.get("axes")
    named = range(len(shape)) if named is None else [axis_of(a, len(shape), "axes") for a in named]
    asked = scales if sizes is None else sizes
    fits = scales is None or all(0 < scale < math.inf for scale in scales)
    if asked is None or len(asked) != len(named) or not fits:
        raise ShapeError(
            f"scales {scales}, sizes {sizes} for {len(named)} axes; accepted is one of them, a"
            " finite number above 0 for each axis"
        )
    crops = [(0.0, 1.0)] * len(named)
    if attributes.get("coordinate_transformation_mode") == _CROP and roi is not None:
        crops = [(roi[at], roi[at + len(named)]) for at in range(len(named))]
    if sizes is not None:
        olds = [shape[at] for at in named]
        for at, old, size in zip(named, olds, sizes, strict=True):
            if size > 0 and not old:
                raise ShapeError(f"size {int(size)} of axis {at} of 0 elements; accepted is 0")
        news, scales = _kept_aspect(attributes, sizes, olds)
    else:
        assert scales is not None
        spans = [end - begin for begin, end in crops]
        news = [
            math.floor(shape[at] * span * scale)
            for at, span, scale in zip(named, spans, scales, strict=True)
        ]
    found = {
        at: Along(shape[at], new, scale, crop)
        for at, new, scale, crop in zip(named, news, scales, crops, strict=True)
    }
    whole = ((0.0, 1.0), 1.0)
    return {at: a for at, a in found.items() if a.old != a.new or (a.crop, a.scale) != whole}


def _kept_aspect(
    attributes: Any, sizes: Sequence[float], olds: Sequence[int]
) -> tuple[list[int], list[float]]:
    """New sizes and scales where sizes are asked for: stretched, or all by one scale."""
    scales = [size / old if old else 1.0 for size, old in zip(sizes, olds, strict=True)]
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [int(size) for size in sizes], scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [math.floor(scale * old + 0.5) for old in olds], [scale] * len(olds)


def _numbers(array: Any) -> list[float] | None:
    """An input as numbers; a scale of 1.6 is meant as that, not as the float32 next to it."""
    if array is None:
        return None
    whole = "int" in str(array.dtype)
    return [float(value if whole else str(np.float32(value))) for value in array.tolist()]


OPERATORS = (Resize("Resize", (10, 11, 13, 18, 19)), Resize("Upsample", (7, 9)))
