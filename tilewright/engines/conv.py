"""What engines of convolutions are asked: a chain of layers over pictures, its sizes known.

    x [N, C, H, W] --conv, bias, activation--> ... --conv, shuffle--> out [N, C', H', W']

A single convolution is a chain of one. A chain is offered whole because engines that keep rows of
its activations in a core's cache, or in a multiprocessor's shared memory, skip the memory between
layers; who cannot says so in `why_not`, and its layers are asked for one by one.

Shapes are ONNX's: x is [N, C, H, W], and its memory is either that ("channels_first") or
[N, H, W, C] ("channels_last"): the same shape with other strides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from tilewright.arrays.array import NDArray
from tilewright.facts.dtypes import VALUES
from tilewright.remember import once

Format = Literal["channels_first", "channels_last"]
ACTIVATIONS = (
    "none",
    "relu",
    "leaky",  # low * x below zero
    "prelu",  # slopes[channel] * x below zero
    "clip",  # low and high
    "sigmoid",
    "hard_sigmoid",  # clip(low * x + high, 0, 1), low and high being ONNX's alpha and beta
    "hard_swish",  # x * clip(x / 6 + 1/2, 0, 1)
    "silu",
    "tanh",
    "gelu",
)


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """What is made of each sum: one of `ACTIVATIONS` and its numbers."""

    kind: str = "none"
    low: float = 0.0
    high: float = 0.0
    slopes: NDArray | None = None  # float32 [outputs], of "prelu"


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """How a layer of small whole numbers counts, each step exact or rounded once to float32.

    y = clip(float32(sum of (x - zero) * weights + bias) * scale [+ residual], low, high)
    result = y, or saturated(round(y / step) + shift), halves to even

    zero         of x: what stands for 0, and what pads hold
    scale        float32 [outputs], above 0: what one of the sums is worth
    low, high    limits of y: those of an activation
    step, shift  of the result where it is whole again; else None and 0
    dtype        of the result: "float32", "uint8" or "int8"
    source       of x: "uint8" or "int8"
    taken        x comes as float32 and is saturated(round(x / taken) + zero) first; or None
    """

    zero: int
    scale: NDArray
    low: float = -math.inf
    high: float = math.inf
    step: float | None = None
    shift: int = 0
    dtype: str = "float32"
    source: str = "uint8"
    taken: float | None = None


@dataclass(frozen=True, eq=False)
class Conv:
    """One layer: activation(convolution + bias [+ residual]), then a pixel shuffle.

    weights    float32 [outputs, inputs / groups, kernel height, kernel width]
    bias       float32 [outputs], or None
    pads       top, left, bottom, right; zeros
    adds       whether a residual, [N, outputs, H', W'], is added before the activation
    shuffle    r: channels [c * r * r] become r x r pixels, as ONNX's DepthToSpace in mode CRD
    whole      of whole numbers, weights are int8, the bias int32, and there is no other activation
    """

    weights: NDArray
    bias: NDArray | None = None
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    activation: Activation = Activation()
    adds: bool = False
    shuffle: int = 1
    whole: Whole | None = None

    @property
    def outputs(self) -> int:
        """Channels of the sums, before the shuffle."""
        return int(self.weights.shape[0])

    @property
    def inputs(self) -> int:
        """Channels that it reads."""
        return int(self.weights.shape[1]) * self.groups

    @property
    def kernel(self) -> tuple[int, int]:
        """Height and width of the window, not dilated."""
        return int(self.weights.shape[2]), int(self.weights.shape[3])

    def sums(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the sums for a picture's, before the shuffle."""
        top, left, bottom, right = self.pads
        found = []
        for at, size in enumerate((height + top + bottom, width + left + right)):
            reach = self.dilations[at] * (self.kernel[at] - 1) + 1
            found.append((size - reach) // self.strides[at] + 1)
        return found[0], found[1]


@dataclass(frozen=True, eq=False)
class ConvWork:
    """A chain of convolutions for pictures of one size.

    dtype      of x, out and what lies between: "float32", "float16", "bfloat16"; sums are float32.
               "uint8" or "int8" where layers are `Whole`: of x once it is whole; what lies between
               and out are as layers say, sums int32
    exact      no engine whose rounding exceeds that of a plain sum (Winograd's F(4, 3))
    source, result   how x and out lie in memory
    """

    layers: tuple[Conv, ...]
    images: int
    height: int
    width: int
    dtype: str = "float32"
    exact: bool = False
    source: Format = "channels_first"
    result: Format = "channels_first"

    @once
    def sizes(self) -> tuple[tuple[int, int, int], ...]:
        """Channels, height and width of x and of each layer's result after its shuffle."""
        found = [(self.layers[0].inputs, self.height, self.width)]
        for layer in self.layers:
            height, width = layer.sums(*found[-1][1:])
            r = layer.shuffle
            found.append((layer.outputs // (r * r), height * r, width * r))
        return tuple(found)

    @property
    def flops(self) -> float:
        """Multiplications and additions of the plain sums, two for each pair."""
        total = 0.0
        for layer, (_, height, width) in zip(self.layers, self.sizes, strict=False):
            rows, columns = layer.sums(height, width)
            total += 2.0 * rows * columns * layer.weights.size
        return total * self.images

    @property
    def bytes(self) -> float:
        """What memory must move if nothing between the layers does: x, out, weights, residuals."""
        ends = (self.source_dtype, self.sizes[0]), (self.result_dtype, self.sizes[-1])
        moved = sum(VALUES[dtype] * math.prod(sizes) for dtype, sizes in ends)
        for layer, sizes in zip(self.layers, self.sizes[1:], strict=True):
            moved += VALUES[self.result_dtype] * math.prod(sizes) if layer.adds else 0
        weights = sum(layer.weights.size for layer in self.layers)
        return float(self.images * moved + VALUES[self.dtype] * weights)

    @property
    def source_dtype(self) -> str:
        """Of x as it is passed."""
        whole = self.layers[0].whole
        return "float32" if whole is not None and whole.taken is not None else self.dtype

    @property
    def result_dtype(self) -> str:
        """Of out."""
        whole = self.layers[-1].whole
        return self.dtype if whole is None else whole.dtype


@dataclass(frozen=True, slots=True, eq=False)
class ConvOperands:
    """Arrays of the engine's place: x, out, and a residual for each layer that adds one."""

    x: Any
    out: Any
    residuals: tuple[Any, ...] = ()
