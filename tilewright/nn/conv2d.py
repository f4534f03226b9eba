"""`Conv2d`: convolution of bits, as a product of windows and weights that is never written out.

    host, Numba   windows found by table in the packed image: no im2col
    elsewhere     the words of the windows gathered, 1/32 of what floats would take, then `matmul`

Outside the image lies nothing ("zero": those products are left out, by masking) or bits of -1
("minus_one"); a network needs the one it was trained with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.arrays.views import never_followed
from tilewright.backends.host import compiled
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.nn.buffers import Buffer, bit_buffer, empty_buffer
from tilewright.nn.engine_of_bits import ENGINE, BoundPass, PassWork
from tilewright.nn.joined import plan_passes
from tilewright.nn.layers.bit_conv import BitConv, starts
from tilewright.nn.reference import scaled
from tilewright.nn.value import Value
from tilewright.nn.window import Window, four, pair, tables
from tilewright.onebit.matrix import BitMatrix, clipped, pack, unpack
from tilewright.onebit.product import matmul
from tilewright.remember import Shelf
from tilewright.wording import short

_Ready = tuple[Buffer, Buffer, BoundPass]  # what it reads, what it gives, and how
# What convolutions were made ready with for the sizes they were called with last.
READY: Shelf[tuple[int, tuple[int, ...]], _Ready] = Shelf("one-bit convolutions", most=2 << 30)


class Conv2d:
    """A convolution of bits, ready to be called again and again.

    Args:
        weights: -1 and +1 [out, height, width, in / groups], or a BitMatrix of that shape. No
            kernel flip: deep learning's convolution, PyTorch's weights as `w.permute(0, 2, 3, 1)`.
        stride, dilation: a number, or (vertical, horizontal).
        padding: a number, (vertical, horizontal), or (top, left, bottom, right).
        groups: parts of the channels that do not see each other.
        padding_value: "zero", what lies outside adds nothing; "minus_one", it is bits of -1.
        scale, bias: float32 [out]: the result is float32(scale * dot) + bias, each rounded once.
        threshold: int32 [out]: the result is bits, +1 where dot >= threshold.

    Raises ShapeError, ArgumentError, DtypeError, OperandError for what does not fit.
    """

    def __init__(
        self,
        weights: Any,
        *,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        padding_value: str = "zero",
        scale: Any = None,
        bias: Any = None,
        threshold: Any = None,
    ) -> None:
        bits = weights if isinstance(weights, BitMatrix) else pack(weights)
        if bits.device.backend != "host":
            raise OperandError(f"weights={bits!r}: accepted are weights on the host")
        if bits.ndim != 4:
            raise ShapeError(f"weights.shape={bits.shape}: accepted is [out, height, width, in]")
        kernel = bits.shape[1:3]
        self.layer = BitConv(
            name="conv",
            inputs=("input",),
            weights=bits,
            window=Window(
                (kernel[0], kernel[1]),
                pair(stride, "stride"),
                pair(dilation, "dilation"),
                four(padding, "padding"),
            ),
            groups=groups,
            padding=padding_value,
            scale=_reals("scale", scale, len(bits)),
            shift=_reals("bias", bias, len(bits)),
            threshold=_wholes(threshold),
        )

    @never_followed
    def __call__(
        self, x: BitMatrix, *, device: Device | str | None = None, kernel: str | None = None
    ) -> Any:
        """Convolve.

        Args:
            x: bits [N, height, width, channels] or [height, width, channels] on the host, as `pack`
                makes them of an array of that shape.
            device, kernel: where and how `matmul` is to do it; by default here, without im2col.

        Returns:
            int32 [N, height, width, out]; float32 where there is a scale or a bias; a BitMatrix of
            that shape where there is a threshold.
        """
        if not isinstance(x, BitMatrix) or x.device.backend != "host":
            raise OperandError(
                f"x={short(x)}: accepted are a BitMatrix on the host; pack() makes it"
            )
        if x.ndim not in (3, 4):
            raise ShapeError(f"x.shape={x.shape}: accepted is [N, height, width, channels]")
        images = x if x.ndim == 4 else x.reshape(1, *x.shape)
        value = Value("bits", *images.shape[1:])
        result = self.layer.output([value])
        if device is None and kernel is None and compiled.available() and images.words.size:
            made = self._native(images, value, result)
        else:
            made = self._lowered(images, value, result, device, kernel)
        if x.ndim == 4:
            return made
        return made.reshape(*made.shape[1:]) if isinstance(made, BitMatrix) else made[0]

    def _native(self, x: BitMatrix, value: Value, result: Value) -> Any:
        """By the host's kernel, its buffers kept for the next call of the same sizes."""
        with compiled.LOCK:
            source, out, run = self._ready(x.shape, value, result)
            np.copyto(source.images(), x.words)
            run()
            if out.is_bits:
                return BitMatrix.of_words(out.images(), out.channels)
            plain = self.layer.scale is None and self.layer.shift is None
            return out.values().astype(np.int32 if plain else np.float32)

    def _ready(self, shape: tuple[int, ...], value: Value, result: Value) -> _Ready:
        """The pass for images of these sizes and its memory, kept while there is room."""
        key = (id(self), shape)
        kept = READY.get(key, self)
        if kept is None:
            values = {"input": value, "conv": result}
            (item,) = plan_passes([self.layer], values, {"conv"})
            source, out = (
                empty_buffer(values[name], shape[0], item.borders.get(name, 0))
                for name in ("input", "conv")
            )
            run = ENGINE.bound(PassWork(item, shape[0]), {"input": source, "conv": out})
            size = source.data.nbytes + out.data.nbytes + run.bytes
            kept = READY.keep(key, (source, out, run), size=size, owners=(self,))
        return kept

    def _lowered(
        self,
        x: BitMatrix,
        value: Value,
        result: Value,
        device: Device | str | None,
        kernel: str | None,
    ) -> Any:
        """Windows gathered, group by group, and multiplied wherever `matmul` is told to."""
        layer = self.layer
        border, depth = max(layer.window.pads), layer.weights.k
        each = layer.outputs // layer.groups
        parts = []
        for group in range(layer.groups):
            bits = x
            if layer.groups > 1:
                bits = pack(unpack(x)[..., group * depth : (group + 1) * depth])
            one = Value("bits", value.height, value.width, depth)
            source = bit_buffer(one, x.shape[0], border)
            np.copyto(source.images(), bits.words)
            found = tables(layer.window, source.layout, np.arange(source.layout.pitch))
            windows = source.data[found.origins[:, None] + found.taps]
            rows = slice(group * each, (group + 1) * each)
            weights = layer.weights.words[rows].reshape(each, -1)
            length = 64 * weights.shape[1]
            dots = matmul(
                BitMatrix(windows, length), BitMatrix(weights, length), device=device, kernel=kernel
            )
            # Bits past each tap's channels are 0 on both sides: they count as equal.
            start, classes = starts(layer, rows, found.inside, found.classes)
            parts.append(dots - np.int32(length) + start[classes, :each])
        shape = (x.shape[0], result.height, result.width, result.channels)
        return self._finished(np.concatenate(parts, axis=1).reshape(shape))

    def _finished(self, dots: NDArray) -> Any:
        layer = self.layer
        if layer.threshold is not None:
            return pack(dots >= layer.threshold)
        if layer.scale is None and layer.shift is None:
            return dots
        return scaled(dots.astype(np.float32), layer.scale, layer.shift)


def _reals(name: str, value: Any, outputs: int) -> NDArray | None:
    if value is None:
        return None
    try:
        with np.errstate(over="ignore"):  # infinities are refused with those that were passed
            array = np.ascontiguousarray(value, np.float32)
    except (TypeError, ValueError):
        raise DtypeError(f"{name}={short(value)}: accepted are real numbers") from None
    if np.shape(value) != (outputs,):
        raise ShapeError(f"{name}.shape={np.shape(value)}: accepted is ({outputs},)")
    if not np.isfinite(array).all():
        raise ArgumentError(f"{name}: has NaN or infinities in float32; accepted are numbers")
    return array


def _wholes(value: Any) -> NDArray | None:
    if value is not None and np.asarray(value).dtype.kind not in "iu":
        raise DtypeError(f"threshold={short(value)}: accepted are whole numbers")
    return None if value is None else clipped(np.atleast_1d(np.asarray(value)))
