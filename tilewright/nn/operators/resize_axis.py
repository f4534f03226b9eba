"""Resizing along one axis: which elements each new one is made of, and by how much of each.

    new element i -> position x in the old axis -> elements near x (places), their shares (weights)

Positions follow `coordinate_transformation_mode`. A picture is resized along one axis after the
other, so nothing here knows of the others. All is computed in float64 before any element is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray

MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


@dataclass(frozen=True, slots=True)
class Along:
    """One axis: its old and new sizes, and the scale, which need not be their quotient.

    crop  the part that is shown in mode tf_crop_and_resize, as shares of the old size
    """

    old: int
    new: int
    scale: float
    crop: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """Of each new element the old ones and their shares: [new, taps]; `outside` the old axis."""

    places: NDArray
    weights: NDArray
    outside: NDArray


@dataclass(frozen=True, slots=True)
class Lane:
    """Every so many-th new element, all made alike: of old[first + step * i] times weight.

    What lies outside is the outermost element.
    """

    count: int
    step: int
    taps: tuple[tuple[int, float], ...]


def lanes_of(taps: Taps, old: int) -> tuple[Lane, ...]:
    """The lanes of an axis whose sizes are multiples of each other; none where they are not."""
    new = len(taps.places)
    if not old or not new or (new % old and old % new):
        return ()
    many, step = max(1, new // old), max(1, old // new)
    found = []
    for at in range(many):
        places, weights = taps.places[at::many], taps.weights[at::many]
        count = len(places)
        middle = count // 2
        firsts = places[middle] - step * middle
        wanted = np.clip(firsts + step * np.arange(count)[:, None], 0, old - 1)
        if not np.array_equal(wanted, places) or np.ptp(weights, axis=0).max() > 1e-12:
            return ()
        pairs = zip(firsts.tolist(), weights[middle].tolist(), strict=True)
        found.append(Lane(count, step, tuple((f, w) for f, w in pairs if w)))
    return tuple(found)


def taps_of(axis: Along, attributes: Mapping[str, Any], version: int) -> Taps:
    """What a node with these attributes makes new elements of."""
    if not axis.new:  # of a scale of 0, or of nothing
        return Taps(np.zeros((0, 1), np.int64), np.ones((0, 1)), np.zeros(0, bool))
    mode = attributes.get("coordinate_transformation_mode", "asymmetric")
    x = _positions(axis, mode)
    outside = (x < 0) | (x > axis.old - 1)
    kind = attributes["mode"]
    if kind == "nearest":
        rounding = attributes.get("nearest_mode", "simple" if version < 11 else "")
        places = np.clip(_nearest(x, rounding, axis.scale), 0, axis.old - 1)
        return Taps(places[:, None], np.ones((axis.new, 1)), outside)
    stretch = min(axis.scale, 1.0) if attributes.get("antialias", 0) else 1.0
    radius = (2.0 if kind == "cubic" else 1.0) / stretch
    first = np.floor(x - radius).astype(np.int64) + 1
    count = math.ceil(2 * radius)
    places = first[:, None] + np.arange(count)
    distances = np.abs(places - x[:, None]) * stretch
    if kind == "cubic":
        weights = _cubic(distances, attributes["cubic_coeff_a"])
    else:
        weights = np.maximum(0, 1 - distances)
    if attributes.get("exclude_outside", 0):
        weights = np.where((places < 0) | (places >= axis.old), 0, weights)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return Taps(np.clip(places, 0, axis.old - 1), weights, outside)


def _positions(axis: Along, mode: str) -> NDArray:
    """Where new elements lie in the old axis."""
    at: NDArray = np.arange(axis.new, dtype=np.float64)
    if mode == "asymmetric":
        return at / axis.scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / axis.scale
    if mode == "align_corners":
        # As the standard's tests have it, the new size is not rounded to a whole one here.
        return at * (axis.old - 1) / (axis.scale * axis.old - 1) if axis.new > 1 else at * 0
    if mode == "tf_crop_and_resize":
        begin, end = axis.crop
        if axis.new == 1:
            return at + (begin + end) * (axis.old - 1) / 2
        return begin * (axis.old - 1) + at * (end - begin) * (axis.old - 1) / (axis.new - 1)
    middle: NDArray = (at + 0.5) / axis.scale - 0.5
    if mode == "pytorch_half_pixel" and axis.new == 1:
        return at * 0
    if mode == "half_pixel_symmetric":
        return middle + axis.old / 2 * (1 - axis.new / (axis.scale * axis.old))
    return middle


def _nearest(x: NDArray, rounding: str, scale: float) -> NDArray:
    """The element nearest to each position."""
    if rounding == "simple":  # version 10, as onnxruntime has it
        rounding = "ceil" if scale < 1 else "floor"
    if rounding == "floor":
        found = np.floor(x)
    elif rounding == "ceil":
        found = np.ceil(x)
    elif rounding == "round_prefer_ceil":
        found = np.floor(x + 0.5)
    else:
        found = np.ceil(x - 0.5)
    return found.astype(np.int64)


def _cubic(distances: NDArray, a: float) -> NDArray:
    """Keys' kernel: two cubics that meet at a distance of 1 and end at 2."""
    d = distances
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
