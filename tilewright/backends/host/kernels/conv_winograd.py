"""3x3 convolutions of wide layers by Winograd's transforms, as two steps of a program.

    picture  --tiles_in-->  planes [group][block of inputs][S * S][GROUP tiles][16]     first step
    planes x weights, one product a plane  -->  sums of 16 or 32 outputs                second step
             --tiles_out-->  a strip of results  --residual, activation-->  out

All tiles of all images stand in one row, GROUP of them side by side, so that small pictures fill
the products. A task of the second step keeps the weights of its outputs in the core's cache while
the groups pass: they are read once. A chain (`conv_chain`) reads weights for every band of rows,
which costs more than it saves where a layer has 128 channels and more.
"""

from __future__ import annotations

from tilewright.backends.host.kernels import lanes
from tilewright.backends.host.kernels.activate import activate
from tilewright.backends.host.kernels.conv_product import BYTES, GROUP, ROWS, product_of
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import WIDTH
from tilewright.backends.host.kernels.step import step_at
from tilewright.backends.host.kernels.winograd import PLANE, SUMS, tiles_in_of, tiles_out_of

PAIR = max(ROWS)  # vectors of output channels that a product takes at once
_MOST, _MOST_SINGLE = ROWS[PAIR][0], ROWS[1][0]
_pair, _single = product_of(PAIR), product_of(1)
_in_4, _in_2 = tiles_in_of(4), tiles_in_of(2)
_out_4, _out_2 = tiles_out_of(4, quad=False), tiles_out_of(2, quad=False)
_TABLE = 64  # bytes of a table of addresses of rows


def spread_task(address, task, scratch):
    """A row of tiles of an image, some blocks of inputs: transformed into the planes."""
    step = step_at(address)
    part, row = task % step.parts, task // step.parts
    image, down = row // step.bands, row % step.bands
    m, across = step.tile, step.across
    size = m + 2
    wide = (across * m + 2) * BYTES
    first = row * across
    source = step.x + image * step.x_image + (down * m - step.top) * step.x_row
    room = scratch + _TABLE
    blocks = -(-step.inputs // WIDTH)
    for block in range(part * step.block_step, min(blocks, (part + 1) * step.block_step)):
        for line in range(size):
            y = down * m - step.top + line
            _line_in(step, source + line * step.x_row, y, block, room + line * wide, across * m + 2)
        tile = 0
        while tile < across:
            group, at = (first + tile) // GROUP, (first + tile) % GROUP
            count = min(GROUP - at, across - tile)
            for line in range(size):
                lanes.put(scratch, line, room + line * wide + tile * m * BYTES)
            planes = step.planes + (group * blocks + block) * size * size * PLANE + at * BYTES
            if m == 4:
                _in_4(scratch, planes, count)
            else:
                _in_2(scratch, planes, count)
            tile += count


@helper
def _line_in(step, source, y, block, target, columns):
    """Sixteen channels of a row of the picture, zeros beside it."""
    left = max(0, step.left)
    begin = source + (left - step.left) * step.x_pixel + 4 * WIDTH * block
    there = max(0, min(columns - left, step.width - (left - step.left)))
    if y < 0 or y >= step.height:
        left, there = columns, 0
    zero, some = lanes.splat(0.0), step.inputs - WIDTH * block
    for x in range(left):
        lanes.store(target, WIDTH * x, zero)
    at, whole = target + left * BYTES, some >= WIDTH
    for x in range(there):
        pixel = begin + x * step.x_pixel
        value = lanes.load(pixel, 0) if whole else lanes.load_some(pixel, 0, some)
        lanes.store(at, WIDTH * x, value)
    for x in range(left + there, columns):
        lanes.store(target, WIDTH * x, zero)


def gather_task(address, task, scratch):
    """One or two blocks of outputs of some groups: products, and back to pixels."""
    step = step_at(address)
    segment, part = task // step.parts, task % step.parts
    m, inputs = step.tile, -(-step.inputs // WIDTH)
    planes, quarters = (m + 2) * (m + 2), -(-step.inputs // 4)
    first = segment * PAIR
    vectors = PAIR if step.blocks - first >= PAIR else 1
    weights = step.weights + segment * planes * 4 * quarters * PAIR * BYTES
    sums = scratch + _TABLE
    strip = sums + planes * SUMS
    groups = -(-step.tiles // GROUP)
    for group in range(part * step.block_step, min(groups, (part + 1) * step.block_step)):
        count = min(GROUP, step.tiles - group * GROUP)
        source = step.planes + group * inputs * planes * PLANE
        _products(source, weights, sums, count, quarters, planes, vectors)
        for vector in range(vectors):
            block = first + vector
            for line in range(m):
                lanes.put(scratch, line, strip + line * count * m * BYTES)
            at, bias = sums + vector * GROUP * BYTES, step.bias + block * BYTES
            if m == 4:
                odd = _out_4(scratch, at, count, bias, step.least, step.most)
            else:
                odd = _out_2(scratch, at, count, bias, step.least, step.most)
            for tile in range(count):
                place = strip + tile * m * BYTES
                if odd >> tile & 1:
                    _plain_tile(step, group * GROUP + tile, block, place, count * m * BYTES)
                _tile_out(step, group * GROUP + tile, block, place, count * m * BYTES)


@helper
def _products(source, weights, sums, tiles, quarters, planes, vectors):
    """All planes of a group of tiles."""
    most = _MOST if vectors == PAIR else _MOST_SINGLE
    for plane in range(planes):
        for first in range(0, tiles, most):
            size = min(most, tiles - first)
            at, to = source + plane * PLANE + first * BYTES, sums + plane * SUMS + first * BYTES
            if vectors == PAIR:
                _pair(size, at, weights, to, quarters, planes * PLANE)
            else:
                _single(size, at, weights, to, quarters, planes * PLANE)
        weights += 4 * quarters * vectors * BYTES


@helper
def _tile_out(step, tile, block, strip, line):
    """A tile's results that lie in the picture, with residual and activation."""
    m = step.tile
    each = step.across * step.bands
    image, within = tile // each, tile % each
    top, left = within // step.across * m, within % step.across * m
    some = step.outputs - WIDTH * block
    low, high = lanes.splat(step.low), lanes.splat(step.high)
    slopes = lanes.load(step.slopes, WIDTH * block) if step.slopes else low
    out = step.out + image * step.out_image + 4 * WIDTH * block
    plain = not step.residual and not step.curved
    for y in range(min(m, step.rows - top)):
        to = out + (top + y) * step.out_row + left * step.out_pixel
        for x in range(min(m, step.columns - left)):
            value = lanes.load(strip + y * line, WIDTH * x)
            if not plain:
                if step.residual:
                    value = lanes.add(value, lanes.load_some(to + step.residual, 0, some))
                value = activate(step.curved, value, low, high, slopes)
            if some >= WIDTH:
                lanes.store(to, 0, value)
            else:
                lanes.store_some(to, 0, value, some)
            to += step.out_pixel


@helper
def _plain_tile(step, tile, block, strip, line):
    """A tile without transforms, in which infinities and NaN stay within their windows."""
    m = step.tile
    each = step.across * step.bands
    image, within = tile // each, tile % each
    top, left = within // step.across * m - step.top, within % step.across * m - step.left
    source = step.x + image * step.x_image
    for pixel in range(m * m):
        y, x = pixel // m, pixel % m
        for lane in range(min(WIDTH, step.outputs - WIDTH * block)):
            output = WIDTH * block + lane
            total = lanes.number(step.bias, output) + 0.0
            for tap in range(9):
                down, across = top + y + tap // 3, left + x + tap % 3
                if down < 0 or down >= step.height or across < 0 or across >= step.width:
                    continue
                at = source + down * step.x_row + across * step.x_pixel
                weights = step.pieces + 4 * (output * step.inputs * 9 + tap)
                for channel in range(step.inputs):
                    total += lanes.number(at, channel) * lanes.number(weights, 9 * channel)
            if total < step.least:
                total = step.least
            if total > step.most:
                total = step.most
            lanes.put_number(strip + y * line, WIDTH * x + lane, total)
