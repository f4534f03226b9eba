"""Direct convolutions of float32, tile by tile of `conv_tile`; nothing like im2col is written.

     picture, channels last            a task: a band of rows of the result, some blocks of channels
    +------------------------+
    |   rows of the band,    |  --->   copied beside zeros at the edges, once a task, where there
    |   and those around it  |         are edges or the picture is channels first; else read there
    +------------------------+
      block by block of channels: their weights stay in the cache while the band's tiles pass

Where pixels are shuffled and lie channels last, the r rows of a block are groups of outputs: of one
row the pixels' channels follow each other, so that tiles are stored where they belong.

`flat_task` takes pictures of which every pixel stands for itself (1 x 1, stride 1): all pixels in a
row, tiles of as many as follow each other. The last tile of a row begins so early that it ends with
the row; of what it computes twice nothing is stored twice.
"""

from __future__ import annotations

from tilewright.backends.host.kernels.activate import activate, activate_pixels
from tilewright.backends.host.kernels.atomics import clear, copy
from tilewright.backends.host.kernels.conv_tile import (
    COLUMNS,
    LANES,
    PIXELS,
    ROWS,
    VECTORS,
    WIDTH,
    full_line,
    full_tile,
    half_line,
    half_tile,
)
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import (
    load,
    number,
    put_number,
    splat,
    store,
)
from tilewright.backends.host.kernels.step import step_at

_ALL = (1 << PIXELS) - 1
_LINE = (1 << COLUMNS) - 1


def direct_task(address, task, scratch):
    """A band of rows of an image, some blocks of channels."""
    step = step_at(address)
    part, band = task % step.parts, task // step.parts
    image, band = band // step.bands, band % step.bands
    first = band * step.band
    last = min(first + step.band, step.rows)
    room = scratch + 4 * WIDTH * PIXELS
    x = step.x + image * step.x_image + first * step.y_stride * step.x_row
    if step.copied:
        _copy_band(step, image, first, last, room)
        x = room
    out = step.out + image * step.out_image + first * step.out_row
    blocks = step.groups * step.blocks
    for block in range(part * step.block_step, min(blocks, (part + 1) * step.block_step)):
        _band_block(step, block, x, out, last - first, scratch)


@helper
def _band_block(step, block, x, out, rows, scratch):
    """One block of channels of a band whose windows begin at `x`."""
    row, pixel = step.y_stride * step.line, step.x_stride * step.pixel
    for y in range(0, rows, ROWS):
        lone = y + 1 == rows
        for left in range(0, step.columns, COLUMNS):
            start = min(left, max(0, step.columns - COLUMNS))
            count = min(COLUMNS, step.columns - start)
            line = (_LINE >> (COLUMNS - count)) & (_LINE << (left - start))
            valid = line if lone else line | line << COLUMNS
            at = x + y * row + start * pixel
            to = out + y * step.out_row + start * step.out_pixel
            tile_at(step, block, at, (row, step.out_row), pixel, valid, to, scratch)


def flat_task(address, task, scratch):
    """Some of all pixels, some blocks of channels."""
    step = step_at(address)
    part, band = task % step.parts, task // step.parts
    first = band * step.band
    last = min(first + step.band, step.columns)
    lines = (COLUMNS * step.pixel, COLUMNS * step.out_pixel)
    blocks = step.groups * step.blocks
    for block in range(part * step.block_step, min(blocks, (part + 1) * step.block_step)):
        for left in range(first, last, PIXELS):
            short = last - left <= COLUMNS
            start = min(left, step.columns - (COLUMNS if short else PIXELS))
            valid = ((_LINE if short else _ALL) << (left - start)) & (_LINE if short else _ALL)
            x, out = step.x + start * step.pixel, step.out + start * step.out_pixel
            tile_at(step, block, x, lines, step.pixel, valid, out, scratch)


@helper
def tile_at(step, block, x, lines, pixel, valid, out, scratch):
    """A tile of a block: `lines` are bytes to its second row, of the windows and of the result."""
    group, within = block // step.blocks, block % step.blocks
    channel = group * step.group_outputs + within * WIDTH
    left = min(WIDTH, step.group_outputs - within * WIDTH)
    x += group * step.group_bytes
    weights = step.weights + block * step.block_bytes
    bias = step.bias + 4 * block * WIDTH
    to = out + group * step.group_out + 4 * within * WIDTH
    out_line, out_pixel = lines[1], step.out_pixel
    residual = step.residual
    if step.through:
        to, out_line, out_pixel, residual = scratch, 4 * COLUMNS * WIDTH, 4 * WIDTH, 0
    _sums(
        VECTORS == 2 and left <= LANES, valid > _LINE,
        (x, lines[0], pixel, step.pieces, step.count, weights, valid, to, out_line, out_pixel,
         residual, bias, left, step.least, step.most),
    )  # fmt: skip
    if step.through:
        _scatter(step, channel, left, valid, scratch, out, lines[1])
    elif step.curved:
        _curve(step, channel, left, valid, (to, out_line, out_pixel))


@helper
def _sums(half, two, arguments):
    """The narrowest tile that does."""
    if half and two:
        half_tile(*arguments)
    elif half:
        half_line(*arguments)
    elif two:
        full_tile(*arguments)
    else:
        full_line(*arguments)


@helper
def _curve(step, channel, left, valid, place):
    """The activations that are more than two bounds, where the sums lie."""
    to, line, pixel = place
    for row in range(ROWS):
        at, left_of = to + row * line, valid >> row * COLUMNS & _LINE
        for _ in range(COLUMNS):
            if left_of & 1:
                activate_pixels(step, channel, left, at, 1, pixel)
            at += pixel
            left_of >>= 1


@helper
def _scatter(step, channel, left, valid, sums, out, line):
    """A tile to results that lie otherwise: channels first, or shuffled by groups."""
    low, high = splat(step.low), splat(step.high)
    r = step.shuffle
    for index in range(PIXELS):
        if not valid >> index & 1:
            continue
        base = out + index // COLUMNS * line + index % COLUMNS * step.out_pixel
        at = sums + 4 * WIDTH * index
        if step.residual:
            for c in range(left):
                added = number(base + step.residual + (channel + c) * step.out_channel, 0)
                put_number(at, c, number(at, c) + added)
        for c in range(0, left, LANES):
            slopes = splat(step.low)
            if step.slopes:
                slopes = load(step.slopes, channel + c)
            store(at, c, activate(step.curved, load(at, c), low, high, slopes))
        for c in range(left):
            which, rest = (channel + c) // (r * r), (channel + c) % (r * r)
            down, right = rest // r, rest % r
            to = base + which * step.out_channel + down * step.fine_row + right * step.fine_pixel
            put_number(to, 0, number(at, c))


@helper
def _copy_band(step, image, first, last, room):
    """The rows that rows [first, last) of the result read, zeros where the picture ends."""
    rows = (last - first - 1) * step.y_stride + step.reach
    line = step.line
    wide = step.wide * step.pixel
    before = min(max(0, step.left), step.wide)
    skipped = max(0, -step.left)
    there = max(0, min(step.width - skipped, step.wide - before))
    for row in range(rows):
        y = first * step.y_stride - step.top + row
        to = room + row * line
        if y < 0 or y >= step.height or not there:
            clear(to, wide)
            continue
        clear(to, before * step.pixel)
        end = (before + there) * step.pixel
        clear(to + end, wide - end)
        source = step.x + image * step.x_image + y * step.x_row + skipped * step.x_pixel
        if step.x_pixel == step.pixel:
            copy(to + before * step.pixel, source, there * step.pixel)
        else:
            _turn(source, step, there, to + before * step.pixel)


@helper
def _turn(source, step, pixels, to):
    """A row of a picture that is channels first."""
    channels = step.pixel // 4
    for c in range(channels):
        begin = source + c * step.x_channel
        for x in range(pixels):
            put_number(to, x * channels + c, number(begin + x * step.x_pixel, 0))
