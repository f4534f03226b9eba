"""Both ends of a chain: rows of a picture into a ring, rows of the last ring into the result.

picture [channel][row][column], any strides  ->  planes [row][channel][column]       few channels
                                             ->  blocks [row][block][column][16]     others
blocks, or four channels a pixel             ->  result, r x r pixels of r * r channels
"""

from __future__ import annotations

from numba import njit

from tilewright.backends.host.kernels.lanes import WIDTH, number, put_number


@njit(cache=True)
def cleared(address, count):
    """Zeros."""
    for index in range(count):
        put_number(address, index, 0.0)


@njit(cache=True)
def planes_in(source, channel_step, column_step, channels, left, right, width, target, columns):
    """Columns [left, right) of a row of the picture, a plane a channel; zeros outside it."""
    for channel in range(channels):
        place = target + 4 * channel * columns
        start = source + 4 * channel * channel_step
        for column in range(left, right):
            value = 0.0
            if 0 <= column < width:
                value = number(start, column * column_step)
            put_number(place, column - left, value)


@njit(cache=True)
def blocks_in(source, channel_step, column_step, channels, left, right, width, target, columns):
    """The same, sixteen channels of a column side by side."""
    for block in range(-(-channels // WIDTH)):
        inside = min(WIDTH, channels - WIDTH * block)
        place = target + 64 * block * columns
        start = source + 4 * WIDTH * block * channel_step
        for column in range(left, right):
            cell = place + 64 * (column - left)
            if 0 <= column < width:
                for lane in range(inside):
                    value = number(start, lane * channel_step + column * column_step)
                    put_number(cell, lane, value)
                cleared(cell + 4 * inside, WIDTH - inside)
            else:
                cleared(cell, WIDTH)


@njit(cache=True)
def row_out(source, block_step, cell, outputs, shuffle, count, target, steps):
    """`count` columns of a ring's row to the result; `steps` from channel, row and column on."""
    channel_step, row_step, column_step = steps
    lanes = cell // 4
    for output in range(outputs):
        block, lane = output // lanes, output % lanes
        channel, within = output // (shuffle * shuffle), output % (shuffle * shuffle)
        down, right = within // shuffle, within % shuffle
        place = target + 4 * (channel * channel_step + down * row_step + right * column_step)
        start = source + block * block_step + 4 * lane
        for column in range(count):
            value = number(start, column * lanes)
            put_number(place, column * shuffle * column_step, value)
