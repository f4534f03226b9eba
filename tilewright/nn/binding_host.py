"""What layers bind the host's kernels with: the values of one pass in memory, and calls of kernels.

    a value -> made real, padded, regrouped where its reader needs that -> kernel -> its place

Everything is converted and laid out here, once for a pass and a number of pictures; what is left is
calls without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.buffers import Buffer, aligned, bit_buffer, lanes, words
from tilewright.nn.value import Value
from tilewright.nn.window import Layout, Window

Tail = tuple[NDArray, NDArray, NDArray, NDArray, NDArray]
NO_FLOATS = np.empty(0, np.float32)
NO_BITS = np.empty(0, np.uint16)
NOWHERE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """How a pass ends: what is added to the layer's result, and what of it is stored.

    residual  name of the value that is added, or None
    real      name under which the float result is stored, or None where only its sign is wanted
    sign      name under which the result's signs are stored, or None
    cut       of that sign: float32 [channels], or None for 0
    """

    residual: str | None = None
    real: str | None = None
    sign: str | None = None
    cut: NDArray | None = None


class Binding:
    """The memory of a pass, and the calls bound so far.

    buffers  the values that it reads, and those that it is to give
    """

    def __init__(
        self, values: Mapping[str, Value], images: int, buffers: Mapping[str, Buffer]
    ) -> None:
        self.values, self.images, self.buffers = values, images, buffers
        self.calls: list[Callable[[], object]] = []
        self._memory: dict[int, int] = {}  # bytes of every array that calls hold, by its identity
        self._given = {id(_owner(buffer.data)) for buffer in buffers.values()}

    @property
    def bytes(self) -> int:
        """Of tables, weights and copies, besides the buffers."""
        return sum(self._memory.values())

    def step(self, kernel: Callable[..., object], *arguments: Any) -> None:
        """A call of a kernel, as it will be made at every run."""
        self._count(*arguments)
        self.calls.append(lambda: kernel(*arguments))

    def _count(self, *held: Any) -> None:
        """Add what a call holds to the memory; views of one array count once."""
        for item in held:
            if isinstance(item, tuple):
                self._count(*item)
            elif isinstance(item, np.ndarray):
                owner = _owner(item)
                if id(owner) not in self._given:
                    self._memory[id(owner)] = getattr(owner, "nbytes", item.nbytes)

    # What a layer reads

    def reals(self, name: str) -> Buffer:
        """A value as floats in whole registers."""
        buffer = self.buffers[name]
        width = lanes(buffer.channels)
        if not buffer.is_bits and buffer.layout.pitch == width:
            return buffer
        at = buffer.layout
        layout = Layout(self.images, at.height, at.width, width)
        made = self.scratch(layout, buffer.channels)
        if buffer.is_bits:
            self.step(lambda: np.copyto(made.values(), buffer.values()))
        else:
            self.step(np.copyto, made.values(), buffer.values())
        return made

    def padded(self, name: str, window: Window) -> Buffer:
        """A value as floats with zeros around each image, as the window needs them."""
        buffer = self.buffers[name]
        border = max(window.pads)
        if not buffer.is_bits and not border:
            return buffer
        at = buffer.layout
        layout = Layout(self.images, at.height, at.width, buffer.channels, border)
        made = Buffer(aligned(layout.size, np.float32, clear=True), layout, buffer.channels, False)
        self._count(made.data)
        inside = made.images()
        self.step(lambda: np.copyto(inside, buffer.values()))
        return made

    def regrouped(self, name: str, groups: int) -> Buffer:
        """Bits whose every group begins with a word of its own."""
        buffer = self.buffers[name]
        depth = buffer.channels // groups
        if groups == 1 or depth % 64 == 0:
            return buffer
        at = buffer.layout
        wide = 64 * words(depth)
        value = Value("bits", at.height, at.width, groups * wide)
        made = bit_buffer(value, self.images, at.border)
        self._count(made.data)

        def regroup() -> None:
            signs = buffer.values()
            spread = np.full((*signs.shape[:3], groups, wide), np.int8(-1))
            spread[..., :depth] = signs.reshape(*signs.shape[:3], groups, depth)
            made.put(spread.reshape(*signs.shape[:3], -1))

        self.step(regroup)
        return made

    # What a layer writes

    def tail(
        self, name: str, inputs: tuple[str, ...], ending: Ending, added: str | None = None
    ) -> Tail:
        """What a kernel is given for the end of a pass; `added` is a residual of the layer's own.

        name, inputs: the layer's.
        """
        residual = ending.residual or added
        addend = NO_FLOATS if residual is None else self.reals(residual).data
        shape = self.values[name]
        # Absent channels hold whatever memory held, infinity too: only NaN is reached by nothing.
        cut = np.full(lanes(shape.channels), np.nan, np.float32)
        real, bits, where = NO_FLOATS, NO_BITS, NOWHERE
        if ending.real is not None:
            real = self.buffers[ending.real].data
        if ending.sign is not None:
            cut[: shape.channels] = 0 if ending.cut is None else ending.cut
            bits, where = self.halves(ending.sign)
        return addend, real, bits, where, cut

    def halves(self, name: str) -> tuple[NDArray, NDArray]:
        """Half words of a value of bits, and where each pixel's begin."""
        buffer = self.buffers[name]
        return buffer.data.view(np.uint16), buffer.layout.places() * 4

    def scratch(self, layout: Layout, channels: int) -> Buffer:
        """Memory for reals that no name has."""
        made = Buffer(aligned(layout.size, np.float32), layout, channels, False)
        self._count(made.data)
        return made


def _owner(array: NDArray) -> Any:
    return array if array.base is None else array.base
