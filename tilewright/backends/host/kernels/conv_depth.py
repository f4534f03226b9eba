"""Depthwise convolutions of float32: every channel by itself, sixteen of them in the lanes.

    for sixteen channels:   four pixels side by side, a sum each;   every tap adds
                            sum += sixteen channels of the pixel under the tap  x  its weights

Pictures are channels last and read where they lie: pixels whose window passes an edge go one by one
with the taps that are inside, so that no zeros are multiplied and nothing is copied.
"""

from __future__ import annotations

from numba import njit

from tilewright.backends.host.kernels.activate import activate
from tilewright.backends.host.kernels.lanes import (
    WIDTH,
    add,
    fused,
    load,
    load_some,
    splat,
    store_some,
)

_SIDE = 4  # pixels of a tile


@njit(cache=True)
def depth_task(step, task):
    """A band of rows of an image."""
    image, band = task // step.bands, task % step.bands
    first = band * step.band
    for y in range(first, min(first + step.band, step.rows)):
        _row(step, image, y)


@njit(cache=True)
def _range(at, size, taps, dilation):
    """The taps that lie inside, where the first would lie at `at`."""
    first = 0 if at >= 0 else -(at // dilation)
    last = min(taps, (size - 1 - at) // dilation + 1)
    return min(first, last) if last > 0 else 0, max(last, 0)


@njit(cache=True)
def _row(step, image, y):
    """A row of the result."""
    top = y * step.y_stride - step.top
    down = _range(top, step.height, step.taps_down, step.dilation_down)
    source = step.x + image * step.x_image + top * step.x_row
    out = step.out + image * step.out_image + y * step.out_row
    x = 0
    while x < step.columns:
        left = x * step.x_stride - step.left
        across = _range(left, step.width, step.taps_across, step.dilation_across)
        at, to = source + left * step.x_pixel, out + x * step.out_pixel
        right = left + (_SIDE - 1) * step.x_stride + step.reach
        if left >= 0 and right <= step.width and x + _SIDE <= step.columns:
            _tile(step, at, down, to)
            x += _SIDE
        else:
            _pixel(step, at, down, across, to)
            x += 1


@njit(cache=True)
def _tile(step, source, down, out):
    """Four pixels whose windows lie inside between the picture's sides."""
    hop = step.x_stride * step.x_pixel
    tap = step.dilation_across * step.x_pixel
    for c in range(0, step.outputs, WIDTH):
        some = step.outputs - c
        a = b = d = e = load(step.bias, c)
        at = step.weights + 4 * c * step.taps_down * step.taps_across
        for v in range(down[0], down[1]):
            line = source + v * step.dilation_down * step.x_row + 4 * c
            for u in range(step.taps_across):
                w = load(at, (v * step.taps_across + u) * WIDTH)
                x = line + u * tap
                if some >= WIDTH:
                    a = fused(load(x, 0), w, a)
                    b = fused(load(x + hop, 0), w, b)
                    d = fused(load(x + 2 * hop, 0), w, d)
                    e = fused(load(x + 3 * hop, 0), w, e)
                else:
                    a = fused(load_some(x, 0, some), w, a)
                    b = fused(load_some(x + hop, 0, some), w, b)
                    d = fused(load_some(x + 2 * hop, 0, some), w, d)
                    e = fused(load_some(x + 3 * hop, 0, some), w, e)
        to = out + 4 * c
        _finish(step, a, c, some, to)
        _finish(step, b, c, some, to + step.out_pixel)
        _finish(step, d, c, some, to + 2 * step.out_pixel)
        _finish(step, e, c, some, to + 3 * step.out_pixel)


@njit(cache=True)
def _pixel(step, source, down, across, out):
    """One pixel and the taps that are inside."""
    tap = step.dilation_across * step.x_pixel
    for c in range(0, step.outputs, WIDTH):
        some = step.outputs - c
        value = load(step.bias, c)
        at = step.weights + 4 * c * step.taps_down * step.taps_across
        for v in range(down[0], down[1]):
            line = source + v * step.dilation_down * step.x_row + 4 * c
            for u in range(across[0], across[1]):
                w = load(at, (v * step.taps_across + u) * WIDTH)
                value = fused(load_some(line + u * tap, 0, some), w, value)
        _finish(step, value, c, some, out + 4 * c)


@njit(cache=True)
def _finish(step, value, channel, some, out):
    """Residual, activation, store."""
    if step.residual:
        value = add(value, load_some(out + step.residual, 0, some))
    slopes = splat(step.low)
    if step.slopes:
        slopes = load(step.slopes, channel)
    value = activate(step.curved, value, splat(step.low), splat(step.high), slopes)
    store_some(out, 0, value, some)
