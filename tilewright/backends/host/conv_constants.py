"""Lays out for the kernels what does not change: weights, biases, slopes, pieces of a window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.engines.conv import Conv

_CHAIN = 384  # products summed in a row; then the sum goes to a total, to round less


def pieces(layer: Conv, line: int, pixel: int) -> NDArray:
    """int64 [count, 4]: each contiguous piece of a window, as `conv_tile` wants them.

    line, pixel   bytes of a row and a pixel of the picture as it is read
    """
    down, across = layer.kernel
    channels = layer.weights.shape[1]
    together = layer.groups == 1 and layer.dilations[1] == 1 and pixel == 4 * channels
    if together:
        starts = [(v * layer.dilations[0] * line, v * across * channels) for v in range(down)]
        return _cut(starts, across * channels)
    return pieces_of_taps(layer, line, pixel, range(down), range(across))


def pieces_of_taps(
    layer: Conv, line: int, pixel: int, down: Iterable[int], across: Sequence[int]
) -> NDArray:
    """The same of some taps, one by one; an empty piece where there is none."""
    channels = layer.weights.shape[1]
    starts = [
        (
            v * layer.dilations[0] * line + u * layer.dilations[1] * pixel,
            (v * layer.kernel[1] + u) * channels,
        )
        for v in down
        for u in across
    ]
    return _cut(starts, channels) if starts else np.zeros((1, 4), np.int64)


def _cut(starts: Sequence[tuple[int, int]], size: int) -> NDArray:
    """Pieces of `size` floats that begin so many bytes and weights on, cut into chains of sums."""
    return _with_totals(
        [
            (start + 4 * at, min(_CHAIN, size - at), first + at)
            for start, first in starts
            for at in range(0, size, _CHAIN)
        ]
    )


def _with_totals(cut: list[tuple[int, int, int]]) -> NDArray:
    """Where sums go to totals: after each `_CHAIN` floats, and at the end if they did before."""
    keep, begin, add = 0, 1, 2
    table = np.zeros((len(cut), 4), np.int64)
    chain, some = 0, False
    for index, (start, size, first) in enumerate(cut):
        chain += size
        last = index + 1 == len(cut)
        full = not last and chain + cut[index + 1][1] > _CHAIN
        after = keep
        if full or (last and some):
            after, some, chain = (add if some else begin), True, 0
        table[index] = start, size, first, after
    return table


def weights(layer: Conv, width: int, lanes: int) -> tuple[NDArray, int]:
    """Blocks of `width` channels, [floats of a window, width] each, and the bytes of a block.

    A block of which no more than `lanes` channels are left is [floats, lanes].
    """
    given = layer.weights
    each = layer.outputs // layer.groups
    blocks = -(-each // width)
    floats = int(np.prod(given.shape[1:]))
    packed = np.zeros((layer.groups, blocks, floats * width), np.float32)
    columns = np.moveaxis(given, 1, 3).reshape(layer.groups, each, floats)
    for block in range(blocks):
        part = columns[:, block * width : (block + 1) * width]
        count = part.shape[1]
        wide = lanes if count <= lanes else width
        place = packed[:, block, : floats * wide].reshape(layer.groups, floats, wide)
        place[:, :, :count] = part.transpose(0, 2, 1)
    return packed, 4 * floats * width


def row_by_row(layer: Conv) -> Conv:
    """The layer with outputs in the order in which a pixel shuffle lays them: rows of a block,
    pixels of a row, channels.
    """

    def turned(values: NDArray | None) -> NDArray | None:
        if values is None:
            return None
        r, rest = layer.shuffle, values.shape[1:]
        apart = np.moveaxis(values.reshape(-1, r, r, *rest), 0, 2)
        return np.ascontiguousarray(apart).reshape(values.shape)

    weights = turned(layer.weights)
    assert weights is not None
    activation = replace(layer.activation, slopes=turned(layer.activation.slopes))
    return replace(layer, weights=weights, bias=turned(layer.bias), activation=activation)


def depth_weights(layer: Conv, lanes: int) -> NDArray:
    """float32 [channels / lanes, taps, lanes]."""
    taps = int(np.prod(layer.kernel))
    blocks = -(-layer.outputs // lanes)
    packed = np.zeros((blocks * lanes, taps), np.float32)
    packed[: layer.outputs] = layer.weights.reshape(layer.outputs, taps)
    return np.ascontiguousarray(packed.reshape(blocks, lanes, taps).transpose(0, 2, 1))


def of_blocks(values: NDArray | None, layer: Conv, width: int) -> NDArray:
    """A number for each channel, zeros without any; every group padded to whole blocks."""
    each = layer.outputs // layer.groups
    packed = np.zeros((layer.groups, -(-each // width) * width), np.float32)
    if values is not None:
        packed[:, :each] = values.reshape(layer.groups, each)
    return packed


def of_channels(values: NDArray, lanes: int) -> NDArray:
    """A number for each channel, and room for whole vectors wherever one begins."""
    packed = np.zeros(len(values) + 2 * lanes, np.float32)
    packed[: len(values)] = values
    return packed
