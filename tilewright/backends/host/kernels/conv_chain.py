"""A strip of columns through a whole chain of 3x3 convolutions: bands of rows roll down it.

    step      0    1    2    3   ...        a band is 4 rows, or 2
    x         b0   b1   b2   b3             rows copied from the picture
    layer 1        b0   b1   b2             each layer one band behind the one before,
    layer 2             b0   b1             so that the row below its band is there

Each layer's results go to a ring of three bands, [row][block of channels][column][16], and those of
the last to one band, which is copied to the result. What lies outside the picture is zeros in every
ring. Tiles lie on one grid of the picture however it is cut into strips, and no tile reads what
was not computed as a whole: results do not depend on the cut.

`stages` and `strip` are int64 tables, a row for each stage (0 is x), `numbers` float32; `call` is
what all stages share. Their columns are named in `conv_table`.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from tilewright.backends.host.kernels import conv_table as table
from tilewright.backends.host.kernels import lanes
from tilewright.backends.host.kernels.activate import activate
from tilewright.backends.host.kernels.conv_ends import blocks_in, cleared, planes_in, row_out
from tilewright.backends.host.kernels.conv_few import few_of
from tilewright.backends.host.kernels.conv_product import GROUP, ROWS, product_of
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.winograd import PLANE, SUMS, tiles_in_of, tiles_out_of

CELL = 64
PAIR = max(ROWS)  # vectors of output channels that a product takes at once
SINGLE_ROWS, PAIR_ROWS = ROWS[1][0], ROWS[PAIR][0]
single, pair, folding = product_of(1), product_of(PAIR), product_of(1, folding=True)
few_single, few_pair = few_of(SINGLE_ROWS, 1), few_of(PAIR_ROWS, PAIR)
few_single_rest, few_pair_rest = few_of(2, 1), few_of(2, PAIR)
tiles_in_4, tiles_in_2 = tiles_in_of(4), tiles_in_of(2)
tiles_out_4, tiles_out_2 = tiles_out_of(4, quad=False), tiles_out_of(2, quad=False)
folded_out_4, folded_out_2 = tiles_out_of(4, quad=True), tiles_out_of(2, quad=True)
# A part of `run_strip` that stands in one place: compiled as its lines, not as a function, whose
# machine code would be made twice.
part = njit(inline="always")
_INTS = types.Array(types.int64, 2, "C")
_CALL = types.Array(types.int64, 1, "C")
_REALS = types.Array(types.float32, 2, "C")


@helper
def cell(memory, stages, strip, stage, row, block, column):
    """Where a block of a column of a row lies in a stage's ring, whose rows begin at LEFT - 1."""
    rows, blocks, columns = (
        stages[stage, table.RING_ROWS],
        stages[stage, table.BLOCKS],
        stages[stage, table.COLUMNS],
    )
    line = (row + rows) % rows * blocks + block
    place = line * columns + column - strip[stage, table.LEFT] + 1
    return memory + stages[stage, table.RING] + place * stages[stage, table.CELL]


@helper
def clear_row(memory, stages, strip, stage, row, left, right):
    """Zeros in columns [left, right) of every block."""
    count = (right - left) * (stages[stage, table.CELL] // 4)
    for block in range(stages[stage, table.BLOCKS]):
        cleared(cell(memory, stages, strip, stage, row, block, left), count)


@part
def picture_band(call, stages, strip, memory, band, image):
    """A band of x into the first ring."""
    left, right = strip[0, table.LEFT] - 1, strip[0, table.RIGHT] + 1
    for row in range(band * call[table.STEP], (band + 1) * call[table.STEP]):
        target = cell(memory, stages, strip, np.int64(0), row, np.int64(0), left)
        if row >= call[table.HEIGHT]:
            clear_row(memory, stages, strip, np.int64(0), row, left, right)
            continue
        source = image + 4 * row * call[table.PICTURE_ROW]
        steps = call[table.PICTURE_CHANNEL], call[table.PICTURE_COLUMN]
        width, columns = call[table.WIDTH], stages[0, table.COLUMNS]
        if stages[0, table.KIND] == table.PLANES:
            planes_in(source, *steps, call[table.CHANNELS], left, right, width, target, columns)
        else:
            blocks_in(source, *steps, call[table.CHANNELS], left, right, width, target, columns)


@part
def few_band(call, stages, numbers, strip, memory, stage, band):
    """A layer of few input channels."""
    left, right = strip[stage, table.LEFT], strip[stage, table.RIGHT]
    channels, blocks = stages[stage, table.INPUTS], stages[stage, table.BLOCKS]
    low, high = numbers[stage, table.LEAST], numbers[stage, table.MOST]
    rows = memory + call[table.TABLES]
    block_step = stages[stage, table.COLUMNS] * CELL
    for row in range(band * call[table.STEP], (band + 1) * call[table.STEP]):
        for channel in range(channels):
            for tap in range(3):
                address = cell(memory, stages, strip, stage - 1, row - 1 + tap, channel, left - 1)
                lanes.put(rows, 3 * channel + tap, address)
        block = 0
        weights, bias = stages[stage, table.WEIGHTS], stages[stage, table.BIAS]
        while block < blocks:
            vectors = PAIR if blocks - block >= PAIR else 1
            wide = PAIR_ROWS if vectors == PAIR else SINGLE_ROWS
            column = left
            while column < right:
                # The last pixels once more rather than a shape of their own.
                start = max(left, right - wide) if column + wide > right else column
                pixels = wide if start + wide <= right else 2
                start = start if pixels == wide else column
                out = cell(memory, stages, strip, stage, row, block, start)
                at = 4 * (start - left)
                if vectors == PAIR and pixels == wide:
                    few_pair(rows, 3 * channels, at, weights, out, block_step, bias, low, high)
                elif vectors == PAIR:
                    few_pair_rest(rows, 3 * channels, at, weights, out, block_step, bias, low, high)
                elif pixels == wide:
                    few_single(rows, 3 * channels, at, weights, out, block_step, bias, low, high)
                else:
                    few_single_rest(
                        rows, 3 * channels, at, weights, out, block_step, bias, low, high
                    )
                column = start + pixels
            weights += 9 * channels * vectors * CELL
            bias += vectors * CELL
            block += vectors


@part
def transform(m, rows, planes, tiles):
    """The tiles of one block of channels."""
    if m == 4:
        tiles_in_4(rows, planes, tiles)
    else:
        tiles_in_2(rows, planes, tiles)


@part
def back(m, fold, rows, sums, tiles, bias, low, high):
    """One block of output channels, and which tiles may hold infinities or NaN."""
    if m == 4:
        if fold:
            return folded_out_4(rows, sums, tiles, bias, low, high)
        return tiles_out_4(rows, sums, tiles, bias, low, high)
    if fold:
        return folded_out_2(rows, sums, tiles, bias, low, high)
    return tiles_out_2(rows, sums, tiles, bias, low, high)


@part
def products(kind, m, planes, weights, sums, tiles, quarters):
    """All planes of a group of tiles for one or two blocks of output channels (kind 0: folded)."""
    count = (m + 2) * (m + 2)
    most = PAIR_ROWS if kind == 2 else SINGLE_ROWS
    step = CELL * quarters if kind == 0 else 4 * CELL * quarters * kind
    for plane in range(count):
        for first in range(0, tiles, most):
            size = min(most, tiles - first)
            source = planes + plane * PLANE + first * CELL
            target = sums + plane * SUMS + first * CELL
            if kind == 2:
                pair(size, source, weights, target, quarters, count * PLANE)
            elif kind == 1:
                single(size, source, weights, target, quarters, count * PLANE)
            else:
                folding(size, source, weights, target, quarters, count * PLANE)
        weights += step
    return weights


@part
def winograd_band(call, stages, numbers, strip, memory, stage, band):
    """A layer by Winograd's transforms: groups of tiles, block by block of channels."""
    m = call[table.STEP]
    left, right = strip[stage, table.LEFT], strip[stage, table.RIGHT]
    low, high = numbers[stage, table.LEAST], numbers[stage, table.MOST]
    rows = memory + call[table.TABLES]
    planes, sums = memory + call[table.TILES], memory + call[table.SUMS]
    tiles = (right - left) // m
    quarters = stages[stage, table.QUARTERS]
    plane_block = (m + 2) * (m + 2) * PLANE
    fold = stages[stage, table.FOLDING]
    blocks = 1 if fold else stages[stage, table.BLOCKS]
    for first in range(0, tiles, GROUP):
        size = min(GROUP, tiles - first)
        column = left + first * m
        for block in range(-(-quarters // 4)):
            for row in range(m + 2):
                line = band * m - 1 + row
                address = cell(memory, stages, strip, stage - 1, line, block, column - 1)
                lanes.put(rows, row, address)
            transform(m, rows, planes + block * plane_block, size)
        weights, bias = stages[stage, table.WEIGHTS], stages[stage, table.BIAS]
        block, unusual = 0, 0
        while block < blocks:
            kind = 0 if fold else PAIR if blocks - block >= PAIR else 1
            weights = products(kind, m, planes, weights, sums, size, quarters)
            for vector in range(max(1, kind)):
                for row in range(m):
                    address = cell(memory, stages, strip, stage, band * m + row, block, column)
                    lanes.put(rows, row, address)
                found = back(m, fold, rows, sums + vector * GROUP * CELL, size, bias, low, high)
                unusual |= found
                bias += CELL
                block += 1
        for tile in range(size):
            if unusual >> tile & 1:
                plain_tile(call, stages, numbers, strip, memory, stage, band, column + tile * m)


@part
def plain_tile(call, stages, numbers, strip, memory, stage, band, column):
    """A tile without transforms, in which infinities and NaN stay within their windows."""
    m, channels = call[table.STEP], stages[stage, table.INPUTS]
    blocks, plain = stages[stage, table.BLOCKS], stages[stage, table.PLAIN]
    low = lanes.splat(numbers[stage, table.LEAST])
    high = lanes.splat(numbers[stage, table.MOST])
    for pixel in range(m * m):
        row, x = band * m + pixel // m, column + pixel % m
        for block in range(blocks):
            total = lanes.load(stages[stage, table.BIAS] + block * CELL, 0)
            for tap in range(9):
                for channel in range(channels):
                    source = cell(
                        memory, stages, strip, stage - 1, row - 1 + tap // 3, channel // 16,
                        x - 1 + tap % 3,
                    )  # fmt: skip
                    weight = lanes.load(plain, 16 * ((tap * channels + channel) * blocks + block))
                    one = lanes.splat(lanes.number(source, channel % 16))
                    total = lanes.fused(one, weight, total)
            total = lanes.at_most(lanes.at_least(total, low), high)
            place = cell(memory, stages, strip, stage, row, block, x)
            for lane in range(stages[stage, table.CELL] // 4):
                lanes.put_number(place, lane, lanes.lane(total, lane))


@part
def finish_band(call, stages, numbers, strip, memory, stage, band, image):
    """What limits do not say, once the sums lie in the ring: a residual, an activation."""
    left, right = strip[stage, table.LEFT], min(strip[stage, table.RIGHT], call[table.WIDTH])
    low = lanes.splat(numbers[stage, table.LOW])
    high = lanes.splat(numbers[stage, table.HIGH])
    kind, added = stages[stage, table.ACTIVATION], stages[stage, table.ADDED]
    spare, zero = memory + call[table.SPARE], lanes.splat(0.0)
    top = band * call[table.STEP]
    for row in range(top, min(top + call[table.STEP], call[table.HEIGHT])):
        for block in range(stages[stage, table.BLOCKS]):
            if added:
                residual_in(stages, stage, row, block, left, right, spare, added, image)
            slopes = lanes.load(stages[stage, table.SLOPES], 16 * block)
            cells = cell(memory, stages, strip, stage, row, block, left)
            for column in range(right - left):
                value = lanes.load(cells, 16 * column)
                extra = lanes.load(spare, 16 * column) if added else zero
                value = activate(kind, lanes.add(value, extra), low, high, slopes)
                lanes.store(cells, 16 * column, value)


@part
def residual_in(stages, stage, row, block, left, right, target, added, image):
    """A block of a row of the residual, sixteen channels of a column side by side."""
    channel_step = stages[stage, table.ADDED_CHANNEL]
    column_step = stages[stage, table.ADDED_COLUMN]
    inside = min(16, stages[stage, table.OUTPUTS] - 16 * block)
    first = image * stages[stage, table.ADDED_IMAGE] + row * stages[stage, table.ADDED_ROW]
    first += 16 * block * channel_step + left * column_step
    count = right - left
    start = np.int64(0)
    blocks_in(
        added + 4 * first, channel_step, column_step, inside, start, count, count, target, count
    )


@part
def borders(call, stages, strip, memory, stage, band):
    """Zeros in a band of a ring wherever it lies outside the picture."""
    left, right = strip[stage, table.LEFT], strip[stage, table.RIGHT]
    for row in range(band * call[table.STEP], (band + 1) * call[table.STEP]):
        if row >= call[table.HEIGHT]:
            clear_row(memory, stages, strip, stage, row, left - 1, right + 1)
            continue
        if left == 0:
            clear_row(memory, stages, strip, stage, row, np.int64(-1), np.int64(0))
        if right >= call[table.WIDTH]:
            clear_row(memory, stages, strip, stage, row, call[table.WIDTH], right + 1)


@part
def result_band(call, stages, strip, memory, stage, band, image):
    """A band of the last ring into the result."""
    left, right = strip[stage, table.LEFT], min(strip[stage, table.RIGHT], call[table.WIDTH])
    shuffle = call[table.SHUFFLE]
    steps = call[table.RESULT_CHANNEL], call[table.RESULT_ROW], call[table.RESULT_COLUMN]
    each = stages[stage, table.CELL]
    block_step = stages[stage, table.COLUMNS] * each
    top = band * call[table.STEP]
    for row in range(top, min(top + call[table.STEP], call[table.HEIGHT])):
        source = cell(memory, stages, strip, stage, row, np.int64(0), left)
        target = image + 4 * shuffle * (row * steps[1] + left * steps[2])
        outputs = stages[stage, table.OUTPUTS]
        row_out(source, block_step, each, outputs, shuffle, right - left, target, steps)


@njit(
    types.void(_CALL, _INTS, _REALS, _INTS, *[types.intp] * 4),
    cache=True,
    nogil=True,
)
def run_strip(call, stages, numbers, strip, memory, image, picture, result):
    """One strip of one image: all its bands through all stages."""
    last = stages.shape[0] - 1
    bands = call[table.BANDS]
    start, end = strip[0, table.FIRST], strip[last, table.LAST]
    for stage in range(last):
        if strip[stage, table.FIRST] == 0:
            left, right = strip[stage, table.LEFT] - 1, strip[stage, table.RIGHT] + 1
            clear_row(memory, stages, strip, stage, np.int64(-1), left, right)
    for step in range(start, end + last):
        for stage in range(last + 1):
            band = step - stage
            if band == bands and stage < last:
                left, right = strip[stage, table.LEFT] - 1, strip[stage, table.RIGHT] + 1
                clear_row(memory, stages, strip, stage, band * call[table.STEP], left, right)
            if band < strip[stage, table.FIRST] or band >= strip[stage, table.LAST]:
                continue
            if stage == 0:
                picture_band(call, stages, strip, memory, band, picture)
                continue
            if stages[stage, table.KIND] == table.FEW:
                few_band(call, stages, numbers, strip, memory, stage, band)
            else:
                winograd_band(call, stages, numbers, strip, memory, stage, band)
            if stages[stage, table.FINISHED]:
                finish_band(call, stages, numbers, strip, memory, stage, band, image)
            if stage < last:
                borders(call, stages, strip, memory, stage, band)
            else:
                result_band(call, stages, strip, memory, stage, band, result)
