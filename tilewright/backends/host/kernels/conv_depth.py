"""Depthwise convolutions of float32: every channel by itself, sixteen of them in the lanes.

    for sixteen channels:   four pixels side by side, a sum each;   every tap adds
                            sum += sixteen channels of the pixel under the tap  x  its weights

Pictures are channels last and read where they lie: pixels whose window passes an edge go one by one
with the taps that are inside, so that no zeros are multiplied and nothing is copied.
"""

from __future__ import annotations

from tilewright.backends.host.kernels.activate import activate_pixels
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import (
    WIDTH,
    add,
    at_least,
    at_most,
    fused,
    load,
    load_some,
    splat,
    store,
    store_some,
)
from tilewright.backends.host.kernels.step import step_at

_SIDE = 4  # pixels of a tile


def depth_task(address, task, scratch):
    """A band of rows of an image."""
    step = step_at(address)
    image, band = task // step.bands, task % step.bands
    first = band * step.band
    for y in range(first, min(first + step.band, step.rows)):
        _row(step, image, y)


@helper
def _range(at, size, taps, dilation):
    """The taps that lie inside, where the first would lie at `at`."""
    first = 0 if at >= 0 else -(at // dilation)
    last = min(taps, (size - 1 - at) // dilation + 1)
    return min(first, last) if last > 0 else 0, max(last, 0)


@helper
def _row(step, image, y):
    """A row of the result."""
    top = y * step.y_stride - step.top
    down = _range(top, step.height, step.taps_down, step.dilation_down)
    source = step.x + image * step.x_image + top * step.x_row
    out = step.out + image * step.out_image + y * step.out_row
    three = step.taps_across == 3 and step.dilation_across == 1 and step.x_stride <= 2
    columns, stride, pixel, out_pixel = step.columns, step.x_stride, step.x_pixel, step.out_pixel
    right = (_SIDE - 1) * stride + step.reach
    x = 0
    while x < columns:
        left = x * stride - step.left
        at, to = source + left * pixel, out + x * out_pixel
        if left >= 0 and left + right <= step.width and x + _SIDE <= columns:
            begin = _threes(step, at, down, to, stride == 2) if three else 0
            _tile(step, at, down, to, begin)
            x += _SIDE
        else:
            across = _range(left, step.width, step.taps_across, step.dilation_across)
            _pixel(step, at, down, across, to)
            x += 1
    if step.curved:
        activate_pixels(step, 0, step.outputs, out, step.columns, step.out_pixel)


@helper
def _threes(step, source, down, out, wide):
    """Four pixels, three taps across, whole vectors of channels; where those end.

    A pixel is loaded once for all windows that it is in.
    """
    pixel, line, out_pixel = step.x_pixel, step.dilation_down * step.x_row, step.out_pixel
    taps, count = 3 * WIDTH, step.taps_down * 3
    weights, bias, first, last = step.weights, step.bias, down[0], down[1]
    end = step.outputs // WIDTH * WIDTH
    for c in range(0, end, WIDTH):
        a = b = d = e = load(bias, c)
        at = weights + 4 * (c * count + first * taps)
        x = source + first * line + 4 * c
        for _ in range(first, last):
            u, v, w = load(at, 0), load(at, WIDTH), load(at, 2 * WIDTH)
            p, q, r = load(x, 0), load(x + pixel, 0), load(x + 2 * pixel, 0)
            s, t, i = load(x + 3 * pixel, 0), load(x + 4 * pixel, 0), load(x + 5 * pixel, 0)
            a = fused(r, w, fused(q, v, fused(p, u, a)))
            if wide:
                j, k, m = load(x + 6 * pixel, 0), load(x + 7 * pixel, 0), load(x + 8 * pixel, 0)
                b = fused(t, w, fused(s, v, fused(r, u, b)))
                d = fused(j, w, fused(i, v, fused(t, u, d)))
                e = fused(m, w, fused(k, v, fused(j, u, e)))
            else:
                b = fused(s, w, fused(r, v, fused(q, u, b)))
                d = fused(t, w, fused(s, v, fused(r, u, d)))
                e = fused(i, w, fused(t, v, fused(s, u, e)))
            at += 4 * taps
            x += line
        to = out + 4 * c
        _finish(step, a, WIDTH, to)
        _finish(step, b, WIDTH, to + out_pixel)
        _finish(step, d, WIDTH, to + 2 * out_pixel)
        _finish(step, e, WIDTH, to + 3 * out_pixel)
    return end


@helper
def _tile(step, source, down, out, begin):
    """Four pixels whose windows lie inside between the picture's sides, from channel `begin` on."""
    hop = step.x_stride * step.x_pixel
    tap = step.dilation_across * step.x_pixel
    for c in range(begin, step.outputs, WIDTH):
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
        _finish(step, a, some, to)
        _finish(step, b, some, to + step.out_pixel)
        _finish(step, d, some, to + 2 * step.out_pixel)
        _finish(step, e, some, to + 3 * step.out_pixel)


@helper
def _pixel(step, source, down, across, out):
    """One pixel and the taps that are inside."""
    tap, line = step.dilation_across * step.x_pixel, step.dilation_down * step.x_row
    row, count = step.taps_across, step.taps_down * step.taps_across
    weights, bias, outputs = step.weights, step.bias, step.outputs
    for c in range(0, outputs, WIDTH):
        some = outputs - c
        value = load(bias, c)
        at = weights + 4 * c * count
        for v in range(down[0], down[1]):
            x = source + v * line + 4 * c
            if some >= WIDTH:
                for u in range(across[0], across[1]):
                    value = fused(load(x + u * tap, 0), load(at, (v * row + u) * WIDTH), value)
            else:
                for u in range(across[0], across[1]):
                    w = load(at, (v * row + u) * WIDTH)
                    value = fused(load_some(x + u * tap, 0, some), w, value)
        _finish(step, value, some, out + 4 * c)


@helper
def _finish(step, value, some, out):
    """Residual, bounds, store."""
    if step.residual:
        value = add(value, load_some(out + step.residual, 0, some))
    value = at_most(at_least(value, splat(step.least)), splat(step.most))
    if some >= WIDTH:
        store(out, 0, value)
    else:
        store_some(out, 0, value, some)
