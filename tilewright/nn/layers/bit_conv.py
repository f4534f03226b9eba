"""BitConv: convolution of bits with bits, to reals or, by a threshold, to bits again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, FileError, OperandError
from tilewright.nn.binding_host import NO_FLOATS, Binding, Ending, Tail
from tilewright.nn.buffers import Buffer, lanes
from tilewright.nn.layers.conv import Conv, joined
from tilewright.nn.reference import convolve, scaled
from tilewright.nn.value import Value
from tilewright.nn.weights import blocks, widened
from tilewright.nn.window import PADDINGS, tables
from tilewright.onebit.matrix import BitMatrix, pack, unpack
from tilewright.wording import short

_EXACT = 1 << 24  # whole numbers up to here are exact in float32, so sums of fewer terms are


@dataclass(frozen=True, eq=False, kw_only=True)
class BitConv(Conv):
    """Convolution of bits with bits.

    weights    BitMatrix of shape [out, height, width, in / groups]
    padding    what lies outside the image: "zero" adds nothing to a sum, "minus_one" is bits of -1;
               the two give different results, and a network needs the one it was trained with
    scale, shift  float32 [out]: float32(scale * dot) + shift, each rounded once
    threshold  int32 [out]: bits come out instead, +1 where dot >= threshold
    """

    padding: str = "zero"
    threshold: NDArray | None = None
    vectors: ClassVar[tuple[str, ...]] = (*Conv.vectors, "threshold")

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
        if self.terms >= _EXACT:
            raise self.fail(f"sums {self.terms} products; accepted are fewer than {_EXACT}")
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
        sizes = self._sizes(inputs[0])
        return Value("real" if self.threshold is None else "bits", *sizes, self.outputs)

    def compute(self, *inputs: NDArray) -> NDArray:
        """Exact sums; scale and shift round where the kernels do."""
        outside = 0 if self.padding == "zero" else -1
        dots = convolve(inputs[0], unpack(self.weights), self.window, self.groups, outside)
        if self.threshold is not None:
            return np.where(dots >= self.threshold, np.int8(1), np.int8(-1))
        return scaled(dots, self.scale, self.shift)

    @property
    def border(self) -> int:
        """Its windows are read without asking where they lie."""
        return max(self.window.pads)

    def _source(self, host: Binding) -> Buffer:
        return host.regrouped(self.inputs[0], self.groups)

    def _tail(self, host: Binding, ending: Ending) -> Tail:
        if self.threshold is None:
            return super()._tail(host, ending)
        # Sums stay below 2^24, so a threshold that float32 rounds is beyond all of them anyway.
        cut = widened(self.threshold.astype(np.float32), np.nan)
        return NO_FLOATS, NO_FLOATS, *host.halves(self.name), cut

    def _bind_part(self, host: Binding, group: int, source: Buffer, tail: Tail) -> None:
        rows = self._rows(group)
        words = self.weights.words
        found = tables(self.window, source.layout, self._pieces(group, words.shape[3]))
        start, classes = starts(self, rows, found.inside, found.classes)
        host.step(
            compiled.kernels("conv").conv_bits, source.data, found.origins,
            classes, found.taps, blocks(words[rows]), start, *self._epilogue(rows), tail,
        )  # fmt: skip

    def _bind_join(self, host: Binding, parts: Sequence[Buffer]) -> None:
        if self.threshold is None:
            super()._bind_join(host, parts)
            return
        bits, cuts = host.buffers[self.name], self.threshold.astype(np.float64)
        host.step(lambda: bits.put(joined(parts) >= cuts))

    # Files

    def header(self) -> dict[str, Any]:
        """The shape too, as weights are stored as bytes."""
        return super().header() | {"shape": list(self.weights.shape)}

    def arrays(self) -> dict[str, NDArray]:
        """Weights as uint8 [out, bytes]."""
        ones = unpack(self.weights, dtype=bool).reshape(self.outputs, -1)
        octets = np.packbits(ones, axis=-1, bitorder="little")
        return super().arrays() | {"weights": octets}

    @classmethod
    def restored(cls, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """From bytes and their shape."""
        given = dict(header)
        weights = _bits(arrays["weights"], given.pop("shape"), given["name"])
        return super().restored(given, {**arrays, "weights": weights})


def starts(
    layer: BitConv, rows: slice, inside: NDArray, classes: NDArray
) -> tuple[NDArray, NDArray]:
    """What differing bits are taken from, int32 [classes, out], and each pixel's class.

    A tap outside the image meets zero bits, -1 each, and there its differing bits are the ones of
    its weights: for exact zeros they are added again and the tap's length left out.
    """
    depth = layer.weights.k
    if layer.padding == "minus_one" or not any(layer.window.pads):
        inside, classes = np.ones((1, inside.shape[1]), bool), np.zeros_like(classes)
    ones = np.asarray(layer.weights.counts)[rows].reshape(-1, inside.shape[1])
    start = np.zeros((len(inside), lanes(len(ones))), np.int32)
    outside = (~inside).astype(np.int64)
    start[:, : len(ones)] = depth * inside.sum(axis=1)[:, None] + 2 * (outside @ ones.T)
    return start, classes


def _bits(octets: NDArray, shape: Any, name: str) -> BitMatrix:
    """Bits [out, bytes] as a BitMatrix of `shape`."""
    whole = isinstance(shape, list) and len(shape) == 4 and all(type(s) is int for s in shape)
    if not whole or min(shape) < 1:
        raise FileError(f"layer {name!r}: shape={shape!r}; accepted are four sizes")
    length = math.prod(shape[1:])
    if octets.dtype != np.uint8 or octets.shape != (shape[0], -(-length // 8)):
        raise FileError(
            f"layer {name!r}: weights {octets.dtype} {octets.shape} do not hold shape={shape}"
        )
    if length % 8 and np.any(octets[:, -1] >> (length % 8)):
        raise FileError(f"layer {name!r}: weights have bits past their {length}")
    ones = np.unpackbits(octets, axis=-1, count=length, bitorder="little").view(np.bool_)
    return pack(ones.reshape(shape))
