"""A 1 x 1 convolution and the depthwise one after it as one step; what lies between stays in L1.

      x, all channels          ring: a few rows, 32 channels          result, those channels
    +-----------------+       +---+-----------------+---+            +------------------+
    |   two rows      |  -->  | 0 | two rows        | 0 |    -->     |   two rows       |
    |                 |       | 0 | rows before     | 0 |            |                  |
    +-----------------+       +---+-----------------+---+            +------------------+

A task is a band of rows of the result and some blocks of channels, one after another: down a block
new rows enter the ring by `conv_tile`'s tiles, and two rows of the result leave it. Zeros at the
sides stand in the ring, so that no window is cut. A network for phones makes six channels of each
and keeps one again: those six times never reach the memory.
"""

from __future__ import annotations

from tilewright.backends.host.kernels.activate import activate_pixels
from tilewright.backends.host.kernels.atomics import clear
from tilewright.backends.host.kernels.conv_direct import tile_at
from tilewright.backends.host.kernels.conv_ring import SIDE, ring_tile_of
from tilewright.backends.host.kernels.conv_tile import COLUMNS, LANES, WIDTH
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.step import step_at
from tilewright.backends.host.kernels.step_table import SIZE

_LINE = (1 << COLUMNS) - 1
_three, _three_by_two, _five, _five_by_two = (
    ring_tile_of(taps, step) for taps in (3, 5) for step in (1, 2)
)


def expand_task(address, task, scratch):
    """Some blocks of channels of a band; the next record is of the depthwise convolution."""
    step, deep = step_at(address), step_at(address + SIZE)
    part, band = task % step.parts, task // step.parts
    image, band = band // step.bands, band % step.bands
    first = band * step.band
    last = min(first + step.band, deep.rows)
    for slot in range(step.ring):
        clear(scratch + slot * step.out_row, step.out_row)
    for block in range(part * step.block_step, min(step.blocks, (part + 1) * step.block_step)):
        _block(step, deep, block, image, first, last, scratch)


@helper
def _block(step, deep, block, image, first, last, ring):
    """A block of channels down the band."""
    made = first * deep.y_stride - deep.top
    end = min(step.height, (last - 1) * deep.y_stride - deep.top + deep.reach)
    x = step.x + image * step.x_image
    for y in range(first, last, 2):
        above = (min(y + 2, last) - 1) * deep.y_stride - deep.top + deep.reach
        while made < above:
            if made < 0 or made >= step.height:
                clear(ring + made % step.ring * step.out_row, step.out_row)
                made += 1
                continue
            two = made + 1 < end
            _rows_in(step, deep, block, x, made, two, ring)
            made += 2 if two else 1
        _rows_out(step, deep, block, image, y, min(2, last - y), ring)
        if deep.curved:
            out = deep.out + image * deep.out_image + y * deep.out_row + 4 * block * WIDTH
            some = min(WIDTH, deep.outputs - block * WIDTH)
            for _ in range(min(2, last - y)):
                activate_pixels(deep, block * WIDTH, some, out, deep.columns, deep.out_pixel)
                out += deep.out_row


@helper
def _rows_in(step, deep, block, x, y, two, ring):
    """One row of the 1 x 1 convolution or two, into their slots."""
    slot, below = y % step.ring, (y + 1) % step.ring
    lines = (step.x_row, (below - slot) * step.out_row)
    # The tile adds the block's channels to where it writes.
    to = ring + slot * step.out_row + deep.left * step.out_pixel - 4 * block * WIDTH
    for left in range(0, step.columns, COLUMNS):
        start = min(left, step.columns - COLUMNS)
        line = _LINE & (_LINE << (left - start))
        valid = line | line << COLUMNS if two else line
        at = x + y * step.x_row + start * step.x_pixel
        tile_at(step, block, at, lines, step.x_pixel, valid, to + start * step.out_pixel, 0)


@helper
def _rows_out(step, deep, block, image, y, rows, ring):
    """One row of the result or two, from row y on."""
    channel = block * WIDTH
    out = deep.out + image * deep.out_image + y * deep.out_row
    first = y * deep.y_stride - deep.top + step.ring  # not below 0, for the remainder
    hop, taps = deep.x_stride * step.out_pixel, deep.taps_down * deep.taps_across
    for c in range(channel, min(channel + WIDTH, deep.outputs), LANES):
        for left in range(0, deep.columns, SIDE):
            x = min(left, deep.columns - SIDE)
            _tile_out(
                deep.taps_down == 3, deep.x_stride == 1,
                (ring + 4 * (c - channel) + x * hop, first, step.out_row, step.ring,
                 step.out_pixel, deep.weights + 4 * c * taps, deep.bias + 4 * c,
                 out + 4 * c + x * deep.out_pixel, deep.out_row, deep.out_pixel, rows,
                 deep.outputs - c, deep.least, deep.most),
            )  # fmt: skip


@helper
def _tile_out(three, near, arguments):
    """By its window and step."""
    if three and near:
        _three(*arguments)
    elif three:
        _three_by_two(*arguments)
    elif near:
        _five(*arguments)
    else:
        _five_by_two(*arguments)
