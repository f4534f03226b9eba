"""The memory of a network made ready: floats padded to whole registers, bits with borders, reused.

real   float32 [N, H, W, channels up to a multiple of 32]
bits   uint64  [N, border + H + border, border + W + border, words], borders of zeros
"""

from __future__ import annotations

from dataclasses import dataclass, field

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

    def put(self, signs: NDArray) -> None:
        """Store int8 signs [N, H, W, C] as bits."""
        octets = np.packbits(signs > 0, axis=-1, bitorder="little")
        images = np.zeros((*signs.shape[:-1], 8 * self.layout.pitch), np.uint8)
        images[..., : octets.shape[-1]] = octets
        self.images()[...] = images.view(np.uint64)


def bit_buffer(value: Value, images: int, border: int) -> Buffer:
    """Bits, all -1."""
    layout = Layout(images, value.height, value.width, words(value.channels), border)
    return Buffer(aligned(layout.size, np.uint64, clear=True), layout, value.channels, True)


@dataclass(slots=True)
class Pool:
    """Float buffers that are handed out again once nobody reads them."""

    free: dict[int, list[NDArray]] = field(default_factory=dict)

    def take(self, value: Value, images: int) -> Buffer:
        """A buffer for a value, its content arbitrary."""
        layout = Layout(images, value.height, value.width, lanes(value.channels))
        waiting = self.free.get(layout.size)
        data = waiting.pop() if waiting else aligned(layout.size, np.float32)
        return Buffer(data, layout, value.channels, False)

    def give(self, buffer: Buffer) -> None:
        """Nobody reads it any more."""
        self.free.setdefault(len(buffer.data), []).append(buffer.data)
