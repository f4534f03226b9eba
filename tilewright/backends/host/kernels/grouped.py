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

A small product is read where it lies. Sums of a chain go straight to C where nothing else is asked;
where alpha, beta, a bias or an activation is, or C's columns do not follow each other, they go
through memory that stays in the first cache. Whoever computes a tile, its bits are the same.

`zero` is a 0 of the elements' type, for which each function is compiled.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import cfunc, njit, types

from tilewright.backends.host.kernels.grouped_tile import (
    MASKS,
    REGISTER,
    ROWS,
    VECTORS,
    copy_row,
    finish,
    multiply,
    multiply_at,
    narrowed,
    number,
    put,
)
from tilewright.backends.host.kernels.lanes import whole
from tilewright.backends.host.kernels.step_table import CUTS, MULTIPLY, QUEUE

CHAIN = 256  # steps of k that are summed one by one; also the depth of a panel
TILE, RECORD = 5, 16  # words: of a tile record, row, column, rows, columns; of a product's record
# Words of a record; arrays/record.py has the first thirteen, strides in bytes here.
A, B, C, BIAS, M, N, K, A_ROW, A_COL, B_ROW, B_COL, C_ROW, C_COL, ALPHA, BETA, ENDS = range(RECORD)
RELU, GELU, PLAIN = 1, 2, 4  # bits of ENDS; PLAIN: C is the sums, nothing else
PART = 5  # words of a piece of a sum: record, first part, parts, row, rows
_GAP = 64  # bytes between copied rows of A, so that they do not meet in the first cache
# Copying pays from so many rows that read a panel of B of so many bytes; panels that read A.
_ROWS_OF_B, _BYTES_OF_B, _PANELS_OF_A = 3 * ROWS, 8192, 4
_BAD = 2048  # rows of A a multiple of these bytes apart share sets of the first cache
_WIDEST = VECTORS[-1]
_PITCH = REGISTER * _WIDEST  # bytes of a row of a panel, and of sums


def scratch(rows, item):
    """Bytes of a thread's own: sums, a panel of B, so many rows of A."""
    return (ROWS + CHAIN) * _PITCH + rows * (CHAIN * item + _GAP)


@njit(cache=True)
def _gather(zero, item, source, row, col, rows, cols, target, pitch):
    """[rows][cols] elements however they lie, to rows whose elements follow each other."""
    if col == item:
        for r in range(rows):
            copy_row(zero, source + r * row, target + r * pitch, cols)
    else:
        for c in range(cols):
            for r in range(rows):
                put(zero, target + r * pitch + c * item, number(zero, source + r * row + c * col))


@njit(cache=True)
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


@njit(cache=True)
def _finished(zero, item, sums, rows, cols, record, c, bias, first, last):
    """Sums to C: beta where they are the `first` chain's, what ends a product after the `last`."""
    alpha = narrowed(zero, number(0.0, record + 8 * ALPHA))
    beta = narrowed(zero, number(0.0, record + 8 * BETA)) if first else narrowed(zero, 1.0)
    c_row, c_col = whole(record, C_ROW), whole(record, C_COL)
    ends = whole(record, ENDS) & (RELU | GELU) if last else 0
    shift = bias if last else 0
    for r in range(rows):
        here, there = sums + r * _PITCH, c + r * c_row
        if c_col == item and not ends & GELU:
            finish(zero, here, there, cols, alpha, beta, shift, ends & RELU)
        else:
            _scattered(zero, item, here, there, c_col, cols, alpha, beta, shift, ends)


@njit(cache=True)
def _tile(zero, item, code, entry, scratch):
    """One tile; `code` is the address of `multiply`."""
    lanes = REGISTER // item
    columns = lanes * _WIDEST
    sums, panel = scratch, scratch + ROWS * _PITCH
    copied, gap = panel + CHAIN * _PITCH, CHAIN * item + _GAP
    record, row, col = whole(entry, 0), whole(entry, 1), whole(entry, 2)
    rows, cols, depth = whole(entry, 3), whole(entry, 4), whole(record, K)
    a_row, a_col = whole(record, A_ROW), whole(record, A_COL)
    b_row, b_col = whole(record, B_ROW), whole(record, B_COL)
    c_row, c_col = whole(record, C_ROW), whole(record, C_COL)
    a, b = whole(record, A) + row * a_row, whole(record, B) + col * b_col
    c, bias = whole(record, C) + row * c_row + col * c_col, whole(record, BIAS)
    plain = whole(record, ENDS) & PLAIN
    badly = a_col != item or (a_row % _BAD == 0 and rows > 4)
    copies_a = badly and cols > _PANELS_OF_A * columns
    chain = -(-depth // max(1, -(-depth // CHAIN)))  # of one length, but for the last
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
            vectors = VECTORS[0]
            while vectors * lanes < wide:
                vectors *= 2
            fits = MASKS or wide == vectors * lanes
            b_at, b_by = b + begin * b_row + j * b_col, b_row
            if copies or not fits:
                _gather(zero, item, b_at, b_row, b_col, steps, wide, panel, _PITCH)
                b_at, b_by = panel, _PITCH
            straight = plain and first and fits
            shift = bias + (col + j) * item if bias else 0
            i = 0
            while i < rows:
                left = rows - i
                high = min(left, ROWS)
                if ROWS < left < 2 * ROWS:
                    high = (left + 1) // 2
                place = c + i * c_row + j * c_col
                to, pitch = (place, c_row) if straight else (sums, _PITCH)
                rest = wide - (vectors - 1) * lanes
                a_now = a_at + i * a_by
                multiply_at(
                    *(code, high, vectors, a_now, a_by, a_step, b_at, b_by, to, pitch, steps),
                    rest,
                )
                if not straight:
                    _finished(zero, item, sums, high, wide, record, place, shift, first, last)
                i += high
        begin += steps
        if last:
            break


@njit(cache=True)
def _tiles(zero, item, step, task, scratch):
    """Tiles of the queue from one cut to the next."""
    cuts, queue, code = whole(step, CUTS), whole(step, QUEUE), whole(step, MULTIPLY)
    for tile in range(whole(cuts, task), whole(cuts, task + 1)):
        _tile(zero, item, code, queue + 8 * TILE * tile, scratch)


@njit(cache=True)
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


def _single(rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes):
    multiply(np.float32(0), rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes)


def _double(rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes):
    multiply(0.0, rows, vectors, a, a_row, a_col, b, b_row, c, c_row, k, lanes)


@cache
def multiply_code(item):
    """Products of registers as machine code of their own, compiled once; its `address` is where."""
    return cfunc(types.void(*[types.intp] * 11), cache=True)(_single if item == 4 else _double)
