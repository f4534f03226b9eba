"""Windows, sums along an axis and functions of elements, as steps of programs: sixteen lanes each.

    pool       pixel by pixel: all taps of sixteen channels, then of the next sixteen; where windows
               move by one pixel, all that lie inside as one row of numbers
    blend      [outer, old, inner] -> [outer, new, inner]: sixteen of `inner` at a time
    elements   six sizes with strides; the last two are loops of a task, the others are counted

Elements that are no neighbours are gathered and scattered, sixteen at a time.
"""

from __future__ import annotations

import numpy as np

from tilewright.backends.host.kernels.activate import activate, divide
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import (
    WIDTH,
    add,
    gather,
    larger,
    load,
    load_some,
    multiply,
    number,
    put_number,
    scatter,
    splat,
    store,
    store_apart,
    store_some,
    whole,
)
from tilewright.backends.host.kernels.step import step_at

FIRST_PAIR = 32  # numbers of functions of two operands, in the order of `engines.values.PAIRS`
_SUM, _PRODUCT = FIRST_PAIR, FIRST_PAIR + 2
SIZES, OUT, LEFT, RIGHT = 0, 6, 12, 18  # of the table of `elements`: sizes, bytes of each step


def pool_task(address, task, scratch):
    """Some rows of an image, some channels."""
    step = step_at(address)
    part, band = task % step.parts, task // step.parts
    image, band = band // step.bands, band % step.bands
    first = part * step.block_step
    last = min(step.outputs, first + step.block_step)
    for y in range(band * step.band, min(step.rows, (band + 1) * step.band)):
        top = y * step.y_stride - step.top
        down = _range(top, step.height, step.taps_down, step.dilation_down)
        out = step.out + image * step.out_image + y * step.out_row
        source = step.x + image * step.x_image + top * step.x_row
        inner, beyond = _inner(step)
        if inner < beyond and step.parts == 1:
            _line(step, source, y, inner, beyond, down, out)
        else:
            inner = beyond = step.columns
        for x in range(step.columns - (beyond - inner)):
            x += beyond - inner if x >= inner else 0
            left = x * step.x_stride - step.left
            across = _range(left, step.width, step.taps_across, step.dilation_across)
            at, to = source + left * step.x_pixel, out + x * step.out_pixel
            for c in range(first, last, WIDTH):
                value = _window(step, at, c, last - c, down, across)
                if step.tile == 1:
                    value = multiply(value, splat(step.low))
                elif step.tile == 2:
                    value = divide(value, splat(number(step.pieces, y * step.columns + x)))
                _put(to, c, value, last - c)


@helper
def _inner(step):
    """Columns of the result whose windows lie inside, where windows move by one pixel."""
    reach = (step.taps_across - 1) * step.dilation_across
    beyond = step.width - reach + step.left
    if step.x_stride != 1:
        return 0, 0
    return max(0, step.left), min(step.columns, beyond)


@helper
def _line(step, source, y, first, last, down, out):
    """Windows that lie inside: sixteen neighbours at a time, whichever pixels they are of."""
    at = source + (first - step.left) * step.x_pixel
    to = out + first * step.out_pixel
    count = (last - first) * step.outputs
    across = (0, step.taps_across)
    for i in range(0, count, WIDTH):
        value = _window(step, at, i, count - i, down, across)
        if step.tile == 1:
            value = multiply(value, splat(step.low))
        elif step.tile == 2:
            value = divide(value, splat(number(step.pieces, y * step.columns + first)))
        _put(to, i, value, count - i)


@helper
def _range(at, size, taps, dilation):
    """The taps that lie inside, where the first would lie at `at`."""
    if at >= 0 and at + (taps - 1) * dilation < size:
        return 0, taps
    first = 0 if at >= 0 else -(at // dilation)
    last = min(taps, (size - 1 - at) // dilation + 1)
    return min(first, last) if last > 0 else 0, max(last, 0)


@helper
def _window(step, at, c, some, down, across):
    """The largest of a window's taps, or their sum, row by row."""
    largest = step.tile == 0
    total = splat(step.least)
    hop = step.dilation_across * step.x_pixel
    for v in range(down[0], down[1]):
        place = at + v * step.dilation_down * step.x_row + across[0] * hop
        row = splat(step.least)
        for _ in range(across[0], across[1]):
            value = _get(place, c, some)
            row = larger(row, value) if largest else add(row, value)
            place += hop
        total = larger(total, row) if largest else add(total, row)
    return total


@helper
def _get(address, index, some):
    """Sixteen numbers, or what is left."""
    return load(address, index) if some >= WIDTH else load_some(address, index, some)


@helper
def _put(address, index, value, some):
    """The other way."""
    if some >= WIDTH:
        store(address, index, value)
    else:
        store_some(address, index, value, some)


def blend_task(address, task, scratch):
    """Some of the rows [outer, new], or of `outer` where `inner` is short."""
    step = step_at(address)
    first, last = task * step.band, min(step.rows, (task + 1) * step.band)
    new, inner, taps = step.columns, step.inputs, step.count
    if not step.through:
        for row in range(first, last):
            source = step.x + row // new * step.x_image
            _blended(step, source, row % new, step.out + 4 * row * inner, inner, taps)
        return
    for outer in range(first, last):
        if taps == 1 and inner == 1:
            _picked(step, step.x + outer * step.x_image, step.out + 4 * outer * new, new)
            continue
        source, out = step.x + outer * step.x_image, step.out + 4 * outer * new * inner
        for i in range(new):
            if inner > 1:
                _blended(step, source, i, out + 4 * i * inner, inner, taps)
                continue
            total = np.float32(0.0)
            for tap in range(taps):
                place = whole(step.pieces, i * taps + tap)
                if place >= 0:
                    total += number(source, place) * number(step.weights, i * taps + tap)
            put_number(out, i, total)


@helper
def _picked(step, source, out, new):
    """Nearest elements."""
    pieces = step.pieces
    for i in range(new):
        put_number(out, i, number(source, whole(pieces, i)))


@helper
def _blended(step, source, i, out, inner, taps):
    """One row of the result."""
    for c in range(0, inner, WIDTH):
        some = inner - c
        total = splat(0.0)
        for tap in range(taps):
            place = whole(step.pieces, i * taps + tap)
            if place >= 0:
                share = splat(number(step.weights, i * taps + tap))
                value = _get(source + 4 * place * inner, c, some)
                total = add(total, multiply(value, share))
        _put(out, c, total, some)


def elements_task(address, task, scratch):
    """Some runs of the last two sizes."""
    step = step_at(address)
    table = step.pieces
    copies = step.tile == 0 and whole(table, OUT + 5) == 4 and whole(table, LEFT + 5) == 4
    rows, columns = whole(table, SIZES + 4), whole(table, SIZES + 5)
    for index in range(task * step.band, min(step.rows, (task + 1) * step.band)):
        rest = index
        out, a, b = step.out, step.x, step.weights
        for axis in range(3, -1, -1):
            size = whole(table, SIZES + axis)
            at = rest % size
            rest //= size
            out += at * whole(table, OUT + axis)
            a += at * whole(table, LEFT + axis)
            b += at * whole(table, RIGHT + axis)
        if copies:
            _copied(table, rows, columns, out, a)
            continue
        for _ in range(rows):
            _run(step, table, columns, out, a, b)
            out += whole(table, OUT + 4)
            a += whole(table, LEFT + 4)
            b += whole(table, RIGHT + 4)


@helper
def _copied(table, rows, columns, out, a):
    """Runs of neighbours to runs of neighbours."""
    out_row, row = whole(table, OUT + 4), whole(table, LEFT + 4)
    for _ in range(rows):
        for i in range(0, columns, WIDTH):
            _put(out, i, _get(a, i, columns - i), columns - i)
        out += out_row
        a += row


@helper
def _run(step, table, count, out, a, b):
    """One run of elements."""
    hop, left, right = whole(table, OUT + 5), whole(table, LEFT + 5), whole(table, RIGHT + 5)
    kind, low, high = step.tile, splat(step.low), splat(step.high)
    if kind == 0 and left == 4 and hop == 8:
        for i in range(0, count, WIDTH):
            store_apart(out + 8 * i, _get(a, i, count - i), count - i)
        return
    if kind == 0 and (left != 4 or hop != 4):
        for i in range(count):
            put_number(out + i * hop, 0, number(a + i * left, 0))
        return
    if hop == 4 and left == 4 and kind in (_SUM, _PRODUCT) and right in (0, 4):
        _sums_or_products(kind == _SUM, count, out, a, b, right == 0)
        return
    for i in range(0, count, WIDTH):
        some = count - i
        x = _taken(a + i * left, left, some)
        y = _taken(b + i * right, right, some) if kind >= FIRST_PAIR else x
        value = x if kind == 0 else _made(kind, x, y, low, high)
        if hop == 4:
            _put(out, i, value, some)
        else:
            scatter(out + i * hop, hop, value, some)


@helper
def _sums_or_products(adds, count, out, a, b, same):
    """Of neighbours with neighbours, or with one number: a function asked for each took longer."""
    once = splat(number(b, 0))
    for i in range(0, count, WIDTH):
        some = count - i
        x, y = _get(a, i, some), once if same else _get(b, i, some)
        _put(out, i, add(x, y) if adds else multiply(x, y), some)


@helper
def _taken(address, hop, some):
    """Sixteen elements `hop` bytes apart, or what is left."""
    if hop == 4:
        return _get(address, 0, some)
    if hop == 0:
        return splat(number(address, 0))
    return gather(address, hop, some)


@helper
def _made(kind, x, y, low, high):
    """A function of lanes; NaN of either stays."""
    if kind < FIRST_PAIR:
        return activate(kind, x, low, high, low)
    minus = splat(-1.0)
    if kind == _SUM:
        return add(x, y)
    if kind == FIRST_PAIR + 1:
        return add(x, multiply(y, minus))
    if kind == _PRODUCT:
        return multiply(x, y)
    if kind == FIRST_PAIR + 3:
        return divide(x, y)
    if kind == FIRST_PAIR + 4:
        return larger(x, y)
    return multiply(larger(multiply(x, minus), multiply(y, minus)), minus)
