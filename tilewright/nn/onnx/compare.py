"""A layer of an import beside the float graph: how many values differ, and how many by too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn import reference
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.conv import Conv, RealConv
from tilewright.nn.value import Value

# Rounding of float32, in units of the largest term of a layer; more is a difference.
ROUNDING = 2e-6
TOLERANCE = 16 * ROUNDING  # more is another network, and no import
# Of a layer's largest value: what lies nearer to a sign's cut may round to either side.
NEAR = 1e-4
_HALF, _LEAST_HALF = 2.0**-11, 2.0**-25  # relative rounding of half precision, and below its range
_BLOCK = 1 << 18  # elements that are compared at once


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """One layer's values beside the float graph's.

    name, kind  of the layer; elements: how many were compared
    differing   bits that differ, or reals that differ by more than rounding
    zeros       of the differing bits, where the float graph has 0, which no bit can be
    wrong       that differ by more than the rounding of weights and of sums explains
    largest     largest absolute difference, and `scale` the largest value
    """

    name: str
    kind: str
    elements: int
    differing: int
    zeros: int
    wrong: int
    largest: float
    scale: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What a real may differ by: rounding, and beside it what rounded weights explain."""

    rounding: float
    weights: NDArray


def limits_of(layer: Layer, inputs: Sequence[NDArray], made: NDArray) -> Limits:
    """By the largest term that a layer adds, and by what half precision may have rounded."""
    largest, weights = largest_of(made), np.zeros(())
    shift = getattr(layer, "shift", None)
    if shift is not None:
        largest += largest_of(shift)
    if layer.adds:
        largest = max(largest, *(largest_of(array) for array in inputs))
    rounding = ROUNDING * largest if np.isfinite(largest) else 0.0
    if isinstance(layer, Conv):
        rounding *= max(1.0, np.sqrt(layer.terms / 1024))
    if isinstance(layer, RealConv):
        weights = _rounded_weights(layer, inputs[0])
    return Limits(rounding, weights)


def _rounded_weights(layer: RealConv, x: NDArray) -> NDArray:
    """What sums may differ by where each weight was rounded to half precision."""
    errors = np.abs(layer.weights.astype(np.float32)) * _HALF + _LEAST_HALF
    sums = reference.convolve(
        np.abs(x.astype(np.float32)), errors.astype(np.float32), layer.window, layer.groups, 0
    )
    return sums if layer.scale is None else sums * np.abs(layer.scale)


def compare(
    layer: Layer,
    value: Value,
    made: NDArray,
    truth: NDArray,
    limits: Limits,
    near: NDArray | None = None,
) -> LayerCheck:
    """Block by block, so that comparing takes no memory of its own."""
    bits = value.kind == "bits"
    allowed = np.broadcast_to(limits.weights, made.shape)
    flat = [array.reshape(-1) for array in (made, truth, allowed)]
    spared = None if near is None else near.reshape(-1)
    total = LayerCheck(layer.name, type(layer).__name__, made.size, 0, 0, 0, 0.0, 0.0)
    for start in range(0, made.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        ours, theirs = flat[0][part].astype(np.float64), flat[1][part].astype(np.float64)
        with np.errstate(invalid="ignore"):
            difference = np.abs(ours - theirs)
        differs = ~(difference <= (0.0 if bits else limits.rounding))  # NaN too
        zero = differs & (theirs == 0) if bits else np.zeros_like(differs)
        if bits:
            wrong = differs & ~zero & (True if spared is None else ~spared[part])
        else:
            bound = flat[2][part] * 1.01 + limits.rounding * TOLERANCE / ROUNDING
            wrong = ~(difference <= bound)
        block = LayerCheck(
            layer.name, total.kind, 0, int(differs.sum()), int(zero.sum()), int(wrong.sum()),
            float(difference.max()), largest_of(theirs),
        )  # fmt: skip
        total = merged([total, block])
    return total


def merged(checks: Sequence[LayerCheck]) -> LayerCheck:
    """The same layer's checks of several batches or blocks as one."""
    first = checks[0]
    counts = {
        field: sum(getattr(check, field) for check in checks)
        for field in ("elements", "differing", "zeros", "wrong")
    }
    largest, scale = (
        float(np.max([getattr(check, field) for check in checks])) for field in ("largest", "scale")
    )
    return LayerCheck(first.name, first.kind, **counts, largest=largest, scale=scale)


def largest_of(array: NDArray) -> float:
    """The largest magnitude; 0 of nothing."""
    return float(max(abs(float(array.max())), abs(float(array.min())))) if array.size else 0.0
