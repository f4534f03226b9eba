"""Products of bfloat16 and int8 of a batch: the tasks of `backends/host/grouped.py` for them.

    task    a run of tiles of C; a tile is a block of one product's C, as the planner cut it

          panel of B: WIDEST vectors of columns x up to CHAIN bytes of k, in words of 32 bits
              +----+----+----+
              |    | B  |    |          for each chain of k
              +----+----+----+              A copied, if it does not lie along k
    +-----+   +----+----+----+              for each panel: B copied, word by word
    |  A  |   |    |####|    | <- ROWS          for each ROWS rows: sums in registers
    +-----+   +----+----+----+
              tile of C

While registers multiply, what the next tile reads and where it writes is asked for, as in
`grouped.py`: int8's results have four times its operands' bytes, and reading their lines before
they were written took a quarter of the time of 64..512.

Products of bfloat16 are summed in float32 until the last: where k has several chains the sums of a
tile wait in memory of the thread. Those of int8 are int32, as their results are; they wait in C.

`zero` is a 0 of a type that says which of the two: uint16 or int8.
"""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np
from numba import cfunc, types

from tilewright.backends.host.kernels import grouped_amx
from tilewright.backends.host.kernels.grouped import (
    A_COL,
    A_ROW,
    AHEAD,
    ALPHA,
    B_COL,
    B_ROW,
    BETA,
    BIAS,
    C_COL,
    C_ROW,
    ENDS,
    GELU,
    PART,
    PLAIN,
    RELU,
    TILE,
    WORTH,
    A,
    B,
    C,
    K,
    M,
    N,
    fetched,
    foreseen,
)
from tilewright.backends.host.kernels.grouped_amx import THERE as TILES
from tilewright.backends.host.kernels.grouped_ends import copy_row
from tilewright.backends.host.kernels.grouped_narrow_rows import (
    add_row,
    as_sum,
    begin,
    copied,
    copy_word,
    pack,
    put_result,
    put_sum,
    put_word,
    result_at,
    scaled,
    shorten,
    sum_at,
)
from tilewright.backends.host.kernels.grouped_narrow_tile import (
    BRAIN_ROWS,
    BYTES,
    MASKS,
    PITCH,
    ROWS,
    WIDEST,
    multiply,
    multiply_at,
)
from tilewright.backends.host.kernels.grouped_tile import REGISTER, number
from tilewright.backends.host.kernels.helpers import helper, kept_helper
from tilewright.backends.host.kernels.lanes import whole
from tilewright.backends.host.kernels.step_table import AMX, CUTS, MULTIPLY, QUEUE, TASKS
from tilewright.backends.host.kernels.turned_tile import turn

CHAIN = 1024  # bytes of a row of A of a chain; also 4 times the depth of a panel
SUMS = 8  # a bit of ENDS: C is the sums themselves, of four bytes, of a part of a product
# Bytes between rows of A that are copied: 64 more, so that they do not meet in the first cache.
_BESIDE = CHAIN + 64
_LANES = BYTES // 4
_COLUMNS = _LANES * WIDEST
# Words that are turned together as if they were float32, and whether that fills rows of a panel.
_TURNED, TURNS = REGISTER // 4, PITCH % REGISTER == 0
_PANEL = (CHAIN // 4 + 1) * PITCH
_SUMS = (grouped_amx.ROWS if TILES else ROWS) * PITCH
# Bytes before a thread's sums. AMX's tiles take twice as long to load from rows that lie across two
# lines; vectors do not gain by lines (on Zen 4 int8 of 1..256 loses: 348 GOP/s for 390).
_BEFORE = -(-AHEAD // grouped_amx.LINE) * grouped_amx.LINE if TILES else AHEAD


def scratch(rows, item):
    """Bytes of a thread's own: sums of a product, a panel of B, rows of A, and sums of a tile.

    So many rows, a multiple of sixteen: AMX's tiles read and write whole ones.
    """
    return _BEFORE + _SUMS + _PANEL + rows * (_BESIDE + 4 * MOST_COLUMNS)


MOST_COLUMNS = 256  # of a tile


@kept_helper
def _panel(zero, item, b, row, col, steps, cols, panel):
    """A panel of B: so many steps of k of so many columns.

    Of a B that lies along k, as weights of linear layers do, the words of a column follow each
    other: they are turned in registers, which takes a third of the time of one by one.
    """
    group = 4 // item
    words, rest = steps // group, steps % group
    if col == item and (MASKS or cols % _LANES == 0):
        pack(zero, b, row, steps, cols, panel)
    else:
        begun = 0  # words that are there
        if row == item and TURNS and words >= _TURNED:
            begun = words
            for word in range(0, words, _TURNED):
                first = min(word, words - _TURNED)
                for c in range(0, cols, _TURNED):
                    here, there = b + c * col + 4 * first, panel + PITCH * (1 + first) + 4 * c
                    turn(np.float32(0), here, col, there, PITCH, min(_TURNED, cols - c))
        for c in range(cols):
            here, there = b + c * col, panel + PITCH + 4 * c
            if row == item:
                for word in range(begun, words):
                    copy_word(zero, here + 4 * word, there + word * PITCH)
            else:
                for word in range(words):
                    put_word(zero, here + group * word * row, row, there + word * PITCH, group)
            if rest:
                put_word(zero, here + group * words * row, row, there + words * PITCH, rest)


@helper
def _ended(zero, item, sums, cols, record, c, bias):
    """A row of sums, in place: what ends a product. C is read where beta is not 0."""
    c_col, ends = whole(record, C_COL), whole(record, ENDS)
    none, one = as_sum(zero, 0.0), as_sum(zero, 1.0)
    alpha = as_sum(zero, number(0.0, record + 8 * ALPHA))
    beta = as_sum(zero, number(0.0, record + 8 * BETA))
    result = 2 if item == 2 else 4
    for i in range(cols):
        value = scaled(zero, alpha, sum_at(zero, sums + 4 * i), none)
        if beta != none:
            value = scaled(zero, beta, result_at(zero, c + i * c_col), value)
        if bias:
            value = scaled(zero, one, result_at(zero, bias + result * i), value)
        if ends & RELU and value < none:
            value = none
        if ends & GELU:
            wide = float(value)
            value = as_sum(zero, wide * 0.5 * (1 + math.erf(wide * math.sqrt(0.5))))
        put_sum(zero, sums + 4 * i, value)


@kept_helper
def _finished(zero, item, sums, pitch, rows, cols, record, c, bias):
    """Sums of a block of a product to C, ended as it asks."""
    c_row, c_col, ends = whole(record, C_ROW), whole(record, C_COL), whole(record, ENDS)
    for r in range(rows):
        here, there = sums + r * pitch, c + r * c_row
        if not ends & PLAIN:
            _ended(zero, item, here, cols, record, there, bias)
        if (ends & SUMS or item == 1) and c_col == 4:
            copy_row(np.float32(0), here, there, cols)
        elif c_col == item:
            shorten(zero, here, there, cols)
        else:
            for i in range(cols):
                put_result(zero, there + i * c_col, sum_at(zero, here + 4 * i))


@kept_helper
def run_tile(zero, item, code, amx, entry, following, scratch):
    """One tile; `code` is the address of `multiply`, `amx` 0 or that of AMX's in its place, and
    `following` the tile after it, or 0."""
    group, most = 4 // item, (ROWS if item == 1 else BRAIN_ROWS)
    ahead, sums, panel = scratch, scratch + _BEFORE, scratch + _BEFORE + _SUMS
    record, row, col = whole(entry, 0), whole(entry, 1), whole(entry, 2)
    rows, cols, depth = whole(entry, 3), whole(entry, 4), whole(record, K)
    own, waiting = panel + _PANEL, panel + _PANEL + rows * _BESIDE
    a_row, a_col = whole(record, A_ROW), whole(record, A_COL)
    b_row, b_col = whole(record, B_ROW), whole(record, B_COL)
    c_row, c_col, ends = whole(record, C_ROW), whole(record, C_COL), whole(record, ENDS)
    a, b = whole(record, A) + row * a_row, whole(record, B) + col * b_col
    c, bias = whole(record, C) + row * c_row + col * c_col, whole(record, BIAS)
    plain = ends & PLAIN and (ends & SUMS or item == 1) and c_col == 4
    unit = group
    if TILES and amx:
        code, most, unit = amx, grouped_amx.ROWS, grouped_amx.LINE // item
    chain = CHAIN // item
    parts = max(1, -(-depth // chain))
    chain = min(chain, unit * -(-depth // (unit * parts)))  # of one length, but for the last
    begun = 0
    while True:
        steps = min(chain, depth - begun)
        last = begun + steps >= depth
        a_at, words, rest, in_place = a + begun * a_col, steps // group, steps % group, rows
        all_words = -(-steps // unit) * unit // group
        if TILES and amx:
            words, rest = steps // unit * grouped_amx.WORDS, steps % unit
            given = a_at, a_row, a_col, rows, steps, own, _BESIDE
            in_place = grouped_amx.lines_of(zero, item, *given)
        elif a_col != item and steps > 1:
            in_place = 0
            copied(zero, item, a_at, a_row, a_col, rows, steps, own, _BESIDE)
        asked, stop, calls = ahead, ahead, -(-rows // most) * -(-cols // _COLUMNS)
        if rows * cols * steps >= WORTH:
            size = 2 if item == 2 else 4
            given = ahead, item, size, CHAIN // item, cols, entry, following, begun, 0
            stop += 8 * foreseen(*given)
        share = 8 * -(-(stop - asked) // (8 * calls))
        for j in range(0, cols, _COLUMNS):
            wide = min(_COLUMNS, cols - j)
            vectors = -(-wide // _LANES)
            _panel(zero, item, b + begun * b_row + j * b_col, b_row, b_col, steps, wide, panel)
            if TILES and amx:
                grouped_amx.fill_panel(zero, panel, -(-steps // group), all_words, vectors)
            else:
                begin(zero, panel, -(-steps // group), vectors)
            straight = plain and wide == vectors * _LANES
            shift = bias + (col + j) * (2 if item == 2 else 4) if bias else 0
            i = 0
            while i < rows:
                high = min(rows - i, most)
                if most < rows - i < 2 * most and not amx:
                    high = (rows - i + 1) // 2
                place = c + i * c_row + j * c_col
                to, pitch = sums, PITCH
                direct = straight and not (amx and high % grouped_amx.SIDE)
                if direct:
                    to, pitch = place, c_row
                elif depth > chain:
                    to, pitch = waiting + i * 4 * MOST_COLUMNS + 4 * j, 4 * MOST_COLUMNS
                here, a_by, of_words, ends_at = a_at + i * a_row, a_row, words, rest
                if amx:
                    ends_at = own + i * grouped_amx.LINE if rest else 0
                if i >= in_place:
                    here, a_by = own + i * _BESIDE, _BESIDE
                    if amx:
                        of_words, ends_at = all_words, 0
                given = code, high, vectors, here, a_by, panel, to, pitch, of_words, ends_at
                multiply_at(*given, min(begun, 1))
                soon = min(stop, asked + share)
                fetched(asked, soon)
                asked = soon
                if last and not direct:
                    _finished(zero, item, to, pitch, high, wide, record, place, shift)
                i += high
        begun += steps
        if last:
            break


@helper
def _tiles(zero, item, step, task, scratch):
    """Tiles of the queue from one cut to the next."""
    cuts, queue, code = whole(step, CUTS), whole(step, QUEUE), whole(step, MULTIPLY)
    tiles, amx, are_set = whole(cuts, whole(step, TASKS)), whole(step, AMX), False
    for tile in range(whole(cuts, task), whole(cuts, task + 1)):
        entry = queue + 8 * TILE * tile
        following = entry + 8 * TILE if tile + 1 < tiles else 0
        chosen = 0
        if TILES and amx and grouped_amx.suits(item, entry):
            chosen = amx
            if not are_set:
                grouped_amx.configure()
                are_set = True
        run_tile(zero, item, code, chosen, entry, following, scratch)
    if are_set:
        grouped_amx.release()


@helper
def _parts(zero, item, step, task):
    """Pieces of products cut along k: parts 0, 1, 2 … of a row are added in that order."""
    cuts, queue = whole(step, CUTS), whole(step, QUEUE)
    for piece in range(whole(cuts, task), whole(cuts, task + 1)):
        entry = queue + 8 * PART * piece
        record, parts, count = whole(entry, 0), whole(entry, 1), whole(entry, 2)
        row, rows = whole(entry, 3), whole(entry, 4)
        cols, high = whole(record, N), whole(record, M)
        for r in range(row, row + rows):
            sums = parts + r * cols * 4
            for part in range(1, count):
                add_row(zero, parts + (part * high + r) * cols * 4, sums, cols)
            c = whole(record, C) + r * whole(record, C_ROW)
            _finished(zero, item, sums, 0, 1, cols, record, c, whole(record, BIAS))


def brain_tiles(step, task, scratch):
    """bfloat16."""
    _tiles(np.uint16(0), 2, step, task, scratch)


def byte_tiles(step, task, scratch):
    """int8."""
    _tiles(np.int8(0), 1, step, task, scratch)


def brain_parts(step, task, scratch):
    """bfloat16; nothing of the thread's own is used."""
    _parts(np.uint16(0), 2, step, task)


def byte_parts(step, task, scratch):
    """int8."""
    _parts(np.int8(0), 1, step, task)


def _brain(rows, vectors, a, a_row, panel, to, pitch, words, rest, adds):
    multiply(np.uint16(0), rows, vectors, a, a_row, panel, to, pitch, words, rest, adds)


def _byte(rows, vectors, a, a_row, panel, to, pitch, words, rest, adds):
    multiply(np.int8(0), rows, vectors, a, a_row, panel, to, pitch, words, rest, adds)


def pieces(item):
    """What tiles are compiled from, a function each that compiles one."""
    zero, size = (types.uint16 if item == 2 else types.int8), types.literal(item)
    takes = (
        (copied, (zero, size, *[types.int64] * 7)),
        (_panel, (zero, size, *[types.int64] * 6)),
        (_finished, (zero, size, *[types.int64] * 7)),
        (run_tile, (zero, size, *[types.int64] * 5)),
    )
    return [partial(function.compile, signature) for function, signature in takes]


@cache
def multiply_code(item):
    """Products of registers as machine code of their own, compiled once; its `address` is where."""
    return cfunc(types.void(*[types.intp] * 10), cache=True)(_brain if item == 2 else _byte)
