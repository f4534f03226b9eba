"""`Network`: layers of bits and of reals, checked as a whole, run on the host.

    Network(layers) --check--> shapes --program.py--> steps with buffers --> run, trace, profile

The layers say what is computed; `joined.py` decides which of them are one pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.bit_conv import BitConv
from tilewright.nn.program import Program, compile_program
from tilewright.nn.steps import PROGRAMS, Timing
from tilewright.nn.value import Value
from tilewright.nn.window import Window
from tilewright.wording import short

INPUT = "input"
_LARGEST = 1 << 31  # elements of one value: beyond, a file claims what nobody runs


@dataclass(frozen=True, eq=False)
class Network:
    """A network of mixed binary and real layers.

    input_shape   (height, width, channels) of one input, or (features,)
    layers        in an order in which each one's inputs come before it; "input" is what is passed
    output        the name of the value that `run` gives; the last layer's by default
    labels        names of the classes, or empty

    Raises ArgumentError, ShapeError, OperandError, DtypeError that name the layer.
    """

    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    output: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "input_shape", tuple(self.input_shape))
        object.__setattr__(self, "labels", tuple(self.labels))
        sizes = self.input_shape
        whole = all(isinstance(s, int) and not isinstance(s, bool) and s > 0 for s in sizes)
        if len(sizes) not in (1, 3) or not whole:
            raise ShapeError(
                f"input_shape={sizes}: accepted are (height, width, channels) and (features,)"
            )
        if math.prod(sizes) >= _LARGEST:
            raise ShapeError(f"input_shape={sizes}: accepted are fewer than 2^31 elements")
        if not self.layers:
            raise ArgumentError("layers=(): accepted is one layer or more")
        if not self.output:
            object.__setattr__(self, "output", self.layers[-1].name)
        if self.output not in self.values:
            raise ArgumentError(f"output={self.output!r}: no layer has this name")
        classes = self.values[self.output].size
        if self.labels and len(self.labels) != classes:
            raise ShapeError(f"labels: {len(self.labels)} names for {classes} scores")

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """Kind and sizes of every value, "input" first."""
        sizes = self.input_shape if len(self.input_shape) == 3 else (1, 1, *self.input_shape)
        found = {INPUT: Value("real", *sizes)}
        for layer in self.layers:
            if layer.name in found:
                raise ArgumentError(f"layer {layer.name!r}: the name is taken")
            for name in layer.inputs:
                if name not in found:
                    raise ArgumentError(
                        f"layer {layer.name!r}: input {name!r} is no value before it"
                    )
            value = layer.output([found[name] for name in layer.inputs])
            if value.size >= _LARGEST:
                raise layer.fail(f"gives {value.size} elements; accepted are fewer than 2^31")
            _check_borders(layer, found[layer.inputs[0]])
            found[layer.name] = value
        return MappingProxyType(found)

    def run(self, x: Any) -> NDArray:
        """The scores of images: float32 [N, ...] for x [N, *input_shape], without N for one.

        x: real numbers, channels last; computed in float32. Where the result is one pixel it is
        [N, channels], and bits come out as -1.0 and +1.0.

        Raises ShapeError, DtypeError; ArgumentError for NaN and infinities.
        """
        images, one = self._checked(x)
        scores = self._program(len(images)).run(images)
        value = self.values[self.output]
        if (value.height, value.width) == (1, 1):
            scores = scores.reshape(len(images), value.channels)
        return scores[0] if one else scores

    def trace(self, x: Any) -> dict[str, NDArray]:
        """Every value that exists in memory during `run`: [N, height, width, channels].

        Reals as float32, bits as int8 -1 and +1. A value that only its successor's pass saw, such
        as the sums before a threshold, is absent.
        """
        images, _ = self._checked(x)
        return self._compiled(len(images), keep=True).trace(images)

    def profile(self, x: Any, repeats: int = 20) -> tuple[Timing, ...]:
        """Median seconds of every pass of `run`, in order, and what layers it does."""
        images, _ = self._checked(x)
        if repeats < 1:
            raise ArgumentError(f"repeats={repeats}: accepted are 1 and more")
        return self._program(len(images)).profile(images, repeats)

    def _checked(self, x: Any) -> tuple[NDArray, bool]:
        if not isinstance(x, np.ndarray):
            raise OperandError(f"x={short(x)}: accepted are NumPy arrays")
        if x.dtype.kind not in "biuf":
            raise DtypeError(f"x.dtype={str(x.dtype)!r}: accepted are bool, integers and floats")
        one = x.ndim == len(self.input_shape)
        batch = x[None] if one else x
        if batch.shape[1:] != self.input_shape:
            raise ShapeError(
                f"x.shape={x.shape}: accepted is {self.input_shape}, or [N, ...] of it"
            )
        with np.errstate(over="ignore"):
            images = np.ascontiguousarray(batch, np.float32)
        if not np.isfinite(images).all():
            raise ArgumentError("x: has NaN or infinities in float32; accepted are numbers")
        value = self.values[INPUT]
        return images.reshape(len(images), value.height, value.width, value.channels), one

    def _program(self, images: int) -> Program:
        """The program for a batch size, kept while there is room."""
        key = (id(self), (images,))
        kept: Program | None = PROGRAMS.get(key, self)
        if kept is None:
            made = self._compiled(images, keep=False)
            kept = PROGRAMS.keep(key, made, size=made.bytes, owners=(self,))
        return kept

    def _compiled(self, images: int, *, keep: bool) -> Program:
        return compile_program(self.layers, self.values, self.output, images, keep=keep)

    @property
    def paddings(self) -> tuple[str, ...]:
        """What the binary convolutions put around their images, where that matters."""
        found = {
            layer.padding
            for layer in self.layers
            if isinstance(layer, BitConv) and any(layer.window.pads)
        }
        return tuple(sorted(found))


def labelled(network: Network, scores: NDArray, count: int) -> list[tuple[str, float]]:
    """The `count` largest scores and their names."""
    order = np.argsort(-scores, kind="stable")[:count]
    names = network.labels or tuple(map(str, range(len(scores))))
    return [(names[int(i)], float(scores[int(i)])) for i in order]


def _check_borders(layer: Layer, source: Value) -> None:
    """Raise where a layer's input grows past every memory by the borders that are put around it."""
    window: Window | None = getattr(layer, "window", None)
    if window is None:
        return
    border = 2 * max(window.pads)
    size = (source.height + border) * (source.width + border) * source.channels
    if size >= _LARGEST:
        raise layer.fail(
            f"pads={window.pads} make {size} elements of its input; accepted are fewer than 2^31"
        )
