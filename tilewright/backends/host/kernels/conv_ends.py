"""Both ends of a chain: rows of a picture into a ring, rows of the last ring into the result.

    picture, any strides  ->  planes [row][channel][column]       few channels
                          ->  blocks [row][block][column][16]     others
    blocks, or four channels a pixel  ->  result, r x r pixels of r * r channels

Where channels or columns lie side by side, sixteen at a time: 16 x 16 numbers are turned in
registers, as number by number this took as long as a layer's products.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tilewright.backends.host.kernels.conv_product import (
    I32,
    INT,
    POINTER,
    at,
    load_floats,
    private,
    store_floats,
)
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import WIDTH, load, number, put_number, store

CELL = 4 * WIDTH


def _turned(builder, rows):
    """Rows of a square as its columns: in four rounds, each row beside the one half way on."""
    half = WIDTH // 2
    for _ in range(4):
        found = []
        for first, second in zip(rows[:half], rows[half:], strict=True):
            for start in (0, half):
                lanes = [
                    I32(lane + source)
                    for lane in range(start, start + half)
                    for source in (0, WIDTH)
                ]
                mask = ir.Constant(ir.VectorType(I32, WIDTH), lanes)
                found.append(builder.shuffle_vector(first, second, mask))
        rows = found
    return rows


@intrinsic
def turn(typing, source, source_step, target, target_step):
    """16 rows of 16 numbers to 16 columns; steps are bytes from row to row."""

    def generate(context, builder, signature, arguments):
        name = "tilewright_turn"
        if name not in builder.module.globals:
            inner, given = private(builder.module, name, [POINTER, INT, POINTER, INT])
            begin, step, end, end_step = given
            rows = [at(inner, begin, inner.mul(step, INT(row))) for row in range(WIDTH)]
            columns = _turned(inner, [load_floats(inner, row) for row in rows])
            for row, value in enumerate(columns):
                store_floats(inner, value, at(inner, end, inner.mul(end_step, INT(row))))
            inner.ret_void()
        source, source_step, target, target_step = arguments
        source, target = (builder.inttoptr(place, POINTER) for place in (source, target))
        function = builder.module.globals[name]
        builder.call(function, [source, source_step, target, target_step])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), generate


@helper
def cleared(address, count):
    """Zeros."""
    for index in range(count):
        put_number(address, index, 0.0)


@helper
def planes_in(source, channel_step, column_step, channels, left, right, width, target, columns):
    """Columns [left, right) of a row of the picture, a plane a channel; zeros outside it."""
    start, end = max(0, left), min(right, width)
    for channel in range(channels):
        place = target + 4 * channel * columns
        row = source + 4 * channel * channel_step
        cleared(place, start - left)
        for column in range(start, end):
            put_number(place, column - left, number(row, column * column_step))
        cleared(place + 4 * (end - left), right - end)


@helper
def blocks_in(source, channel_step, column_step, channels, left, right, width, target, columns):
    """The same, sixteen channels of a column side by side."""
    start, end = max(0, left), min(right, width)
    for block in range(-(-channels // WIDTH)):
        inside = min(WIDTH, channels - WIDTH * block)
        place = target + CELL * block * columns
        row = source + CELL * block * channel_step
        cleared(place, WIDTH * (start - left))
        column = start
        while column < end:
            cell = place + CELL * (column - left)
            if inside == WIDTH and column_step == 1 and column + WIDTH <= end:
                turn(row + 4 * column, 4 * channel_step, cell, CELL)
                column += WIDTH
                continue
            if inside == WIDTH and channel_step == 1:
                store(cell, 0, load(row, column * column_step))
            else:
                for lane in range(inside):
                    value = number(row, lane * channel_step + column * column_step)
                    put_number(cell, lane, value)
                cleared(cell + 4 * inside, WIDTH - inside)
            column += 1
        cleared(place + CELL * (end - left), WIDTH * (right - end))


@helper
def row_out(source, block_step, cell, outputs, shuffle, count, target, steps):
    """`count` columns of a ring's row to the result; `steps` from channel, row and column on."""
    channel_step, _, column_step = steps
    whole = 0  # outputs that have gone, by sixteens
    if shuffle == 1 and cell == CELL and (column_step == 1 or channel_step == 1):
        whole = outputs // WIDTH * WIDTH
        for block in range(whole // WIDTH):
            place = target + CELL * block * channel_step
            block_out(source + block * block_step, count, place, channel_step, column_step)
    for output in range(whole, outputs):
        number_out(source, block_step, cell, output, shuffle, count, target, steps)


@helper
def block_out(source, count, target, channel_step, column_step):
    """Sixteen channels of `count` columns."""
    column = 0
    while column < count:
        cell = source + CELL * column
        if channel_step == 1:
            store(target, column * column_step, load(cell, 0))
        elif column + WIDTH <= count:
            turn(cell, CELL, target + 4 * column, 4 * channel_step)
            column += WIDTH
            continue
        else:
            for lane in range(WIDTH):
                place = lane * channel_step + column * column_step
                put_number(target, place, number(cell, lane))
        column += 1


@helper
def number_out(source, block_step, cell, output, shuffle, count, target, steps):
    """One channel of the sums."""
    channel_step, row_step, column_step = steps
    lanes = cell // 4
    block, lane = output // lanes, output % lanes
    channel, within = output // (shuffle * shuffle), output % (shuffle * shuffle)
    down, right = within // shuffle, within % shuffle
    place = target + 4 * (channel * channel_step + down * row_step + right * column_step)
    start = source + block * block_step + 4 * lane
    for column in range(count):
        put_number(place, column * shuffle * column_step, number(start, column * lanes))
