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
from tilewright.backends.host.kernels.lanes import put, whole
from tilewright.backends.host.kernels.whole_rows import (
    copied_row,
    divided,
    few_rows,
    floats,
    taken_row,
)
from tilewright.backends.host.kernels.whole_tile import (
    COLUMNS,
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
# What a worker's scratch holds: sums of a tile, a few bytes of pixels that are none, tables.
SUMS = 4 * LANES * (PIXELS[VECTORS] * VECTORS + 4)
SPARE = 64 * COLUMNS * SINGLE
MOST = 1 << 12  # pieces of a window
SCRATCH = SUMS + SPARE + 8 * MOST * (SINGLE + 1) + 256
helper = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


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
def finished(stage, sums, vectors, scale, channel, left, groups, outs, count):
    """What is left to do of a tile: `groups` are where its groups' results begin, in `outs`."""
    for slot in range(count):
        to, valid = whole(outs, 3 * slot + 1), whole(outs, 3 * slot + 2)
        at = sums + 4 * LANES * vectors * COLUMNS * slot
        if stage.kind == table.FEW:
            few_rows(stage, sums, slot, to, valid)
        elif stage.kind == table.FLOATS:
            floats(stage, at, vectors, scale, to, channel, valid, left)
        elif stage.kind == table.DIVIDED:
            divided(stage, at, vectors, scale, to + channel, valid, left)
        elif valid < COLUMNS:
            for pixel in range(valid):
                source = groups + 64 * (slot * COLUMNS + pixel)
                copy(to + channel + pixel * stage.channels, source, left)


@helper
def windows(stage, before, memory, image, row, lines):
    """Where the rows of the windows of a row of results begin."""
    for tap in range(stage.taps):
        y = row * stage.stride - stage.top + tap * stage.dilation
        put(lines, tap, row_at(before, memory, image, y))


@helper
def block_rows(stages, number, memory, image, first, last, scratch, block):
    """Some channels of some rows of a layer: `block` is group, first channel, vectors."""
    stage, before = stages[number], stages[number - 1]
    group, channel, vectors = block
    slots = SINGLE if vectors == 1 else PAIR
    sums, spare = scratch, scratch + SUMS
    places = spare + SPARE
    outs, lines = places + 8 * MOST * SINGLE, places + 8 * MOST * SINGLE + 128
    left = min(LANES * vectors, stage.outputs - channel)
    skipped = channel // LANES
    weights = stage.weights + group * stage.group_weights
    weights += skipped * 4 * LANES * stage.taps * stage.splits * stage.quads
    weights = weights if stage.kind != table.FEW else stage.weights
    start = stage.start + group * stage.group_starts + 4 * channel
    scale = stage.scale + group * stage.group_starts + 4 * channel
    ends = stage.ends + group * stage.group_ends + skipped * (64 + 32)
    flag = 1 if stage.shuffle == 2 else 0
    at = group * stage.outputs + channel
    kind = stage.kind
    to_bytes = kind == table.BYTES
    filled = 0
    for row in range(first, last):
        windows(stage, before, memory, image, row, lines)
        if to_bytes or kind == table.DIVIDED:
            result = row_at(stage, memory, image, row) + stage.margin
        else:
            result = stage.base + 4 * (
                image * stage.out_image + row * stage.shuffle * stage.out_row
            )
        for column in range(0, stage.width, COLUMNS):
            begin = max(0, min(column, stage.width - COLUMNS))
            valid = min(COLUMNS, stage.width - begin)
            skip = begin * stage.pixel + group * stage.inputs
            for tap in range(stage.taps):
                line = whole(lines, tap) + skip
                for split in range(stage.splits):
                    piece = (tap * stage.splits + split) * slots
                    put(places, piece + filled, line + split * stage.piece)
            if to_bytes or kind == table.DIVIDED:
                to = result + begin * stage.channels
            else:
                to = result + 4 * begin * stage.shuffle * stage.out_pixel
            put(outs, 3 * filled + 1, to)
            put(outs, 3 * filled + 2, valid)
            put(outs, 3 * filled, to + at if valid == COLUMNS else spare + 64 * COLUMNS * filled)
            filled += 1
            last_one = row + 1 == last and column + COLUMNS >= stage.width
            if filled < slots and not last_one:
                continue
            for empty in range(filled, slots):
                for piece in range(stage.taps * stage.splits):
                    put(places, piece * slots + empty, whole(places, piece * slots))
                put(outs, 3 * empty, whole(outs, 0))
            step = stage.channels if valid == COLUMNS else 64
            for slot in range(slots):
                put(lines + 8 * 64, slot, whole(outs, 3 * slot))
            tile(
                kind, vectors,
                (places, stage.taps * stage.splits, stage.quads, stage.pixel, weights, start, ends,
                 lines + 8 * 64 if to_bytes else sums, step,
                 flag if kind == table.FEW else left),
            )  # fmt: skip
            if not to_bytes or valid < COLUMNS:
                finished(stage, sums, vectors, scale, at, left, spare, outs, filled)
            filled = 0


@njit(nogil=True, cache=True)
def run_strip(stages, jobs, memory, image, scratch):
    """All jobs of a strip of an image."""
    for job in range(len(jobs)):
        number, first, last = jobs[job, 0], jobs[job, 1], jobs[job, 2]
        if number == 0:
            source_rows(stages[0], memory, image, first, last, scratch)
            continue
        stage = stages[number]
        for group in range(stage.groups):
            channel = 0
            while channel < stage.outputs:
                vectors = VECTORS if stage.outputs - channel > LANES else 1
                vectors = 1 if stage.kind == table.FEW else vectors
                block = (group, channel, vectors)
                block_rows(stages, number, memory, image, first, last, scratch, block)
                channel += LANES * vectors
