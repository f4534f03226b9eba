"""The layers of a network: frozen records that say what is computed, and check their own sizes.

    kinds of values   real (float32 [N, H, W, C])  and  bits ({-1, +1} [N, H, W, C])

    Sign           real -> bits   x >= cut
    BitConv        bits -> real   scale * dot + shift         or  bits -> bits   dot >= threshold
    RealConv       real -> real   scale * dot + shift, weights stored in half precision
    Affine, Clamp  real -> real
    Add            real, real -> real
    MaxPool        either -> the same
    AveragePool    real -> real   (the whole image where the window is None)
    Flatten        either -> the same, [N, 1, 1, H * W * C] in that order

Vectors are images of one pixel; a dense layer is a convolution with a 1x1 window. A layer that
wants reals takes bits too, as -1.0 and +1.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tilewright.arrays.views import short
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.nn.window import PADDINGS, Window
from tilewright.onebit.matrix import BitMatrix

NDArray = npt.NDArray[Any]
Kind = Literal["real", "bits"]
_POINT = Window()
_FINITE, _ENDS = float(np.finfo(np.float32).max), (-math.inf, math.inf)
EXACT = 1 << 24  # whole numbers up to here are exact in float32, so sums of fewer terms are


@dataclass(frozen=True, slots=True)
class Value:
    """What a layer gives for one input: its kind and sizes."""

    kind: Kind
    height: int
    width: int
    channels: int

    @property
    def size(self) -> int:
        """Elements."""
        return self.height * self.width * self.channels


@dataclass(frozen=True, eq=False, kw_only=True)
class Layer:
    """A layer: `name` is also the name of the value it gives, `inputs` are names of values."""

    name: str
    inputs: tuple[str, ...]
    takes: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"name={self.name!r}: accepted is a text that is not empty")
        fine = isinstance(self.inputs, tuple) and all(isinstance(i, str) for i in self.inputs)
        if not fine or len(self.inputs) != self.takes:
            raise ArgumentError(
                f"layer {self.name!r}: inputs={self.inputs!r}; accepted are {self.takes} names"
            )
        self._check()

    def _check(self) -> None:
        """Raise for fields that do not fit each other."""

    def output(self, inputs: Sequence[Value]) -> Value:
        """What comes out. Raises ShapeError, OperandError for inputs that do not fit."""
        raise NotImplementedError

    def fail(self, what: str, error: Callable[[str], Exception] = ShapeError) -> Exception:
        """An error that names the layer."""
        return error(f"layer {self.name!r}: {what}")

    def vector(self, field: str, count: int | None = None) -> None:
        """Check a float32 vector, if there is one: finite, of `count` elements."""
        array = getattr(self, field)
        if array is None:
            return
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            raise self.fail(f"{field}={short(array)}; accepted is a float32 vector", DtypeError)
        if array.ndim != 1 or (count is not None and len(array) != count):
            wanted = "a vector" if count is None else f"({count},)"
            raise self.fail(f"{field}.shape={array.shape}; must be {wanted}")
        if field != "cut" and not np.isfinite(array).all():
            raise self.fail(f"{field}: has NaN or infinities; accepted are numbers", ArgumentError)
        if np.isnan(array).any():
            raise self.fail(f"{field}: has NaN; accepted are numbers", ArgumentError)

    def channels(self, field: str, value: Value) -> None:
        """Check that a vector has an element for each channel."""
        array = getattr(self, field)
        if array is not None and len(array) != value.channels:
            raise self.fail(
                f"{field} has {len(array)} elements, its input {value.channels} channels"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class Sign(Layer):
    """+1 where x >= cut, else -1. `cut` float32 [C], or None for 0: so 0 and -0 become +1.

    For x > t take cut = nextafter(t, inf).
    """

    cut: NDArray | None = None

    def _check(self) -> None:
        self.vector("cut")

    def output(self, inputs: Sequence[Value]) -> Value:
        """Bits of the same sizes."""
        self.channels("cut", inputs[0])
        return Value("bits", inputs[0].height, inputs[0].width, inputs[0].channels)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Conv(Layer):
    """What the two convolutions share. No kernel flip: deep learning's convolution."""

    weights: Any
    window: Window = _POINT
    groups: int = 1
    scale: NDArray | None = None
    shift: NDArray | None = None

    def _check(self) -> None:
        shape = self._weights_shape()
        if len(shape) != 4 or 0 in shape:
            raise self.fail(f"weights.shape={shape}; accepted is [out, height, width, in], no 0")
        if shape[1:3] != self.window.kernel:
            raise self.fail(f"weights.shape={shape} and kernel={self.window.kernel} differ")
        whole = isinstance(self.groups, int) and not isinstance(self.groups, bool)
        if not whole or self.groups < 1 or shape[0] % self.groups:
            raise self.fail(f"groups={self.groups!r}; accepted are divisors of {shape[0]} outputs")
        self.vector("scale", shape[0])
        self.vector("shift", shape[0])

    def _weights_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """Channels that come out."""
        return self._weights_shape()[0]

    @property
    def terms(self) -> int:
        """Products that one result sums, borders left out."""
        return math.prod(self._weights_shape()[1:])

    def _sizes(self, value: Value) -> tuple[int, int]:
        wanted = self._weights_shape()[3] * self.groups
        if value.channels != wanted:
            raise self.fail(
                f"weights.shape={self._weights_shape()}, groups={self.groups} take {wanted}"
                f" channels; its input has {value.channels}"
            )
        try:
            return self.window.output(value.height, value.width)
        except ShapeError as error:
            raise self.fail(str(error)) from None


@dataclass(frozen=True, eq=False, kw_only=True)
class BitConv(_Conv):
    """Convolution of bits with bits.

    weights    BitMatrix of shape [out, height, width, in / groups]
    padding    what lies outside the image: "zero" adds nothing to a sum, "minus_one" is bits of -1;
               the two give different results, and a network needs the one it was trained with
    scale, shift  float32 [out]: float32(scale * dot) + shift, each rounded once
    threshold  int32 [out]: bits come out instead, +1 where dot >= threshold
    """

    padding: str = "zero"
    threshold: NDArray | None = None

    def _weights_shape(self) -> tuple[int, ...]:
        if not isinstance(self.weights, BitMatrix):
            raise self.fail(f"weights={short(self.weights)}; accepted is a BitMatrix", OperandError)
        return self.weights.shape

    def _check(self) -> None:
        super()._check()
        if self.padding not in PADDINGS:
            raise self.fail(
                f"padding={self.padding!r}; accepted are {', '.join(map(repr, PADDINGS))}",
                ArgumentError,
            )
        if self.terms >= EXACT:
            raise self.fail(f"sums {self.terms} products; accepted are fewer than {EXACT}")
        if self.threshold is None:
            return
        if self.scale is not None or self.shift is not None:
            raise self.fail("threshold excludes scale and shift: bits have none", ArgumentError)
        fine = isinstance(self.threshold, np.ndarray) and self.threshold.dtype == np.int32
        if not fine or self.threshold.shape != (self.outputs,):
            raise self.fail(
                f"threshold={short(self.threshold)}; accepted is int32 [{self.outputs}]"
            )

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals, or bits where there is a threshold."""
        if inputs[0].kind != "bits":
            raise self.fail("takes bits; put a Sign before it", OperandError)
        kind: Kind = "real" if self.threshold is None else "bits"
        return Value(kind, *self._sizes(inputs[0]), self.outputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class RealConv(_Conv):
    """Convolution of reals, computed in float32, zeros outside the image.

    weights    float16 [out, height, width, in / groups]
    scale, shift  float32 [out], as in BitConv
    """

    def _weights_shape(self) -> tuple[int, ...]:
        if not isinstance(self.weights, np.ndarray) or self.weights.dtype != np.float16:
            raise self.fail(f"weights={short(self.weights)}; accepted is float16", DtypeError)
        return tuple(self.weights.shape)

    def _check(self) -> None:
        super()._check()
        if not np.isfinite(self.weights).all():
            raise self.fail("weights: NaN or infinities in half precision", ArgumentError)

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals."""
        return Value("real", *self._sizes(inputs[0]), self.outputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Affine(Layer):
    """float32(scale * x) + shift for each channel: a batch norm that no convolution precedes."""

    scale: NDArray
    shift: NDArray

    def _check(self) -> None:
        self.vector("scale")
        self.vector("shift")

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals of the same sizes."""
        self.channels("scale", inputs[0])
        self.channels("shift", inputs[0])
        return Value("real", inputs[0].height, inputs[0].width, inputs[0].channels)


@dataclass(frozen=True, eq=False, kw_only=True)
class Clamp(Layer):
    """min(max(x, low), high): ReLU is low = 0, HardTanh -1 and 1."""

    low: float = -math.inf
    high: float = math.inf

    def _check(self) -> None:
        for name, value in (("low", self.low), ("high", self.high)):
            fine = isinstance(value, int | float | np.floating)
            if not fine or (abs(value) > _FINITE and value not in _ENDS):
                raise self.fail(f"{name}={value!r}; accepted are float32 numbers", ArgumentError)
        if not self.low <= self.high:
            raise self.fail(
                f"low={self.low}, high={self.high}; accepted is low <= high", ArgumentError
            )

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals of the same sizes."""
        return Value("real", inputs[0].height, inputs[0].width, inputs[0].channels)


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Layer):
    """The sum of two values of equal sizes: a shortcut."""

    takes: ClassVar[int] = 2

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals of the same sizes."""
        sizes = [(value.height, value.width, value.channels) for value in inputs]
        if sizes[0] != sizes[1]:
            raise self.fail(f"adds {sizes[0]} and {sizes[1]}; they must be equal")
        return Value("real", *sizes[0])


@dataclass(frozen=True, eq=False, kw_only=True)
class MaxPool(Layer):
    """The largest element of each window, elements outside the image left out; OR of bits."""

    window: Window

    def output(self, inputs: Sequence[Value]) -> Value:
        """The same kind."""
        return Value(inputs[0].kind, *pooled(self, self.window, inputs[0]), inputs[0].channels)


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragePool(Layer):
    """The mean of each window, of the whole image where `window` is None.

    Elements outside the image are 0 in the sum and counted by the divisor if `count_padding`.
    """

    window: Window | None = None
    count_padding: bool = False

    def output(self, inputs: Sequence[Value]) -> Value:
        """Reals."""
        sizes = (1, 1) if self.window is None else pooled(self, self.window, inputs[0])
        return Value("real", *sizes, inputs[0].channels)


@dataclass(frozen=True, eq=False, kw_only=True)
class Flatten(Layer):
    """All elements of an image as channels of one pixel, in the order height, width, channels."""

    def output(self, inputs: Sequence[Value]) -> Value:
        """The same kind."""
        return Value(inputs[0].kind, 1, 1, inputs[0].size)


def pooled(layer: Layer, window: Window, value: Value) -> tuple[int, int]:
    """Sizes of a pooled image. Raises ShapeError where a window would be empty."""
    if window.dilation != (1, 1):
        raise layer.fail(f"dilation={window.dilation}; accepted is (1, 1)", ArgumentError)
    try:
        sizes = window.output(value.height, value.width)
    except ShapeError as error:
        raise layer.fail(str(error)) from None
    for axis, length in enumerate((value.height, value.width)):
        first, last = -window.pads[axis], (sizes[axis] - 1) * window.stride[axis]
        if first + window.kernel[axis] <= 0 or first + last >= length:
            raise layer.fail(f"pads={window.pads}: a window lies wholly outside the image")
    return sizes
