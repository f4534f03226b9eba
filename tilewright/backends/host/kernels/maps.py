"""Kernels between convolutions, on the host: pooling, scaling, adding, signs; one pass each.

Float maps are [pixels, channels] with channels padded to a multiple of 32. Each kernel ends with
`finish` of conv.py, so that a residual and a sign cost no pass of their own.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from tilewright.backends.host.kernels import lanes
from tilewright.backends.host.kernels.conv import address, addresses, finish
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.spread import spread


@spread
def pool_real(source, images, down, across, row, maximum, divide, tail):
    """The largest element or the mean of each window.

    source   float32 [images, height, width, channels]; `row` pixels a row
    images   int64 [images]: each one's first pixel
    down     int64 [out_height, 2]: the rows of each window, from and to; across likewise
    divide   what a mean divides by; 0 for the elements of the window that lie in the image
    """
    height, width = down.shape[0], across.shape[0]
    begin, ends = address(source), addresses(tail)
    for task in prange(images.size * height):
        first = images[task // height]
        top, bottom = down[task % height]
        for x in range(width):
            left, right = across[x]
            count = divide if divide else (bottom - top) * (right - left)
            inverse = lanes.splat(np.float32(1.0 / count))
            for c in range(0, ends[5], lanes.WIDTH):
                value = _window(begin, first, row, (top, bottom, left, right), maximum, c, ends[5])
                if not maximum:
                    value = lanes.multiply(value, inverse)
                finish(value, task * width + x, c, ends)


@helper
def _window(source, first, row, edges, maximum, channel, channels):
    """The largest or the sum of sixteen channels of a window that is not empty."""
    top, bottom, left, right = edges
    value = lanes.splat(np.float32(-np.inf if maximum else 0.0))
    for y in range(top, bottom):
        for x in range(left, right):
            other = lanes.load(source, (first + y * row + x) * channels + channel)
            value = lanes.larger(value, other) if maximum else lanes.add(value, other)
    return value


@spread
def map_real(source, scale, shift, low, high, tail):
    """min(max(source * scale + shift, low), high) of float32 [pixels, channels]."""
    channels = scale.size
    begin, factors, terms, ends = address(source), address(scale), address(shift), addresses(tail)
    floor, ceiling = lanes.splat(low), lanes.splat(high)
    for pixel in prange(source.size // channels):
        for c in range(0, channels, lanes.WIDTH):
            value = lanes.multiply(lanes.load(begin, pixel * channels + c), lanes.load(factors, c))
            value = lanes.add(value, lanes.load(terms, c))
            value = lanes.at_most(lanes.at_least(value, floor), ceiling)
            finish(value, pixel, c, ends)


@spread
def pool_bits(source, images, down, across, row, words, out, out_from):
    """OR of each window of bits, `words` a pixel: arguments as in `pool_real`, in words.

    images and out_from count words; out_from int64 [pixels of the result].
    """
    height, width = down.shape[0], across.shape[0]
    for task in prange(images.size * height):
        first = images[task // height]
        top, bottom = down[task % height]
        for x in range(width):
            left, right = across[x]
            to = out_from[task * width + x]
            for word in range(words):
                value = np.uint64(0)
                for v in range(top, bottom):
                    for u in range(left, right):
                        value |= source[first + v * row + u * words + word]
                out[to + word] = value
