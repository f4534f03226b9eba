"""Convolutions on the host, compiled by Numba for the processor it is on: bits, and float32.

    source   -> windows by table -> tiles of pixels x 32 channels -> finish -> float32 and / or bits
    (zeros      origins, taps       tiles.py                         scale, shift, residual, sign
    around it)

Channels of results are padded to a multiple of 32, so that no register is ever partly valid. Every
kernel of a network ends with `finish` and takes a tuple `tail` for it:

    residual   float32 [pixels, channels], what is added; or empty
    real       float32 [pixels, channels], the result; or empty
    bits       uint16 [...], the result's signs; or empty
    bits_from  int64 [pixels], where a pixel's begin
    cut        float32 [channels]: a bit is 1 where the result is at least this
"""

from __future__ import annotations

from numba import njit, prange

from tilewright.backends.host.kernels import lanes
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.spread import spread
from tilewright.backends.host.kernels.tiles import (
    BIT_PIXELS,
    CHANNELS,
    REAL_PIXELS,
    count_tile,
    sum_tile,
)

# Pixels of one task at most: their source and results stay in the cache between channel blocks.
CHUNK = 256


@helper
def chunks_of(pixels, tile):
    """Parts of equal size, in whole tiles: how many, and the pixels of each."""
    parts = max(1, -(-pixels // CHUNK))
    size = -(-pixels // (parts * tile)) * tile
    return -(-pixels // size) if pixels else 0, size


@helper
def address(array):
    """Where an array begins; 0 for an empty one."""
    return array.ctypes.data if array.size else 0


@helper
def addresses(tail):
    """Where the arrays of a tail begin, and the channels."""
    residual, real, bits, bits_from, cut = tail
    return (
        address(residual), address(real), address(bits), address(bits_from), address(cut), cut.size
    )  # fmt: skip


@njit(cache=True)
def finish(value, pixel, channel, ends):
    """What becomes of sixteen channels of a pixel; `ends` are the `addresses` of a tail."""
    residual, real, bits, bits_from, cut, channels = ends
    at = pixel * channels + channel
    if residual:
        value = lanes.add(value, lanes.load(residual, at))
    if real:
        lanes.store(real, at, value)
    if bits:
        to = lanes.whole(bits_from, pixel) + channel // lanes.WIDTH
        lanes.store_signs(bits, to, value, lanes.load(cut, channel))


@spread
def conv_bits(source, origins, classes, taps, weights, start, scale, shift, tail):
    """Convolve bits.

    source   uint64 [...], zero words around each image
    origins  int64 [pixels]: where each result's window begins in `source`
    classes  int64 [pixels]: which row of `start`
    taps     int64 [words of a window]: where they lie from the window's beginning
    weights  uint64 [channels / 32, taps, 32]
    start    int32 [classes, channels]: the dot product is start - 2 * differing bits
    scale    float32 [channels]; shift likewise
    """
    blocks = weights.shape[0]
    chunks, size = chunks_of(origins.size, BIT_PIXELS)
    arrays = (
        address(source), address(origins), address(classes), address(taps), taps.size,
        address(weights), address(start), address(scale), address(shift),
    )  # fmt: skip
    ends = addresses(tail)
    for task in prange(chunks * blocks):
        first = task // blocks * size
        last = min(first + size, origins.size)
        _bit_task(first, last, task % blocks * CHANNELS, arrays, ends)


@helper
def _bit_task(first, last, channel, arrays, ends):
    """A block of channels of a chunk of pixels."""
    source, origins, classes, taps, count, weights, start, scale, shift = arrays
    channels = ends[5]
    out = lanes.scratch()
    block = weights + 8 * channel * count
    for pixel in range(first, last, BIT_PIXELS):
        count_tile(source, origins, pixel, last, taps, count, block, out)
        for i in range(min(BIT_PIXELS, last - pixel)):
            row = lanes.whole(classes, pixel + i) * channels
            for half in range(0, CHANNELS, lanes.WIDTH):
                c = channel + half
                value = lanes.from_counts(start, row + c, out, i * CHANNELS + half)
                value = lanes.multiply(value, lanes.load(scale, c))
                value = lanes.add(value, lanes.load(shift, c))
                finish(value, pixel + i, c, ends)


@spread
def conv_real(source, origins, taps, weights, scale, shift, tail):
    """Convolve float32: arguments as in `conv_bits`, weights float32 [channels / 32, taps, 32]."""
    blocks = weights.shape[0]
    chunks, size = chunks_of(origins.size, REAL_PIXELS)
    arrays = (
        address(source), address(origins), address(taps), taps.size, address(weights),
        address(scale), address(shift),
    )  # fmt: skip
    ends = addresses(tail)
    for task in prange(chunks * blocks):
        first = task // blocks * size
        last = min(first + size, origins.size)
        _real_task(first, last, task % blocks * CHANNELS, arrays, ends)


@helper
def _real_task(first, last, channel, arrays, ends):
    """A block of channels of a chunk of pixels."""
    source, origins, taps, count, weights, scale, shift = arrays
    out = lanes.scratch()
    block = weights + 4 * channel * count
    for pixel in range(first, last, REAL_PIXELS):
        sum_tile(source, origins, pixel, last, taps, count, block, out)
        for i in range(min(REAL_PIXELS, last - pixel)):
            for half in range(0, CHANNELS, lanes.WIDTH):
                c = channel + half
                value = lanes.multiply(lanes.load(out, i * CHANNELS + half), lanes.load(scale, c))
                value = lanes.add(value, lanes.load(shift, c))
                finish(value, pixel + i, c, ends)
