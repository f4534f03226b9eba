"""A strip of rows through a whole chain of int8 convolutions: a few rows of each layer at a time.

    job     0    1    2    3    4   ...      rows of x are rounded, or copied, to a ring of rows;
    x       r0   r1        r2                each layer's rows follow as soon as those below and
    layer 1           r0        r1           above them are there, into a ring of its own; those
    layer 2                ...               of the last go to the result

Jobs are listed in advance (`conv_whole_plan`): stage, first row, row after the last. A ring holds
the rows that somebody still reads, and beside them what stands for 0; so does a row outside.

    a job: block after block of channels, whose weights stay in the cache while the rows pass;
    in it tile after tile: groups of COLUMNS pixels, the last of a row ends with the row
"""

from __future__ import annotations

from numba import njit

from tilewright.backends.host.kernels import whole_table as table
from tilewright.backends.host.kernels.atomics import copy
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import put, whole
from tilewright.backends.host.kernels.whole_depth import CHANNELS as DEPTH
from tilewright.backends.host.kernels.whole_depth import PIXELS as DEPTH_PIXELS
from tilewright.backends.host.kernels.whole_depth import depth_one, depth_two
from tilewright.backends.host.kernels.whole_rows import (
    copied_row,
    divided,
    few_rows,
    floats,
    taken_row,
)
from tilewright.backends.host.kernels.whole_tile import (
    COLUMNS,
    FEW_PIXELS,
    GROUPS,
    PIXELS,
    VECTORS,
    bytes_pair,
    bytes_single,
    few,
    sums_pair,
    sums_single,
)

LANES = 16
SINGLE, PAIR = GROUPS[1], GROUPS[VECTORS]
FEW_ROW = 4 * FEW_PIXELS  # bytes of one output's, or half a row's, in that room
MOST = 1 << 12  # pieces of a window
ENDS = 4 * LANES + 32  # bytes of the ends of sixteen channels
# Where a worker's room holds what, after sums of a tile: bytes of pixels of which not all are
# there; where groups' results go, and which they are; where pieces of windows begin.
SPARE = 4 * LANES * (PIXELS[VECTORS] * VECTORS + 4)
PLACES = SPARE + 64 * COLUMNS * SINGLE
RESULTS = PLACES + 64
LINES = RESULTS + 128
TABLE = LINES + 8 * MOST
SCRATCH = TABLE + 8 * MOST * SINGLE


@helper
def row_at(stage, memory, image, row):
    """Where a row of a stage begins: the row outside where it is none."""
    if row < 0 or row >= stage.height:
        return memory + stage.outside
    base = stage.base + image * stage.image if stage.fixed else memory + stage.base
    return base + row % stage.rows * stage.line


@helper
def source_rows(stage, memory, image, first, last, run):
    """Rows of x into their ring."""
    for row in range(first, last):
        to = row_at(stage, memory, image, row) + stage.margin
        begin = image * stage.x_image + row * stage.x_row
        if stage.kind == table.TAKEN:
            taken_row(stage, stage.x + 4 * begin, to, run)
        else:
            copied_row(stage, stage.x + begin, to)


@helper
def tile(kind, vectors, arguments):
    """The sums of some groups, and their end."""
    if kind == table.FEW:
        few(*arguments)
    elif kind == table.BYTES and vectors == 1:
        bytes_single(*arguments)
    elif kind == table.BYTES:
        bytes_pair(*arguments)
    elif vectors == 1:
        sums_single(*arguments)
    else:
        sums_pair(*arguments)


@helper
def finished(stage, room, vectors, scale, channels, filled):
    """What is left to do of a tile's groups, of which `filled` are there."""
    channel, left = channels
    for slot in range(filled):
        to, valid = whole(room + RESULTS, 2 * slot), whole(room + RESULTS, 2 * slot + 1)
        at = room + 4 * LANES * vectors * COLUMNS * slot
        if stage.kind == table.FEW:
            few_rows(stage, room, slot, to, valid)
        elif stage.kind == table.FLOATS:
            floats(stage, at, vectors, scale, to, channel, valid, left)
        elif stage.kind == table.DIVIDED:
            divided(stage, at, vectors, scale, to + channel, valid, left)
        elif valid < COLUMNS:
            for pixel in range(valid):
                source = room + SPARE + 64 * (slot * COLUMNS + pixel)
                copy(to + channel + pixel * stage.channels, source, left)


@helper
def windows(stage, before, memory, image, row, skip, lines):
    """Where the pieces of the first window of a row of results begin."""
    for tap in range(stage.taps):
        y = row * stage.stride - stage.top + tap * stage.dilation
        line = row_at(before, memory, image, y) + skip
        for split in range(stage.splits):
            put(lines, tap * stage.splits + split, line + split * stage.piece)


@helper
def result_at(stage, memory, image, row):
    """Where a row of results begins, and bytes from a pixel to the next."""
    if stage.kind == table.BYTES or stage.kind == table.DIVIDED:
        return row_at(stage, memory, image, row) + stage.margin, stage.channels
    place = image * stage.out_image + row * stage.shuffle * stage.out_row
    return stage.base + 4 * place, 4 * stage.shuffle * stage.out_pixel


@helper
def pointed(room, pieces, slots, begin, apart):
    """Where each group of a wide tile reads each piece: `begin` bytes into its line, then apart."""
    for piece in range(pieces):
        line = whole(room + LINES, piece) + begin
        for slot in range(slots):
            put(room + TABLE, piece * slots + slot, line + slot * apart)


@helper
def placed(room, slots, to, apart, at):
    """Where each group of a wide tile writes; all of them are full."""
    for slot in range(slots):
        place = to + slot * apart
        put(room + PLACES, slot, place + at)
        put(room + RESULTS, 2 * slot, place)
        put(room + RESULTS, 2 * slot + 1, COLUMNS)


@helper
def wide_rows(stage, before, memory, image, rows, room, vectors, scale, given, wide):
    """Rows in which a tile's groups lie side by side: the last tile of a row ends with it."""
    first, last = rows
    _, _, quads, pixel, weights, start, ends, outs, step, told = given
    span, pieces, (skip, at, left) = wide
    slots, kind, width, row_step = span // COLUMNS, stage.kind, stage.width, step
    to_bytes = kind == table.BYTES
    dense = to_bytes and left == stage.channels == LANES * vectors  # all of them: no groups
    few_alone = kind == table.FEW and (stage.shuffle == 2 or stage.outputs == 4)
    if few_alone:
        row_step = 4 * (stage.out_row if stage.shuffle == 2 else stage.out_channel)
    for row in range(first, last):
        windows(stage, before, memory, image, row, skip, room + LINES)
        result, apart = result_at(stage, memory, image, row)
        for column in range(0, width, span):
            begin = min(column, width - span)
            to = result + begin * apart
            pointed(room, pieces, slots, begin * pixel, COLUMNS * pixel)
            places = outs
            if dense:
                places, row_step = to, 0
            elif few_alone:
                places = to
            else:
                placed(room, slots, to, COLUMNS * apart, at)
            tile(
                kind, vectors,
                (room + TABLE, pieces, quads, pixel, weights, start, ends, places, row_step, told),
            )  # fmt: skip
            if not (to_bytes or few_alone):
                finished(stage, room, vectors, scale, (at, left), slots)


@helper
def block_rows(stages, number, memory, image, rows, room, block):
    """Some channels of some rows of a layer: `block` is group, first channel, vectors."""
    stage, before = stages[number], stages[number - 1]
    group, channel, vectors = block
    slots = SINGLE if vectors == 1 else PAIR
    pieces, left = stage.taps * stage.splits, min(LANES * vectors, stage.outputs - channel)
    skipped = channel // LANES
    weights = stage.weights + group * stage.group_weights
    weights += skipped * 4 * LANES * pieces * stage.quads
    start = stage.start + group * stage.group_starts + 4 * channel
    scale = stage.scale + group * stage.group_starts + 4 * channel
    ends = stage.ends + group * stage.group_ends + skipped * ENDS
    at, skip, pixel = group * stage.outputs + channel, group * stage.inputs, stage.pixel
    outs = room + PLACES if stage.kind == table.BYTES else room
    step, told = ending(stage, left)
    given = (
        room + TABLE, pieces, stage.quads, pixel, weights, start, ends, outs, step, told
    )  # fmt: skip
    wide = (slots * COLUMNS, pieces, (skip, at, left))
    if stage.width >= slots * COLUMNS:
        wide_rows(stage, before, memory, image, rows, room, vectors, scale, given, wide)
    else:
        narrow_rows(stage, before, memory, image, rows, room, vectors, scale, given, wide)


@helper
def ending(stage, left):
    """What the end of a tile is told: bytes from one pixel's results to the next, and a number."""
    if stage.kind == table.FEW:
        return (2 * FEW_ROW, 1) if stage.shuffle == 2 else (FEW_ROW, 0)
    direct = stage.kind == table.BYTES and stage.width >= COLUMNS
    return stage.channels if direct else 64, left


@helper
def narrow_rows(stage, before, memory, image, rows, room, vectors, scale, given, wide):
    """Rows narrower than a tile: its groups are of several rows, the last of a row ends with it."""
    first, last = rows
    span, pieces, (skip, at, left) = wide
    slots, kind, width, pixel = span // COLUMNS, stage.kind, stage.width, stage.pixel
    direct = kind == table.BYTES and width >= COLUMNS
    valid = min(COLUMNS, width)
    filled = 0
    for row in range(first, last):
        windows(stage, before, memory, image, row, skip, room + LINES)
        result, apart = result_at(stage, memory, image, row)
        for column in range(0, width, COLUMNS):
            begin = max(0, min(column, width - COLUMNS))
            further, to = begin * pixel, result + begin * apart
            for piece in range(pieces):
                line = whole(room + LINES, piece) + further
                put(room + TABLE, piece * slots + filled, line)
            place = to + at if direct else room + SPARE + 64 * COLUMNS * filled
            put(room + PLACES, filled, place)
            put(room + RESULTS, 2 * filled, to)
            put(room + RESULTS, 2 * filled + 1, valid)
            filled += 1
            if filled < slots and (row + 1 < last or column + COLUMNS < width):
                continue
            for empty in range(filled, slots):
                repeated(room, pieces, slots, empty)
            tile(kind, vectors, given)
            if not direct:
                finished(stage, room, vectors, scale, (at, left), filled)
            filled = 0


@helper
def repeated(room, pieces, slots, empty):
    """A group that is not there does what the first does."""
    put(room + PLACES, empty, whole(room + PLACES, 0))
    for piece in range(pieces):
        put(room + TABLE, piece * slots + empty, whole(room + TABLE, piece * slots))


@helper
def depth_rows(stages, number, memory, image, rows, room, channel):
    """Up to 64 channels, each by itself, of some rows of a layer."""
    stage, before = stages[number], stages[number - 1]
    first, last = rows
    width, pixel, apart = stage.width, stage.pixel, stage.channels
    block, left = channel // DEPTH, min(DEPTH, stage.outputs - channel)
    weights, start = stage.weights + block * stage.group_weights, stage.start + 4 * channel
    ends, taps = stage.ends + block * stage.group_ends, stage.taps
    stride, one = before.channels, pixel == before.channels
    for row in range(first, last):
        windows(stage, before, memory, image, row, channel, room + LINES)
        result = row_at(stage, memory, image, row) + stage.margin + channel
        for column in range(0, width, DEPTH_PIXELS):
            begin = min(column, width - DEPTH_PIXELS)
            for tap in range(taps):
                put(room + TABLE, tap, whole(room + LINES, tap) + begin * pixel)
            out = result + begin * apart
            given = (room + TABLE, taps, stride, weights, start, ends, out, apart, left)
            if one:
                depth_one(*given)
            else:
                depth_two(*given)


@njit(nogil=True, cache=True)
def run_strip(stages, jobs, memory, image, scratch):
    """All jobs of a strip of an image."""
    for job in range(len(jobs)):
        number, first, last = jobs[job, 0], jobs[job, 1], jobs[job, 2]
        if number == 0:
            source_rows(stages[0], memory, image, first, last, scratch)
            continue
        stage = stages[number]
        if stage.kind == table.DEPTH:
            for channel in range(0, stage.outputs, DEPTH):
                depth_rows(stages, number, memory, image, (first, last), scratch, channel)
            continue
        for group in range(stage.groups):
            # Counted by `range`: of a variable that begins as 0 Numba compiles all this twice.
            step = LANES if stage.kind == table.FEW else LANES * VECTORS
            for channel in range(0, stage.outputs, step):
                vectors = VECTORS if step > LANES and stage.outputs - channel > LANES else 1
                block = (group, channel, vectors)
                block_rows(stages, number, memory, image, (first, last), scratch, block)
