"""Normalisations: of a batch by stored or own statistics, of layers, instances, groups, vectors.

Each is (x - mean) / sqrt(variance + epsilon) * scale + bias; they differ in what the mean is of and
in how scale and bias lie. Halves are computed in float32, as `stash_type` 1 asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.errors import ShapeError
from tilewright.nn.graph import Node, Shape, Tensor
from tilewright.nn.kinds import dtype_name
from tilewright.nn.operators.base import FLOATS, Elementwise, Given, Operator, axis_of
from tilewright.nn.operators.element_types import NAMES, as_type


class _Normal(Operator):
    """One output of x's sizes; six operations an element."""

    dtypes = FLOATS

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        if len(given[0].shape) < 2:
            raise ShapeError(f"x {list(given[0].shape)}; accepted are [N, C, ...]")
        return (given[0].shape,)

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """Sums of values and squares, a subtraction, two multiplications, an addition."""
        return 6.0 * made[0].size


class BatchNormalization(_Normal):
    """By the mean and variance of each channel that training left."""

    name = "BatchNormalization"
    versions = (7, 9, 14, 15)
    note = "statistics per channel (`spatial` 1)"

    def why_not(self, node: Node) -> str | None:
        """Training before version 14 is marked by more outputs; statistics are per channel."""
        if not node.attributes.get("spatial", 1):
            return "spatial=0: accepted is 1, statistics per channel"
        if node.version < 14 and len(node.outputs) > 1:
            return "outputs of training; accepted is one output"
        return None

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Statistics keep their type."""
        return (given[0], given[3], given[4])[: len(node.outputs)]

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x, and of the statistics."""
        x, *others = given
        assert x is not None
        channels = x.shape[1] if len(x.shape) > 1 else 1
        for what, tensor in zip(("scale", "bias", "mean", "variance"), others, strict=True):
            if tensor is not None and tensor.shape != (channels,):
                raise ShapeError(f"{what} {list(tensor.shape)}: accepted is [{channels}]")
        return (x.shape, (channels,), (channels,))[: len(node.outputs)]

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x times one number and plus another for each channel."""
        x, scale, bias, mean, variance = given
        kept = node.attributes["momentum"]
        training = node.attributes.get("training_mode", 0)
        if training:
            axes = tuple(at for at in range(x.ndim) if at != 1)
            old, old_variance = mean, variance
            mean = xp.mean(x, axis=axes)
            variance = xp.mean((x - _channels(xp, mean, x)) ** 2, axis=axes)
        factor = scale / xp.sqrt(variance + node.attributes["epsilon"])
        shift = bias - mean * factor
        result = x * _channels(xp, factor, x) + _channels(xp, shift, x)
        if not training:
            return result
        running = old * kept + mean * (1 - kept)
        return (result, running, old_variance * kept + variance * (1 - kept))

    def flops(self, node: Node, given: Given, made: Sequence[Tensor]) -> float:
        """A multiplication and an addition."""
        return 2.0 * made[0].size


class InstanceNormalization(_Normal):
    """By the mean and variance of each channel of each picture."""

    name = "InstanceNormalization"
    versions = (6, 22)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Statistics over the spatial dimensions."""
        x, scale, bias = given
        normal = _normal(xp, x, tuple(range(2, x.ndim)), node.attributes["epsilon"])[0]
        return normal * _channels(xp, scale, x) + _channels(xp, bias, x)


class GroupNormalization(_Normal):
    """By the mean and variance of groups of channels of each picture."""

    name = "GroupNormalization"
    versions = (18, 21)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x. Raises ShapeError where the groups do not divide the channels."""
        found = super().shapes(node, given)
        groups = node.attributes["num_groups"]
        if groups < 1 or found[0][1] % groups:
            raise ShapeError(f"num_groups={groups}: accepted are those that divide {found[0][1]}")
        return found

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Scale and bias are per group in version 18, per channel from 21 on."""
        x, scale, bias = given
        groups, channels = node.attributes["num_groups"], x.shape[1]
        wide = _wide(xp, node, xp.reshape(x, (x.shape[0], groups, channels // groups, -1)))
        normal = _normal(xp, wide, (2, 3), node.attributes["epsilon"])[0]
        placed = (1, groups, 1, 1) if node.version < 21 else (1, groups, channels // groups, 1)
        result = normal * xp.reshape(scale, placed) + xp.reshape(bias, placed)
        return xp.reshape(result, x.shape)


class LayerNormalization(_Normal):
    """By the mean and variance of all axes from one on."""

    name = "LayerNormalization"
    versions = (17,)

    def types(self, node: Node, given: Sequence[str]) -> tuple[str, ...]:
        """Statistics are of `stash_type`."""
        kept = NAMES[node.attributes["stash_type"]]
        return (given[0], kept, kept)[: len(node.outputs)]

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x, and the same with ones from the axis on."""
        assert given[0] is not None
        shape = given[0].shape
        axis = axis_of(node.attributes["axis"], len(shape))
        kept = (*shape[:axis], *(1 for _ in shape[axis:]))
        return (shape, kept, kept)[: len(node.outputs)]

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """Scale and bias broadcast over the axes that are normalised."""
        x, scale, bias = (*given, None)[:3]
        axes = tuple(range(axis_of(node.attributes["axis"], x.ndim), x.ndim))
        normal, mean, inverse = _normal(xp, _wide(xp, node, x), axes, node.attributes["epsilon"])
        result = as_type(xp, normal, dtype_name(x)) * scale
        result = result if bias is None else result + bias
        return (result, mean, inverse)


class RMSNormalization(_Normal):
    """By the root of the mean of squares of all axes from one on."""

    name = "RMSNormalization"
    versions = (23,)

    def shapes(self, node: Node, given: Given) -> tuple[Shape, ...]:
        """Those of x."""
        assert given[0] is not None
        axis_of(node.attributes["axis"], len(given[0].shape))
        return (given[0].shape,)

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x / sqrt(mean(x * x) + epsilon) * scale."""
        x, scale = given
        wide = _wide(xp, node, x)
        axes = tuple(range(axis_of(node.attributes["axis"], x.ndim), x.ndim))
        squares = xp.mean(wide * wide, axis=axes, keepdims=True)
        normal = wide / xp.sqrt(squares + node.attributes["epsilon"])
        return as_type(xp, normal, dtype_name(x)) * scale


class LpNormalization(Elementwise):
    """By the sum of absolute values, or the root of the sum of squares, along one axis."""

    name = "LpNormalization"
    versions = (1, 22)
    dtypes = FLOATS

    def why_not(self, node: Node) -> str | None:
        """There are two norms."""
        p = node.attributes["p"]
        return None if p in (1, 2) else f"p={p}: accepted are 1 and 2"

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x / norm(x), and 0 where the norm is 0."""
        (x,) = given
        axis = axis_of(node.attributes["axis"], x.ndim)
        if node.attributes["p"] == 1:
            norm = xp.sum(xp.abs(x), axis=axis, keepdims=True)
        else:
            norm = xp.sqrt(xp.sum(x * x, axis=axis, keepdims=True))
        return x / xp.where(norm == 0, xp.ones_like(norm), norm)


class MeanVarianceNormalization(Elementwise):
    """By the mean and variance over the axes that are named."""

    name = "MeanVarianceNormalization"
    versions = (9, 13)
    dtypes = FLOATS

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """(x - mean) / (deviation + 1e-9)."""
        (x,) = given
        axes = tuple(axis_of(axis, x.ndim) for axis in node.attributes["axes"])
        lower = x - xp.mean(x, axis=axes, keepdims=True)
        return lower / (xp.sqrt(xp.mean(lower * lower, axis=axes, keepdims=True)) + 1e-9)


class LRN(_Normal):
    """By a power of the sum of squares over neighbouring channels."""

    name = "LRN"
    versions = (1, 13)

    def why_not(self, node: Node) -> str | None:
        """Of no channels there is no mean."""
        size = node.attributes["size"]
        return None if size > 0 else f"size={size}: accepted are 1 and more"

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """x / (bias + alpha / size * sum(x * x))^beta."""
        (x,) = given
        a = node.attributes
        channels, before = x.shape[1], (a["size"] - 1) // 2
        squares = xp.zeros_like(x)
        for shift in range(-before, a["size"] - before):
            low, high = max(0, -shift), min(channels, channels - shift)
            if low < high:
                part = x[:, low + shift : high + shift]
                squares[:, low:high] += part * part
        return x / (a["bias"] + a["alpha"] / a["size"] * squares) ** a["beta"]


def _normal(xp: Any, x: Any, axes: Shape, epsilon: float) -> tuple[Any, Any, Any]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and the inverse of the root."""
    mean = xp.mean(x, axis=axes, keepdims=True)
    lower = x - mean
    count = math.prod(x.shape[axis] for axis in axes)
    inverse = 1 / xp.sqrt(xp.sum(lower * lower, axis=axes, keepdims=True) / count + epsilon)
    return lower * inverse, mean, inverse


def _wide(xp: Any, node: Node, x: Any) -> Any:
    """x in the type that statistics are kept in, which is not narrower."""
    kept = NAMES[node.attributes.get("stash_type", 1)]
    return as_type(xp, x, kept) if dtype_name(x) in ("float16", "bfloat16") else x


def _channels(xp: Any, numbers: Any, x: Any) -> Any:
    """A number for each channel, such that it broadcasts against x."""
    return numbers if x.ndim < 2 else xp.reshape(numbers, (1, -1, *[1] * (x.ndim - 2)))


OPERATORS = (
    BatchNormalization(),
    GroupNormalization(),
    InstanceNormalization(),
    LRN(),
    LayerNormalization(),
    LpNormalization(),
    MeanVarianceNormalization(),
    RMSNormalization(),
)
