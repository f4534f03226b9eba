"""Softmax and normalisation, as steps of programs: sixteen numbers of a row, or sixteen channels.

    rows        [rows][columns]            each row by itself: what is largest, the mean, the sums
    channels    [images][pixels][channels] sixteen channels of an image, pixel after pixel

    softmax     the largest; exp(x - largest) and its sum; each over the sum
    normal      the mean; x - mean and the sum of its squares; times 1 / root, scale, plus bias

Rows are read three times, as the definitions do, out of the cache. Of channels blocks of pixels are
read twice while they lie there: their means and squares are joined as Chan, Golub and LeVeque have
it (1979), so that memory gives a picture twice, not three times. Sums are made of blocks, as one
chain of many additions would lose digits that NumPy keeps. NaN and infinities go the same way.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.backends.host.kernels.activate import divide, exp
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import (
    WIDTH,
    add,
    first_of,
    fused,
    larger,
    largest_of,
    load,
    load_above,
    load_some,
    multiply,
    number,
    root,
    splat,
    store,
    store_some,
    sum_of,
)
from tilewright.backends.host.kernels.step import step_at

SOFTMAX, OF_COLUMNS, OF_ROWS = range(3)  # what a row becomes; whose scale and bias are
_BLOCK = 64 * WIDTH  # numbers of a chain of additions
_PIXELS = 256  # the same of pixels


def rows_task(address, task, scratch):
    """Some rows."""
    step = step_at(address)
    for row in range(task * step.band, min(step.rows, (task + 1) * step.band)):
        x, out = step.x + 4 * row * step.columns, step.out + 4 * row * step.columns
        if step.tile == SOFTMAX:
            _softmax(x, out, step.columns)
        else:
            _normal(step, row, x, out, step.columns)


@helper
def _softmax(x, out, count):
    """One row."""
    minus = splat(-_largest(x, count))
    total = splat(0.0)
    for begin in range(0, count, _BLOCK):
        part = splat(0.0)
        for i in range(begin, min(begin + _BLOCK, count), WIDTH):
            raised = exp(add(_get(x, i, count - i), minus))
            _put(out, i, raised, count - i)
            part = add(part, _some(raised, count - i))
        total = add(total, part)
    whole = splat(sum_of(total))
    for i in range(0, count, WIDTH):
        _put(out, i, divide(_get(out, i, count - i), whole), count - i)


@helper
def _largest(x, count):
    """Of a row; NaN where one is."""
    if count < WIDTH:
        return largest_of(load_above(x, 0, count))
    found = load(x, 0)
    for i in range(WIDTH, count, WIDTH):
        found = larger(found, load(x, min(i, count - WIDTH)))
    return largest_of(found)


@helper
def _normal(step, row, x, out, count):
    """One row; scale and bias have a number for each column, or one for the row."""
    total = splat(0.0)
    for begin in range(0, count, _BLOCK):
        part = splat(0.0)
        for i in range(begin, min(begin + _BLOCK, count), WIDTH):
            part = add(part, _get(x, i, count - i))
        total = add(total, part)
    minus = splat(np.float32(-np.float64(sum_of(total)) / count))
    squares = left = splat(0.0)
    for begin in range(0, count, _BLOCK):
        part = splat(0.0)
        for i in range(begin, min(begin + _BLOCK, count), WIDTH):
            lower = _some(add(_get(x, i, count - i), minus), count - i)
            _put(out, i, lower, count - i)
            part, left = fused(lower, lower, part), add(left, lower)
        squares = add(squares, part)
    over = np.float64(sum_of(left)) / count  # what the mean lost when it was rounded
    variance = np.float64(sum_of(squares)) / count - over * over
    variance = 0.0 if variance < 0.0 else variance
    inverse = splat(np.float32(1.0 / math.sqrt(variance + step.low)))
    minus = splat(np.float32(-over))
    channel = row % max(1, step.outputs)
    of_row = step.tile == OF_ROWS
    scale = splat(number(step.weights, channel)) if of_row else inverse
    bias = splat(number(step.bias, channel)) if of_row else inverse
    for i in range(0, count, WIDTH):
        some = count - i
        value = multiply(add(_get(out, i, some), minus), inverse)
        s = scale if of_row else _get(step.weights, i, some)
        b = bias if of_row else _get(step.bias, i, some)
        _put(out, i, add(multiply(value, s), b), some)


def channels_task(address, task, scratch):
    """Sixteen channels of an image, or what is left of them."""
    step = step_at(address)
    image, c = task // step.parts, task % step.parts * WIDTH
    some, pixels, hop = step.outputs - c, step.count, step.x_pixel
    x, out = step.x + image * step.x_image + 4 * c, step.out + image * step.x_image + 4 * c
    first = multiply(_get(x, 0, some), splat(-1.0))  # numbers far from 0 lose nothing beside it
    mean = squares = splat(0.0)
    for begin in range(0, pixels, _PIXELS):
        count = min(_PIXELS, pixels - begin)
        own, beside = _block(x + begin * hop, count, hop, some, first)
        share = splat(np.float32(count / (begin + count)))
        apart = add(own, multiply(mean, splat(-1.0)))
        moved = multiply(apart, share)
        mean = add(mean, moved)
        across = multiply(multiply(apart, moved), splat(np.float32(begin)))
        squares = add(add(squares, beside), across)
    minus = multiply(mean, splat(-1.0))
    whole = divide(squares, splat(np.float32(pixels)))
    inverse = divide(splat(1.0), root(add(whole, splat(step.low))))
    scale, bias = _get(step.weights, c, some), _get(step.bias, c, some)
    for pixel in range(pixels):
        value = add(add(_get(x + pixel * hop, 0, some), first), minus)
        value = multiply(value, inverse)
        _put(out + pixel * hop, 0, add(multiply(value, scale), bias), some)


@helper
def _block(x, pixels, hop, some, first):
    """The mean of some pixels, all of them `first` higher, and the sum of squares around it."""
    total, squares = splat(0.0), splat(0.0)
    for pixel in range(pixels):
        total = add(total, add(_get(x + pixel * hop, 0, some), first))
    mean = divide(total, splat(np.float32(pixels)))
    minus = multiply(mean, splat(-1.0))
    for pixel in range(pixels):
        lower = add(add(_get(x + pixel * hop, 0, some), first), minus)
        squares = fused(lower, lower, squares)
    return mean, squares


@helper
def _get(address, index, some):
    """Sixteen numbers, or what is left, zeros beyond."""
    return load(address, index) if some >= WIDTH else load_some(address, index, some)


@helper
def _some(value, some):
    """Sixteen numbers, zeros beyond what is left."""
    return value if some >= WIDTH else first_of(value, some)


@helper
def _put(address, index, value, some):
    """The other way."""
    if some >= WIDTH:
        store(address, index, value)
    else:
        store_some(address, index, value, some)
