"""Products of a batch, each with sizes of its own: the tasks of `backends/host/grouped.py`.

    task    a run of tiles of C; a tile is a block of one product's C, as the planner cut it

          panel of B: the widest vectors of columns x up to CHAIN steps of k
              +----+----+----+
              |    | B  |    |          for each chain of k
              +----+----+----+              A copied, if many panels read it and it lies badly
    +-----+   +----+----+----+              for each panel: B copied, if many rows read it
    |  A  |   |    |####|    | <- ROWS          for each ROWS rows: sums in registers
    +-----+   +----+----+----+
              tile of C

A small product is read where it lies. While registers multiply, what the next panel, chain or tile
reads and writes is asked for by a list of addresses, a few of them between steps of k: batches of
1..256 took 39 ms without any of it, 29 with all of the next tile asked for, a share after each
product of registers, on two cores of an EPYC (Zen 4). Hundreds of lines at once kept a core
waiting: of 64..512 it reached 92 GFLOP/s so, 98 by the list, and 107 of its 116 where all lies in
the caches. Sums of a chain go straight to C, or are added there, where nothing else is asked; where
alpha, beta, a bias or an activation is, or C's columns do not follow each other, they go through
memory that stays in the first cache. Whoever computes a tile, its bits are the same.

`zero` is a 0 of the elements' type, for which each function is compiled.
"""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np
from numba import cfunc, types

from tilewright.backends.host.kernels.grouped_ends import copy_row, finish
from tilewright.backends.host.kernels.grouped_tile import (
    ADDS,
    CLIPS,
    ENTRIES,
    GROUPS,
    LINE,
    MASKS,
    PIECE,
    PITCH,
    REGISTER,
    ROWS,
    WIDEST,
    multiply,
    multiply_at,
    narrowed,
    number,
    prefetch,
    put,
)
from tilewright.backends.host.kernels.helpers import helper, kept_helper
from tilewright.backends.host.kernels.lanes import put as note
from tilewright.backends.host.kernels.lanes import whole
from tilewright.backends.host.kernels.panel_tile import copy_panel
from tilewright.backends.host.kernels.step_table import CUTS, MULTIPLY, QUEUE, TASKS
from tilewright.backends.host.kernels.turned_tile import turn

CHAIN = 256  # steps of k that are summed one by one; also the depth of a panel
TILE, RECORD = 5, 16  # words: of a tile record, row, column, rows, columns; of a product's record
# Words of a record; arrays/record.py has the first thirteen, strides in bytes here.
A, B, C, BIAS, M, N, K, A_ROW, A_COL, B_ROW, B_COL, C_ROW, C_COL, ALPHA, BETA, ENDS = range(RECORD)
RELU, GELU, PLAIN = 1, 2, 4  # bits of ENDS; PLAIN: C is the sums, nothing else
PART = 5  # words of a piece of a sum: record, first part, parts, row, rows
BLOCK, PANEL = 24, 128  # what tiles are cut at: rows, blocks of any register; bytes of columns
_GAP = 64  # bytes between copied rows of A, so that they do not meet in the first cache
# Copying pays from so many rows that read a panel of B of so many bytes; panels that read A.
_ROWS_OF_B, _BYTES_OF_B, _PANELS_OF_A = 3 * ROWS, 8192, 4
_BAD = 2048  # rows of A a multiple of these bytes apart share sets of the first cache
# Operations from which on a product asks between its steps of k for what comes next.
_LARGE = 1 << 19
WORTH = 1 << 15  # operations beside which fetching ahead costs less than it saves
_SOON = 4096  # addresses of what comes next, at most
AHEAD = 8 * (_SOON + ENTRIES)  # bytes of them


def scratch(rows, item):
    """Bytes of a thread's own: sums, a panel of B, so many rows of A."""
    return AHEAD + (ROWS + CHAIN) * PITCH + rows * (CHAIN * item + _GAP)


@kept_helper
def _gather(zero, item, source, row, col, rows, cols, target, pitch):
    """[rows][cols] elements however they lie, to rows whose elements follow each other."""
    if col == item:
        for r in range(rows):
            copy_row(zero, source + r * row, target + r * pitch, cols)
    elif row == item and rows >= REGISTER // item:
        lanes = REGISTER // item
        for r in range(0, rows, lanes):
            first = min(r, rows - lanes)
            for c in range(0, cols, lanes):
                here, there = source + first * row + c * col, target + first * pitch + c * item
                turn(zero, here, col, there, pitch, min(lanes, cols - c))
    else:
        for c in range(cols):
            for r in range(rows):
                put(zero, target + r * pitch + c * item, number(zero, source + r * row + c * col))


@helper
def _scattered(zero, item, sums, c, c_col, count, alpha, beta, bias, ends):
    """One row of C, whose elements may lie anywhere."""
    for i in range(count):
        value = alpha * number(zero, sums + i * item)
        if beta != 0:
            value += beta * number(zero, c + i * c_col)
        if bias:
            value += number(zero, bias + i * item)
        if ends & RELU and value < 0:
            value = zero
        if ends & GELU:
            value = narrowed(zero, value * 0.5 * (1 + math.erf(value * math.sqrt(0.5))))
        put(zero, c + i * c_col, value)


@kept_helper
def _finished(zero, item, sums, rows, cols, record, c, bias, first, last):
    """Sums to C: beta where they are the `first` chain's, what ends a product after the `last`."""
    alpha = narrowed(zero, number(0.0, record + 8 * ALPHA))
    beta = narrowed(zero, number(0.0, record + 8 * BETA)) if first else narrowed(zero, 1.0)
    c_row, c_col = whole(record, C_ROW), whole(record, C_COL)
    ends = whole(record, ENDS) & (RELU | GELU) if last else 0
    shift = bias if last else 0
    for r in range(rows):
        here, there = sums + r * PITCH, c + r * c_row
        if c_col == item and not ends & GELU:
            finish(zero, here, there, cols, alpha, beta, shift, ends & RELU)
        else:
            _scattered(zero, item, here, there, c_col, cols, alpha, beta, shift, ends)


@helper
def _noted(ahead, count, item, place, row, col, rows, cols):
    """Note a matrix behind `count` addresses, `PIECE` bytes each, if its rows or columns lie in one
    piece; how many there are then. Counted before they are noted, so that LLVM writes vectors: one
    by one, each looking whether there is room, they took 5 cycles each, 3 % of batches of 64..512.
    """
    if row == item:
        row, col, rows, cols = col, row, cols, rows
    if row == cols * item and col == item:  # one piece
        start = place & -LINE
        pieces = min(-(-(place - start + rows * row) // PIECE), _SOON - count)
        for piece in range(pieces):
            note(ahead, count + piece, start + piece * PIECE)
        count += pieces
    elif col == item and cols * item <= PIECE:
        rows = min(rows, _SOON - count)
        for r in range(rows):
            note(ahead, count + r, place + r * row)
        count += rows
    elif col == item:
        pieces = -(-cols * item // PIECE)
        rows = min(rows, (_SOON - count) // pieces)
        for r in range(rows):
            for piece in range(pieces):
                note(ahead, count + piece, place + r * row + piece * PIECE)
            count += pieces
    return count


@helper
def even(size, most, step):
    """Rows, or columns, of tiles of at most so many, as even as multiples of `step` are."""
    count = max(-(-size // most), 1)
    return step * -(-size // (count * step))


@helper
def evened(depth, chain):
    """Steps of k of a chain: at most so many, and all of one length but for the last."""
    return -(-depth // -(-depth // chain)) if depth > chain else max(depth, 1)


@kept_helper
def foreseen(ahead, item, result, chain, width, entry, following, begin, col):
    """Note what is read and written after the panel at column `col` of the chain from `begin` on.

    The next panel's B and C, and a share of what the next chain reads of A: no more than is soon
    used, or it is gone from the second cache before. A panel has `width` columns, an element of C
    `result` bytes. Returns how many addresses that are.
    """
    count, panel = 0, 0
    depth, cols = whole(whole(entry, 0), K), whole(entry, 4)
    steps = evened(depth, chain)
    next_, start = (entry, begin + steps) if begin + steps < depth else (following, 0)
    of_a, start_a = next_, start
    if col + width < cols:
        next_, start, panel = entry, begin, col + width
    if next_:
        record, rows = whole(next_, 0), whole(next_, 3)
        b_row, b_col = whole(record, B_ROW), whole(record, B_COL)
        c_row, c_col = whole(record, C_ROW), whole(record, C_COL)
        wide, across = min(width, whole(next_, 4) - panel), whole(next_, 2) + panel
        b = whole(record, B) + start * b_row + across * b_col
        c = whole(record, C) + whole(next_, 1) * c_row + across * c_col
        steps = min(evened(whole(record, K), chain), whole(record, K) - start)
        count = _noted(ahead, count, item, b, b_row, b_col, steps, wide)
        count = _noted(ahead, count, result, c, c_row, c_col, rows, wide)
    if of_a:
        record, rows = whole(of_a, 0), whole(of_a, 3)
        from_, to = 0, rows
        if cols > width:
            parts = -(-cols // width)
            from_, to = rows * (col // width) // parts, rows * (col // width + 1) // parts
        a_row, a_col = whole(record, A_ROW), whole(record, A_COL)
        a = whole(record, A) + (whole(of_a, 1) + from_) * a_row + start_a * a_col
        steps = min(evened(whole(record, K), chain), whole(record, K) - start_a)
        count = _noted(ahead, count, item, a, a_row, a_col, to - from_, steps)
    return count


@kept_helper
def fetched(soon, stop):
    """Ask for what a list of addresses stands for."""
    for entry in range(soon, stop, 8):
        place = whole(entry, 0)
        prefetch(place)
        prefetch(place + LINE)
        if place & (LINE - 1):
            prefetch(place + PIECE - 1)


@helper
def _direct(item, record):
    """Whether registers end a product: C's columns follow each other, alpha is 1, beta 0 or 1, and
    gelu does not follow. Then ADDS and CLIPS, where they are asked for."""
    ends = whole(record, ENDS)
    if ends & PLAIN:
        return True, 0, 0
    beta = number(0.0, record + 8 * BETA)
    alone = number(0.0, record + 8 * ALPHA) == 1 and (beta == 0 or beta == 1)
    direct = alone and whole(record, C_COL) == item and not ends & GELU
    return direct, ADDS if beta == 1 else 0, CLIPS if ends & RELU else 0


@kept_helper
def run_tile(zero, item, code, entry, following, scratch):
    """One tile; `code` is the address of `multiply`, `following` the tile after it, or 0."""
    lanes = REGISTER // item
    columns = lanes * WIDEST
    together = max(columns, PIECE // item)  # columns of panels that are asked for at once
    ahead, sums = scratch, scratch + AHEAD
    panel = sums + ROWS * PITCH
    copied, gap = panel + CHAIN * PITCH, CHAIN * item + _GAP
    record, row, col = whole(entry, 0), whole(entry, 1), whole(entry, 2)
    rows, cols, depth = whole(entry, 3), whole(entry, 4), whole(record, K)
    a_row, a_col = whole(record, A_ROW), whole(record, A_COL)
    b_row, b_col = whole(record, B_ROW), whole(record, B_COL)
    c_row, c_col = whole(record, C_ROW), whole(record, C_COL)
    a, b = whole(record, A) + row * a_row, whole(record, B) + col * b_col
    c, bias = whole(record, C) + row * c_row + col * c_col, whole(record, BIAS)
    direct, adds, clips = _direct(item, record)
    badly = a_col != item or (a_row % _BAD == 0 and rows > 4)
    copies_a = badly and cols > _PANELS_OF_A * columns
    chain = evened(depth, CHAIN)
    soon, stop, share = ahead, ahead, 0
    large = ENTRIES > 0 and rows * cols * min(chain, depth) >= _LARGE
    begin = 0
    while True:
        steps = min(chain, depth - begin)
        first, last = begin == 0, begin + steps >= depth
        a_at, a_by, a_step = a + begin * a_col, a_row, a_col
        if copies_a:
            _gather(zero, item, a_at, a_row, a_col, rows, steps, copied, gap)
            a_at, a_by, a_step = copied, gap, item
        copies = b_col != item or (rows >= _ROWS_OF_B and steps * columns * item >= _BYTES_OF_B)
        for j in range(0, cols, columns):
            wide = min(columns, cols - j)
            vectors = -(-wide // lanes)
            fits = MASKS or wide == vectors * lanes
            b_at, b_by = b + begin * b_row + j * b_col, b_row
            if copies or not fits:
                if MASKS and b_col == item:
                    copy_panel(zero, b_at, b_row, panel, steps, wide)
                else:
                    _gather(zero, item, b_at, b_row, b_col, steps, wide, panel, PITCH)
                b_at, b_by = panel, PITCH
            if rows * cols * steps >= WORTH and j % together == 0:
                coming = foreseen(
                    *(ahead, item, item, CHAIN, together, entry, following, begin, j),
                )
                stop = ahead + 8 * coming
                calls = -(-rows // ROWS) * -(-min(together, cols - j) // columns)
                soon, share = ahead, 8 * -(-coming // calls)
            straight = direct and fits
            ends = 0
            if straight:
                ends = (adds if first else ADDS) | (clips if last else 0)
            shift = bias + (col + j) * item if bias else 0
            beside = shift if straight and last else 0
            i = 0
            while i < rows:
                left = rows - i
                high, groups = min(left, ROWS), 1
                if ROWS < left < 2 * ROWS:
                    high = (left + 1) // 2
                elif straight:  # what is left over goes with the last whole rows
                    groups = max(1, min(GROUPS, left // ROWS - (left % ROWS > 0)))
                place = c + i * c_row + j * c_col
                to, pitch = (place, c_row) if straight else (sums, PITCH)
                rest = wide - (vectors - 1) * lanes
                if rest < lanes and b_at == panel:  # whose rows are whole vectors
                    rest = -rest
                a_now, after = a_at + i * a_by, i + high * groups
                if after >= rows:
                    after = 0
                asks = soon if large else stop
                multiply_at(
                    *(code, high, vectors, a_now, a_by, a_step, b_at, b_by, to, pitch, steps),
                    *(rest, ends, beside, groups, (after - (i + high * (groups - 1))) * a_by),
                    *(asks, stop),
                )
                if large:
                    soon = min(stop, soon + 8 * ENTRIES * groups * -(-steps * item // LINE))
                elif soon < stop:
                    fetched(soon, min(stop, soon + share * groups))
                    soon += share * groups
                if not straight:
                    _finished(zero, item, sums, high, wide, record, place, shift, first, last)
                i += high * groups
        begin += steps
        if last:
            break


@helper
def _tiles(zero, item, step, task, scratch):
    """Tiles of the queue from one cut to the next."""
    cuts, queue, code = whole(step, CUTS), whole(step, QUEUE), whole(step, MULTIPLY)
    tiles = whole(cuts, whole(step, TASKS))
    for tile in range(whole(cuts, task), whole(cuts, task + 1)):
        entry = queue + 8 * TILE * tile
        following = entry + 8 * TILE if tile + 1 < tiles else 0
        run_tile(zero, item, code, entry, following, scratch)


@helper
def _parts(zero, item, step, task):
    """Pieces of products cut along k: parts 0, 1, 2 … of a row are added in that order."""
    cuts, queue = whole(step, CUTS), whole(step, QUEUE)
    one = narrowed(zero, 1.0)
    for piece in range(whole(cuts, task), whole(cuts, task + 1)):
        entry = queue + 8 * PART * piece
        record, parts, count = whole(entry, 0), whole(entry, 1), whole(entry, 2)
        row, rows = whole(entry, 3), whole(entry, 4)
        cols, high = whole(record, N), whole(record, M)
        for r in range(row, row + rows):
            sums = parts + r * cols * item
            for part in range(1, count):
                finish(zero, parts + (part * high + r) * cols * item, sums, cols, one, one, 0, 0)
            c = whole(record, C) + r * whole(record, C_ROW)
            bias = whole(record, BIAS)
            _finished(zero, item, sums, 1, cols, record, c, bias, True, True)


def single_tiles(step, task, scratch):
    """float32."""
    _tiles(np.float32(0), 4, step, task, scratch)


def double_tiles(step, task, scratch):
    """float64."""
    _tiles(0.0, 8, step, task, scratch)


def single_parts(step, task, scratch):
    """float32; nothing of the thread's own is used."""
    _parts(np.float32(0), 4, step, task)


def double_parts(step, task, scratch):
    """float64."""
    _parts(0.0, 8, step, task)


def _single(
    rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes,
    ends, shift, groups, ahead, soon, stop,
):  # fmt: skip
    given = rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes
    multiply(np.float32(0), *given, ends, shift, groups, ahead, soon, stop)


def _double(
    rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes,
    ends, shift, groups, ahead, soon, stop,
):  # fmt: skip
    given = rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes
    multiply(0.0, *given, ends, shift, groups, ahead, soon, stop)


def pieces(item):
    """What tiles are compiled from, a function each that compiles one: who has to end soon waits
    for one of these, and not for all."""
    zero, size = (types.float32 if item == 4 else types.float64), types.literal(item)
    words = [types.int64] * 9
    flags = [types.boolean] * 2
    takes = (
        (_gather, (zero, size, *words[:6], types.literal(PITCH))),
        (_gather, (zero, size, *words[:7])),
        (_finished, (zero, size, *words[:6], *flags)),
        (fetched, (*words[:2],)),
        (foreseen, (types.int64, size, *words[:7])),
        (run_tile, (zero, size, *words[:4])),
    )
    return [partial(function.compile, signature) for function, signature in takes]


@cache
def multiply_code(item):
    """Products of registers as machine code of their own, compiled once; its `address` is where."""
    return cfunc(types.void(*[types.intp] * 17), cache=True)(_single if item == 4 else _double)
