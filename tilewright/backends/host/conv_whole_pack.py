"""Lays out for the int8 kernels what does not change: weights, starts of sums, how these end."""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host.conv_whole_plan import pieces_of
from tilewright.engines.conv import Conv, Whole

LANES = 16
ENDS = 4 * LANES + 32  # bytes of the ends of sixteen channels
_HALF = 128  # what signed bytes are moved by
_LIMIT = 2.0**30  # of numbers before they are bytes
_NEXT, _MOST_BESIDE = 1e-4, 100  # more than two roundings of a quotient up to 511; sums to try
_SMALL, _LARGE = 2.0**-60, 2.0**60  # of steps and scales, so that no remainder underflows


def zero_of(whole: Whole) -> int:
    """What stands for 0 among bytes that are all 0 and above."""
    return whole.zero + (_HALF if whole.source == "int8" else 0)


def shift_of(whole: Whole) -> int:
    """The same of the result."""
    return whole.shift + (_HALF if whole.dtype == "int8" else 0)


def weights(layer: Conv, vectors: int) -> NDArray:
    """int8 [group][block of `vectors` or fewer][pieces][quads][vectors][16][4]."""
    splits, size, quads = pieces_of(layer)
    each = layer.outputs // layer.groups
    lanes = -(-each // LANES) * LANES
    pieces = layer.kernel[0] * splits
    packed = np.zeros((layer.groups, lanes, pieces, 4 * quads), np.int8)
    by_taps = layer.weights.transpose(0, 2, 3, 1)  # outputs, rows, columns, inputs
    packed[:, :each, :, :size] = by_taps.reshape(layer.groups, each, pieces, size)
    blocks = []
    channel = 0
    while channel < each:
        count = vectors if each - channel > LANES else 1
        part = packed[:, channel : channel + LANES * count]
        part = part.reshape(layer.groups, count, LANES, pieces, quads, 4)
        blocks.append(part.transpose(0, 3, 4, 1, 2, 5).reshape(layer.groups, -1))
        channel += LANES * count
    return np.ascontiguousarray(np.concatenate(blocks, axis=1))


def few_weights(layer: Conv) -> NDArray:
    """int8 [rows][sixteens of bytes][4 outputs][16]."""
    _, size, quads = pieces_of(layer)
    wide = -(-quads // 4)
    packed = np.zeros((4, layer.kernel[0], 16 * wide), np.int8)
    by_taps = layer.weights.transpose(0, 2, 3, 1)
    packed[: layer.outputs, :, :size] = by_taps.reshape(layer.outputs, layer.kernel[0], size)
    parts = packed.reshape(4, layer.kernel[0], wide, 16).transpose(1, 2, 0, 3)
    return np.ascontiguousarray(parts)


def _woven() -> NDArray:
    """The channel of each lane of four vectors that `whole_depth` computes together."""
    lanes = np.arange(4 * LANES).reshape(4, 4, 4)  # quarter k, vector i, number d
    return lanes.transpose(1, 0, 2).reshape(-1)


def depth_parts(layer: Conv, *, signed: bool, flip: int) -> tuple[NDArray, NDArray, NDArray]:
    """Weights, starts and ends of channels by themselves, as `whole_depth` reads them."""
    whole, deep = layer.whole, 4 * LANES
    assert whole is not None
    rows, blocks = layer.kernel[0], -(-layer.outputs // deep)
    taps = np.zeros((blocks * deep, rows, 2, 4), np.int8)
    taps[: layer.outputs, :, 0, :3] = taps[: layer.outputs, :, 1, 1:] = layer.weights[:, 0]
    woven = taps.reshape(blocks, deep, rows, 2, 4)[:, _woven()]
    packed = np.ascontiguousarray(woven.transpose(0, 2, 3, 1, 4))
    begin, scale = np.zeros(blocks * deep, np.int32), np.zeros(blocks * deep, np.float32)
    begin[: layer.outputs] = starts(layer, signed=signed, few=False)[:, 0]
    scale[: layer.outputs] = whole.scale
    tail = np.broadcast_to(_end_numbers(whole, flip), (blocks, 8))
    ends_ = np.concatenate([scale.reshape(blocks, deep)[:, _woven()], tail], axis=1)
    return packed, np.ascontiguousarray(begin.reshape(blocks, deep)[:, _woven()]), ends_


def starts(layer: Conv, *, signed: bool, few: bool) -> NDArray:
    """int32: the bias less what the bytes' zero adds, for every lane."""
    whole = layer.whole
    assert whole is not None
    each = layer.outputs // layer.groups
    sums = layer.weights.astype(np.int64).reshape(layer.outputs, -1).sum(axis=1)
    values = (_HALF * signed - zero_of(whole)) * sums
    if layer.bias is not None:
        values = values + layer.bias.astype(np.int64)
    if few:
        lanes = np.zeros((4, 4), np.int64)
        lanes[: layer.outputs, 0] = values
        return lanes.reshape(-1).astype(np.int32)
    return _of_lanes(values.reshape(layer.groups, each)).astype(np.int32)


def scales(layer: Conv) -> NDArray:
    """float32 for every lane, as `starts`."""
    assert layer.whole is not None
    return _of_lanes(layer.whole.scale.reshape(layer.groups, -1)).astype(np.float32)


def _of_lanes(values: NDArray) -> NDArray:
    """[groups, whole vectors]."""
    groups, each = values.shape
    padded = np.zeros((groups, -(-each // LANES) * LANES), values.dtype)
    padded[:, :each] = values
    return padded


def ends(layer: Conv, vectors: int, *, flip: int) -> NDArray:
    """What `whole_ends.bytes_end` reads: bytes [groups][sixteens of channels][ENDS]."""
    whole = layer.whole
    assert whole is not None
    assert whole.step is not None
    scale = scales(layer)
    groups, lanes = scale.shape
    found = np.zeros((groups, lanes // LANES, ENDS), np.uint8)
    numbers = _end_numbers(whole, flip)
    each = layer.outputs // layer.groups
    channel = 0
    while channel < each:
        count = vectors if each - channel > LANES else 1
        some = scale[:, channel : channel + LANES * count]
        tail = np.broadcast_to(numbers, (groups, 8))
        block = np.concatenate([some, tail], axis=1).astype(np.float32).view(np.uint8)
        flat = found.reshape(groups, -1)
        begin = channel // LANES * ENDS
        flat[:, begin : begin + block.shape[1]] = block
        channel += LANES * count
    return found


def _end_numbers(whole: Whole, flip: int) -> NDArray:
    """What stands behind the scales of every block of channels."""
    assert whole.step is not None
    numbers = np.zeros(8, np.float32)
    numbers[:2] = np.float32(1) / np.float32(whole.step), whole.step
    low, high = limits(whole)
    plain = (shift_of(whole), low, high, flip) == (0, 0, 255, 0)
    numbers.view(np.int32)[2:7] = shift_of(whole), low, high, flip, plain
    return numbers


def few_ends(layer: Conv) -> NDArray:
    """What `whole_ends.few_end` reads."""
    whole = layer.whole
    assert whole is not None
    found = np.zeros(LANES + 2, np.float32)
    found[: 4 * layer.outputs] = np.repeat(whole.scale, 4)
    found[LANES:] = whole.low, whole.high
    return found


def limits(whole: Whole) -> tuple[int, int]:
    """Least and greatest byte: those of an activation's limits, as they would be rounded."""
    with np.errstate(over="ignore"):
        ratios = np.rint(np.array([whole.low, whole.high], np.float32) / np.float32(whole.step))
    low, high = np.clip(ratios + np.float32(shift_of(whole)), 0, 255).astype(int)
    return int(low), int(high)


def is_exact(layer: Conv) -> bool:
    """Whether multiplying as `bytes_end` does gives every byte that dividing gives.

    Both are within two roundings of the same number, which matters next to ties alone: the sums on
    either side of each are tried.
    """
    whole = layer.whole
    assert whole is not None
    assert whole.step is not None
    step, scale = np.float32(whole.step), whole.scale.astype(np.float32)
    most = sums_most(layer)
    if not _SMALL < step < _LARGE or (scale < _SMALL).any() or (scale > _LARGE).any():
        return False
    if (most * scale.astype(np.float64) / float(step)).max(initial=0) > _LIMIT:
        return False
    steps = scale.astype(np.float64) / float(step)
    beside = int(np.ceil(_NEXT / steps.min(initial=1)))  # sums that may lie next to a tie
    if beside > _MOST_BESIDE:
        return False
    ties = np.arange(256) - 0.5 - shift_of(whole)
    sums = np.rint(ties[None, :, None] / steps[:, None, None]) + np.arange(-beside, beside + 1.0)
    y = sums.astype(np.float32) * scale[:, None, None]
    return np.array_equal(np.rint(_multiplied(y, step)), np.rint(y / step))


def _multiplied(y: NDArray, step: np.float32) -> NDArray:
    """What the kernel computes for y / step; products of two float32 are exact in float64."""
    reciprocal = np.float32(1) / step
    near = y * reciprocal
    missed = (y.astype(np.float64) - near.astype(np.float64) * float(step)).astype(np.float32)
    quotient = missed.astype(np.float64) * float(reciprocal) + near.astype(np.float64)
    rounded: NDArray = quotient.astype(np.float32)
    return rounded


def sums_most(layer: Conv) -> NDArray:
    """The largest magnitude that each output's sum can take, its bias among it."""
    whole = layer.whole
    assert whole is not None
    furthest = max(zero_of(whole), 255 - zero_of(whole))
    most = np.abs(layer.weights.astype(np.int64)).reshape(layer.outputs, -1).sum(axis=1) * furthest
    if layer.bias is not None:
        most = most + np.abs(layer.bias.astype(np.int64))
    found: NDArray = most.astype(np.float64)
    return found
