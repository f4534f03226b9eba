"""Passes as calls of the host's compiled kernels: buffers, tables and weights bound beforehand.

Pass -> sources (made reals, padded, regrouped where need be) -> buffers -> kernel -> Step
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.backends.host import compiled
from tilewright.nn.buffers import Buffer, Pool, aligned, bit_buffer, lanes, words
from tilewright.nn.layers import (
    Add,
    Affine,
    AveragePool,
    BitConv,
    Clamp,
    Flatten,
    Layer,
    MaxPool,
    RealConv,
    Sign,
    Value,
)
from tilewright.nn.passes import Pass, plan_passes
from tilewright.nn.steps import Step
from tilewright.nn.weights import blocks, epilogue, real_blocks, starts, widened
from tilewright.nn.window import Layout, Window, tables

NDArray = npt.NDArray[Any]
Tail = tuple[NDArray, NDArray, NDArray, NDArray, NDArray]
_NO_FLOATS = np.empty(0, np.float32)
_NO_BITS = np.empty(0, np.uint16)
_NOWHERE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """Steps ready to run, the values by name, and bytes of buffers, tables and weights."""

    steps: tuple[Step, ...]
    buffers: dict[str, Buffer]
    bytes: int


def build(
    layers: Sequence[Layer],
    values: Mapping[str, Value],
    output: str,
    images: int,
    *,
    keep: bool = False,
) -> Built:
    """Steps, where the input goes and each stored value lies, and the bytes of all of it."""
    passes = plan_passes(layers, values, output)
    builder = _Builder(layers, values, images, passes, {output} | (set(values) if keep else set()))
    for position, item in enumerate(passes):
        builder.add(position, item)
    return Built(tuple(builder.steps), builder.buffers, sum(builder.memory.values()))


class _Builder:
    """Binds one pass after another; holds what is where while it does."""

    def __init__(
        self,
        layers: Sequence[Layer],
        values: Mapping[str, Value],
        images: int,
        passes: Sequence[Pass],
        kept: set[str],
    ) -> None:
        self.values, self.images, self.kept = values, images, kept
        self.steps: list[Step] = []
        self.memory: dict[int, int] = {}  # bytes of every array that steps hold, by its identity
        self.covers: tuple[str, ...] = ()  # of the pass that is being bound
        self.pool = Pool()
        self.last = {name: at for at, item in enumerate(passes) for name in item.reads}
        self.borders = _borders(layers)
        self.buffers = {"input": self._input(values["input"])}

    def _input(self, value: Value) -> Buffer:
        """Reals as they are passed, channel after channel; bits with their border."""
        if value.kind == "bits":
            return bit_buffer(value, self.images, self.borders.get("input", 0))
        layout = Layout(self.images, value.height, value.width, value.channels)
        return Buffer(aligned(layout.size, np.float32), layout, value.channels, False)

    def add(self, position: int, item: Pass) -> None:
        """One pass, and the return of buffers that it was the last to read."""
        self.covers = item.covers
        layer = item.layer
        if isinstance(layer, BitConv | RealConv):
            self._conv(position, item, layer)
        elif isinstance(layer, MaxPool) and self.values[layer.name].kind == "bits":
            self._pool_bits(layer)
        elif isinstance(layer, MaxPool | AveragePool):
            self._pool_real(position, item, layer)
        elif isinstance(layer, Flatten):
            self._flatten(layer)
        else:
            self._map(position, item, layer)
        self._release(position, item.reads)

    def _step(self, kind: str, kernel: Callable[..., object], *arguments: Any) -> None:
        self._count(*arguments, *(buffer.data for buffer in self.buffers.values()))
        self.steps.append(Step(self.covers, kind, lambda: kernel(*arguments)))

    def _count(self, *held: Any) -> None:
        """Add what a step holds to the memory; views of one array count once."""
        for item in held:
            if isinstance(item, tuple):
                self._count(*item)
            elif isinstance(item, np.ndarray):
                owner = item if item.base is None else item.base
                self.memory[id(owner)] = getattr(owner, "nbytes", item.nbytes)

    # What a pass reads

    def _reals(self, name: str) -> Buffer:
        """A value as floats in whole registers."""
        buffer = self.buffers[name]
        width = lanes(buffer.channels)
        if not buffer.is_bits and buffer.layout.pitch == width:
            return buffer
        at = buffer.layout
        layout = Layout(self.images, at.height, at.width, width)
        made = Buffer(aligned(layout.size, np.float32), layout, buffer.channels, False)
        self._step("to float32", lambda: np.copyto(made.values(), buffer.values()))
        return made

    def _padded(self, name: str, window: Window) -> Buffer:
        """A value as floats with zeros around each image, as the window needs them."""
        buffer = self.buffers[name]
        border = max(window.pads)
        if not buffer.is_bits and not border:
            return buffer
        at = buffer.layout
        layout = Layout(self.images, at.height, at.width, buffer.channels, border)
        made = Buffer(aligned(layout.size, np.float32, clear=True), layout, buffer.channels, False)
        inside = made.images()
        self._step("pad", lambda: np.copyto(inside, buffer.values()))
        return made

    def _regrouped(self, name: str, groups: int) -> Buffer:
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

        self._step("regroup", regroup)
        return made

    # What a pass writes

    def _tail(self, position: int, item: Pass, extra: str | None = None) -> Tail:
        """Buffers for the end of a pass; `extra` is a residual of the layer's own."""
        residual = item.residual or extra
        added = _NO_FLOATS if residual is None else self._reals(residual).data
        if residual is not None:
            # Each element of it is read before the same one is written: its memory may be reused.
            self._release(position, (residual,), unless=item.layer.inputs[:1])
        shape = self.values[item.layer.name]
        # Absent channels hold whatever memory held, infinity too: only NaN is reached by nothing.
        cut = np.full(lanes(shape.channels), np.nan, np.float32)
        real, bits, where = _NO_FLOATS, _NO_BITS, _NOWHERE
        if item.real is not None:
            real = self._new_real(item.real).data
        if item.sign is not None:
            given = item.sign.cut
            cut[: shape.channels] = 0 if given is None else given
            bits, where = self._new_bits(item.sign.name)
        return added, real, bits, where, cut

    def _new_real(self, name: str) -> Buffer:
        buffer = self.pool.take(self.values[name], self.images)
        self.buffers[name] = buffer
        return buffer

    def _new_bits(self, name: str) -> tuple[NDArray, NDArray]:
        """Half words of a new buffer, and where each pixel's begin."""
        buffer = bit_buffer(self.values[name], self.images, self.borders.get(name, 0))
        self.buffers[name] = buffer
        return buffer.data.view(np.uint16), buffer.layout.places() * 4

    def _release(self, position: int, names: Sequence[str], unless: Sequence[str] = ()) -> None:
        for name in set(names) - set(unless) - self.kept - {"input"}:
            buffer = self.buffers.get(name)
            if buffer is not None and not buffer.is_bits and self.last[name] == position:
                self.pool.give(self.buffers.pop(name))

    # Passes

    def _conv(self, position: int, item: Pass, layer: BitConv | RealConv) -> None:
        if layer.groups > 1:
            self._grouped(layer)
        elif isinstance(layer, BitConv) and layer.threshold is not None:
            scale, shift, cut = epilogue(layer, slice(None))
            tail = (_NO_FLOATS, _NO_FLOATS, *self._new_bits(layer.name), cut)
            self._part(layer, 0, self.buffers[layer.inputs[0]], scale, shift, tail)
        else:
            source = self._source(layer)
            scale, shift, _ = epilogue(layer, slice(None))
            self._part(layer, 0, source, scale, shift, self._tail(position, item))

    def _source(self, layer: BitConv | RealConv) -> Buffer:
        if isinstance(layer, BitConv):
            return self._regrouped(layer.inputs[0], layer.groups)
        return self._padded(layer.inputs[0], layer.window)

    def _part(
        self,
        layer: BitConv | RealConv,
        group: int,
        source: Buffer,
        scale: NDArray,
        shift: NDArray,
        tail: Tail,
    ) -> None:
        """One group of a convolution."""
        kernels = compiled.kernels("conv")
        each = layer.outputs // layer.groups
        rows = slice(group * each, (group + 1) * each)
        if isinstance(layer, RealConv):
            depth = layer.weights.shape[3]
            found = tables(layer.window, source.layout, group * depth + np.arange(depth))
            packed = real_blocks(layer.weights[rows])
            self._step(
                "real convolution", kernels.conv_real, source.data, found.origins, found.taps,
                packed, scale, shift, tail,
            )  # fmt: skip
            return
        depth = layer.weights.words.shape[3]
        found = tables(layer.window, source.layout, group * depth + np.arange(depth))
        start, classes = starts(layer, rows, found.inside, found.classes)
        packed = blocks(layer.weights.words[rows])
        self._step(
            "bit convolution", kernels.conv_bits, source.data, found.origins, classes, found.taps,
            packed, start, scale, shift, tail,
        )  # fmt: skip

    def _grouped(self, layer: BitConv | RealConv) -> None:
        """Group by group into buffers of their own, then side by side."""
        each = layer.outputs // layer.groups
        source = self._source(layer)
        shape = self.values[layer.name]
        one = Value("real", shape.height, shape.width, each)
        parts = [self.pool.take(one, self.images) for _ in range(layer.groups)]
        for group, part in enumerate(parts):
            rows = slice(group * each, (group + 1) * each)
            scale, shift, cut = epilogue(layer, rows)
            tail = (_NO_FLOATS, part.data, _NO_BITS, _NOWHERE, cut)
            self._part(layer, group, source, scale, shift, tail)
        if isinstance(layer, BitConv) and layer.threshold is not None:
            self._new_bits(layer.name)
            bits, cuts = self.buffers[layer.name], layer.threshold.astype(np.float64)
            self._step("join", lambda: bits.put(_joined(parts) >= cuts))
        else:
            real = self._new_real(layer.name).values()
            self._step("join", lambda: np.copyto(real, _joined(parts)))
        for part in parts:
            self.pool.give(part)

    def _pool_real(self, position: int, item: Pass, layer: MaxPool | AveragePool) -> None:
        source = self._reals(layer.inputs[0])
        at = source.layout
        window = layer.window or Window((at.height, at.width))
        edges = _edges(window, at)
        first = np.arange(self.images, dtype=np.int64) * at.height * at.width
        counted = isinstance(layer, AveragePool) and layer.count_padding
        divide = math.prod(window.kernel) if counted else 0
        tail = self._tail(position, item)
        self._step(
            "pool", compiled.kernels("maps").pool_real, source.data, first, *edges, at.width,
            isinstance(layer, MaxPool), divide, tail,
        )  # fmt: skip

    def _pool_bits(self, layer: MaxPool) -> None:
        source = self.buffers[layer.inputs[0]]
        at = source.layout
        edges = _edges(layer.window, at)
        first = at.places().reshape(self.images, -1)[:, 0].copy()
        self._new_bits(layer.name)
        out = self.buffers[layer.name]
        self._step(
            "pool of bits", compiled.kernels("maps").pool_bits, source.data, first, *edges, at.row,
            at.pitch, out.data, out.layout.places(),
        )  # fmt: skip

    def _map(self, position: int, item: Pass, layer: Layer) -> None:
        source = self._reals(layer.inputs[0])
        width = source.layout.pitch
        scale, shift = np.ones(width, np.float32), np.full(width, -0.0, np.float32)
        low, high = np.float32(-np.inf), np.float32(np.inf)
        if isinstance(layer, Affine):
            scale, shift = widened(layer.scale, 0), widened(layer.shift, 0)
        if isinstance(layer, Clamp):
            low, high = np.float32(layer.low), np.float32(layer.high)
        if isinstance(layer, Sign):
            item = Pass(layer, None, None, layer, item.covers)
        tail = self._tail(position, item, layer.inputs[1] if isinstance(layer, Add) else None)
        self._step(
            "map", compiled.kernels("maps").map_real, source.data, scale, shift, low, high, tail
        )

    def _flatten(self, layer: Flatten) -> None:
        source = self.buffers[layer.inputs[0]]
        if source.is_bits:
            self._new_bits(layer.name)
            bits = self.buffers[layer.name]
            self._step("flatten", lambda: bits.put(source.values().reshape(self.images, 1, 1, -1)))
            return
        flat = self._new_real(layer.name).values()
        self._step(
            "flatten", lambda: np.copyto(flat, source.values().reshape(self.images, 1, 1, -1))
        )


def _borders(layers: Sequence[Layer]) -> dict[str, int]:
    """The border that each value of bits needs: the widest of its readers' pads."""
    borders: dict[str, int] = {}
    for layer in layers:
        if isinstance(layer, BitConv):
            name = layer.inputs[0]
            borders[name] = max(borders.get(name, 0), *layer.window.pads)
    return borders


def _edges(window: Window, layout: Layout) -> tuple[NDArray, NDArray]:
    """From and to, of each window's rows and of its columns, inside the image."""
    lengths = (layout.height, layout.width)
    edges = []
    for axis, size in enumerate(window.output(*lengths)):
        start = window.starts(axis, size)
        ends = np.minimum(start + window.kernel[axis], lengths[axis])
        edges.append(np.ascontiguousarray(np.stack([np.maximum(start, 0), ends], axis=1)))
    return edges[0], edges[1]


def _joined(parts: Sequence[Buffer]) -> NDArray:
    return np.concatenate([part.values() for part in parts], axis=-1)
