"""What layers bind the host's kernels with: values in buffers, and steps that call kernels.

    a value -> made real, padded, regrouped where its reader needs that -> kernel -> a new buffer

Everything is allocated and converted here, once for a network and a batch size; a step is then a
call without arguments. Buffers of reals are handed out again after their last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.buffers import Buffer, Pool, aligned, bit_buffer, lanes, words
from tilewright.nn.steps import Step
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
    """The memory of a network under way, and the steps bound so far."""

    def __init__(
        self,
        values: Mapping[str, Value],
        images: int,
        borders: Mapping[str, int],
        last: Mapping[str, int],
        kept: set[str],
    ) -> None:
        """Begin with the input.

        borders  pixels of zeros that each value of bits needs, where any
        last     the last pass that reads each value
        kept     names of values whose memory is not handed out again
        """
        self.values, self.images = values, images
        self.steps: list[Step] = []
        self._borders, self._last, self._kept = borders, last, kept
        self._memory: dict[int, int] = {}  # bytes of every array that steps hold, by its identity
        self._position = 0  # of the pass that is being bound
        self._covers: tuple[str, ...] = ()
        self._pool = Pool()
        self.buffers = {"input": self._input(values["input"])}

    @property
    def bytes(self) -> int:
        """Of buffers, tables and weights."""
        return sum(self._memory.values())

    def _input(self, value: Value) -> Buffer:
        """Reals as they are passed, channel after channel; bits with their border."""
        if value.kind == "bits":
            return bit_buffer(value, self.images, self._borders.get("input", 0))
        layout = Layout(self.images, value.height, value.width, value.channels)
        return Buffer(aligned(layout.size, np.float32), layout, value.channels, False)

    def begin(self, position: int, covers: tuple[str, ...]) -> None:
        """Steps that follow are of this pass, which does these layers."""
        self._position, self._covers = position, covers

    def step(self, kind: str, kernel: Callable[..., object], *arguments: Any) -> None:
        """A call of a kernel, as it will be made at every run."""
        self._count(*arguments, *(buffer.data for buffer in self.buffers.values()))
        self.steps.append(Step(self._covers, kind, lambda: kernel(*arguments)))

    def _count(self, *held: Any) -> None:
        """Add what a step holds to the memory; views of one array count once."""
        for item in held:
            if isinstance(item, tuple):
                self._count(*item)
            elif isinstance(item, np.ndarray):
                owner = item if item.base is None else item.base
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
        made = Buffer(aligned(layout.size, np.float32), layout, buffer.channels, False)
        self.step("to float32", lambda: np.copyto(made.values(), buffer.values()))
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
        inside = made.images()
        self.step("pad", lambda: np.copyto(inside, buffer.values()))
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

        def regroup() -> None:
            signs = buffer.values()
            spread = np.full((*signs.shape[:3], groups, wide), np.int8(-1))
            spread[..., :depth] = signs.reshape(*signs.shape[:3], groups, depth)
            made.put(spread.reshape(*signs.shape[:3], -1))

        self.step("regroup", regroup)
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
        if residual is not None:
            # Each element of it is read before the same one is written: its memory may be reused.
            self.release((residual,), unless=inputs[:1])
        shape = self.values[name]
        # Absent channels hold whatever memory held, infinity too: only NaN is reached by nothing.
        cut = np.full(lanes(shape.channels), np.nan, np.float32)
        real, bits, where = NO_FLOATS, NO_BITS, NOWHERE
        if ending.real is not None:
            real = self.new_real(ending.real).data
        if ending.sign is not None:
            cut[: shape.channels] = 0 if ending.cut is None else ending.cut
            bits, where = self.new_bits(ending.sign)
        return addend, real, bits, where, cut

    def new_real(self, name: str) -> Buffer:
        """Memory for a value of reals."""
        buffer = self._pool.take(self.values[name], self.images)
        self.buffers[name] = buffer
        return buffer

    def new_bits(self, name: str) -> tuple[NDArray, NDArray]:
        """Half words of a new buffer, and where each pixel's begin."""
        buffer = bit_buffer(self.values[name], self.images, self._borders.get(name, 0))
        self.buffers[name] = buffer
        return buffer.data.view(np.uint16), buffer.layout.places() * 4

    def scratch(self, value: Value) -> Buffer:
        """Memory for reals that no name has; `give_back` hands it out again."""
        return self._pool.take(value, self.images)

    def give_back(self, buffer: Buffer) -> None:
        """Nothing that follows reads it."""
        self._pool.give(buffer)

    def release(self, names: Sequence[str], unless: Sequence[str] = ()) -> None:
        """Hand out again the memory of values that this pass is the last to read."""
        for name in set(names) - set(unless) - self._kept - {"input"}:
            buffer = self.buffers.get(name)
            if buffer is not None and not buffer.is_bits and self._last[name] == self._position:
                self._pool.give(self.buffers.pop(name))
