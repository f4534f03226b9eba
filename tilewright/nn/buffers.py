"""How values of networks of bits lie in memory: floats in whole registers, bits with borders.

real   float32 [N, H, W, channels up to a multiple of 32]
bits   uint64  [N, border + H + border, border + W + border, words], borders of zeros
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.arrays.array import NDArray
from tilewright.nn.value import Value
from tilewright.nn.window import Layout

LANES = 32  # channels that a kernel writes at once
WORD = 64


def lanes(channels: int) -> int:
    """Channels of a float buffer."""
    return -(-channels // LANES) * LANES


def words(channels: int) -> int:
    """Words of a pixel's bits."""
    return -(-channels // WORD)


def aligned(count: int, dtype: npt.DTypeLike, *, clear: bool = False) -> NDArray:
    """Memory whose first byte is at a multiple of 64: no register is split between cache lines."""
    size = np.dtype(dtype).itemsize
    room = (np.zeros if clear else np.empty)(count * size + 64, np.uint8)
    skip = -room.ctypes.data % 64
    return room[skip : skip + count * size].view(dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A value in memory: flat numbers, where each pixel lies, and which channels are real."""

    data: NDArray
    layout: Layout
    channels: int
    is_bits: bool

    def images(self) -> NDArray:
        """[N, H, W, pitch], without borders."""
        at = self.layout
        shape = (at.images, at.height + 2 * at.border, at.width + 2 * at.border, at.pitch)
        inside = slice(at.border, -at.border or None)
        view: NDArray = self.data.reshape(shape)[:, inside, inside]
        return view

    def values(self) -> NDArray:
        """[N, H, W, C]: float32, or int8 of -1 and +1."""
        if not self.is_bits:
            return self.images()[..., : self.channels]
        octets = np.ascontiguousarray(self.images()).view(np.uint8)
        ones = np.unpackbits(octets, axis=-1, count=self.channels, bitorder="little")
        signs: NDArray = 2 * ones.view(np.int8) - np.int8(1)
        return signs

    def put(self, values: NDArray) -> None:
        """Store float32 [N, H, W, C], or the signs of such as bits."""
        if not self.is_bits:
            self.values()[...] = values
            return
        octets = np.packbits(values > 0, axis=-1, bitorder="little")
        images = np.zeros((*values.shape[:-1], 8 * self.layout.pitch), np.uint8)
        images[..., : octets.shape[-1]] = octets
        self.images()[...] = images.view(np.uint64)


def shape_of(value: Value, images: int, border: int) -> tuple[tuple[int, ...], str]:
    """Sizes and element type of the array that holds a value, its border and absent channels."""
    if value.kind == "real":
        return (images, value.height, value.width, lanes(value.channels)), "float32"
    height, width = value.height + 2 * border, value.width + 2 * border
    return (images, height, width, words(value.channels)), "uint64"


def buffer_of(array: NDArray, value: Value) -> Buffer:
    """A value in an array of `shape_of`, or reals of any pitch, [N, H, W, C] or [N, features]."""
    bits = value.kind == "bits"
    border = (array.shape[1] - value.height) // 2 if bits else 0
    layout = Layout(len(array), value.height, value.width, array.shape[-1], border)
    return Buffer(array.reshape(-1), layout, value.channels, bits)


def bit_buffer(value: Value, images: int, border: int) -> Buffer:
    """Bits, all -1."""
    layout = Layout(images, value.height, value.width, words(value.channels), border)
    return Buffer(aligned(layout.size, np.uint64, clear=True), layout, value.channels, True)


def empty_buffer(value: Value, images: int, border: int) -> Buffer:
    """Memory for a value: bits all -1, reals arbitrary."""
    if value.kind == "bits":
        return bit_buffer(value, images, border)
    layout = Layout(images, value.height, value.width, lanes(value.channels))
    return Buffer(aligned(layout.size, np.float32), layout, value.channels, False)
