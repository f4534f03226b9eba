"""Chains of convolutions drawn from a seed, and what they are in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.engines.conv import Activation, Conv, ConvWork, Whole
from tilewright.nn.operators.convs import layer_of

RELU = Activation("relu")


def layer(rng: np.random.Generator, inputs: int, outputs: int, **facts: Any) -> Conv:
    """A convolution of 3x3, padded by 1 unless told otherwise, whose sums stay near 1."""
    height, width = facts.pop("kernel", (3, 3))
    groups = facts.get("groups", 1)
    scale = (2 / (height * width * inputs / groups)) ** 0.5
    shape = (outputs, inputs // groups, height, width)
    facts.setdefault("pads", (1, 1, 1, 1))
    return Conv(
        (rng.standard_normal(shape) * scale).astype(np.float32),
        (rng.standard_normal(outputs) * 0.1).astype(np.float32),
        **facts,
    )


def chain(
    channels: Sequence[int],
    size: tuple[int, int, int],
    dtype: str = "float16",
    *,
    seed: int = 0,
    shuffle: int = 1,
    activation: Activation = RELU,
    adds: bool = False,
) -> ConvWork:
    """3x3 convolutions from each number of channels to the next, activated but for the last.

    `size` is images, height, width.
    """
    rng = np.random.default_rng(seed)
    layers = [layer(rng, a, b, activation=activation) for a, b in pairwise(channels)]
    layers[-1] = replace(layers[-1], activation=Activation(), shuffle=shuffle, adds=adds)
    return ConvWork(tuple(layers), *size, dtype)


def prelu(channels: Sequence[int], size: tuple[int, int, int]) -> ConvWork:
    """A chain whose every layer, the last too, has slopes of its own for its channels."""
    work = chain(channels, size)
    rng = np.random.default_rng(5)
    drawn = (rng.uniform(-1, 1, one.outputs).astype(np.float32) for one in work.layers)
    how = [Activation("prelu", slopes=slopes) for slopes in drawn]
    layers = (replace(a, activation=b) for a, b in zip(work.layers, how, strict=True))
    return replace(work, layers=tuple(layers))


def whole_layer(
    rng: np.random.Generator, inputs: int, outputs: int, facts: Whole, **more: Any
) -> Conv:
    """A layer of whole numbers, whose sums are worth somewhat different things."""
    one = layer(rng, inputs, outputs, **more)
    weights = rng.integers(-127, 128, one.weights.shape).astype(np.int8)
    bias = rng.integers(-2000, 2000, outputs).astype(np.int32)
    scale = (facts.scale * rng.uniform(0.5, 2, outputs)).astype(np.float32)
    return replace(one, weights=weights, bias=bias, whole=replace(facts, scale=scale))


def drawn_whole(work: ConvWork, seed: int = 1) -> Any:
    """x of a work of whole numbers: every number, or float32 that some of them stand for."""
    rng = np.random.default_rng(seed)
    shape = (work.images, *work.sizes[0])
    if work.source_dtype == "float32":
        return rng.uniform(-2, 2, shape).astype(np.float32)
    ends = np.iinfo(work.dtype)
    return rng.integers(ends.min, ends.max + 1, shape).astype(work.dtype)


def whole_reference(work: ConvWork, x: Any) -> Any:
    """The chain by its definition in NumPy."""
    for one in work.layers:
        x = layer_of(np, one, x, None)
    return x


def rounded(work: ConvWork) -> ConvWork:
    """The same with weights and biases that its element type holds."""
    import torch

    kind = getattr(torch, work.dtype)

    def held(array: Any) -> Any:
        return None if array is None else torch.from_numpy(array).to(kind).float().numpy()

    layers = (replace(one, weights=held(one.weights), bias=held(one.bias)) for one in work.layers)
    return replace(work, layers=tuple(layers))


def drawn(work: ConvWork, seed: int = 1) -> tuple[Any, Any, tuple[Any, ...]]:
    """x, out full of NaN, and residuals: torch tensors in the host's memory."""
    import torch

    rng = np.random.default_rng(seed)
    kind = getattr(torch, work.dtype)

    def made(shape: tuple[int, ...]) -> Any:
        return torch.from_numpy(rng.uniform(-1, 1, shape)).to(kind)

    x = made((work.images, *work.sizes[0]))
    out = torch.full((work.images, *work.sizes[-1]), float("nan"), dtype=kind)
    residuals = []
    for one, (_, height, width) in zip(work.layers, work.sizes[:-1], strict=True):
        if one.adds:
            residuals.append(made((work.images, one.outputs, *one.sums(height, width))))
    return laid(x, work.source), laid(out, work.result), tuple(residuals)


def laid(x: Any, how: str) -> Any:
    """The same tensor in this memory format."""
    import torch

    last = torch.channels_last if how == "channels_last" else torch.contiguous_format
    return x.contiguous(memory_format=last)


def reference(work: ConvWork, x: Any, residuals: Sequence[Any] = (), dtype: Any = None) -> Any:
    """The chain by torch in this dtype, float64 unless told otherwise."""
    import torch
    import torch.nn.functional as nnf

    dtype = dtype or torch.float64
    y, left = x.to(dtype), list(residuals)
    for one in work.layers:
        top, before, bottom, after = one.pads
        weights = torch.from_numpy(one.weights).to(x.device, dtype)
        bias = None if one.bias is None else torch.from_numpy(one.bias).to(x.device, dtype)
        y = nnf.pad(y, (before, after, top, bottom))
        y = nnf.conv2d(y, weights, bias, one.strides, 0, one.dilations, one.groups)
        if one.adds:
            y = y + left.pop(0).to(dtype)
        y = nnf.pixel_shuffle(activated(one.activation, y), one.shuffle)
    return y


def activated(how: Activation, y: Any) -> Any:
    """What ONNX says of each activation."""
    import torch
    import torch.nn.functional as nnf

    if how.kind == "prelu":
        slopes = torch.from_numpy(how.slopes).to(y.device, y.dtype).view(1, -1, 1, 1)
        return torch.where(y < 0, slopes * y, y)
    return {
        "none": lambda: y,
        "relu": lambda: nnf.relu(y),
        "leaky": lambda: torch.where(y < 0, how.low * y, y),
        "clip": lambda: torch.clamp(y, how.low, how.high),
        "sigmoid": lambda: torch.sigmoid(y),
        "hard_sigmoid": lambda: torch.clamp(how.low * y + how.high, 0, 1),
        "hard_swish": lambda: y * torch.clamp(y / 6 + 0.5, 0, 1),
        "silu": lambda: y * torch.sigmoid(y),
        "tanh": lambda: torch.tanh(y),
        "gelu": lambda: 0.5 * y * (1 + torch.erf(y * 0.5**0.5)),
    }[how.kind]()


def error(found: Any, exact: Any) -> float:
    """Norm of the difference over the norm of what is right; NaN where anything is."""
    return float((found.double() - exact.double()).norm() / exact.double().norm())
