"""One-bit products on the host's processor, compiled by Numba for the machine it is on.

    B, COLUMNS of its rows side by side      one tile: ROWS x COLUMNS sums in registers, each
    +--------------------------------+       lane of a vector a column of C, so nothing is ever
    | word 0 of 8 columns | 8 | 8 | 8|       added across a vector
    | the same, xor word 1 ...       |
    +--------------------------------+       words go in pairs through full adders (carry-save)
      ^  broadcast: word 0 and word 0        (Harley and Seal's) and only carries are counted,
      |  xor word 1 of ROWS rows of A        as the processor counts best: popcounts.py

With a0 ^ b0, a0 ^ a1 and b0 ^ b1 at hand the new sum is ones ^ (a0 ^ a1) ^ (b0 ^ b1), one ternary
instruction instead of two. What that gives on each set of instructions: docs/onebit.md.

Few rows of A leave no time to lay B out: `few_rows` runs along the words of both as they lie.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.popcounts import LANES, MOST, PARITY, ROWS
from tilewright.backends.host.kernels.vectors import (
    COLUMNS,
    copy_row,
    count_tile,
    int_row,
    ones,
    real_row,
    signs,
    threshold_row,
)

# Pairs of words that A and B advance at once: panels of B then stay in the L2 cache, and sums of
# bytes in their bytes.
_LONG = MOST // 2
# Rows of A that share a pass over a panel of B, and panels whose rows are written together: rows of
# C lie pages apart, and a store to a new page for every 32 columns took a quarter of the time.
BLOCK, _STRIP = 32, 8


@njit(nogil=True, cache=True)
def lay_out_b(words, first, last, panels):
    """Rows to panels [panel][pair][VECTORS][2][LANES]: COLUMNS rows side by side, zeros beyond.

    Of a pair of words lie word 0, and the xor of both (without adders word 1).
    """
    rows, length = words.shape
    for panel in range(first, last):
        for column in range(COLUMNS):
            source = panel * COLUMNS + column
            vector, lane = column // LANES, column % LANES
            for pair in range((length + 1) // 2):
                head = tail = np.uint64(0)
                if source < rows:
                    head = words[source, 2 * pair]
                    if 2 * pair + 1 < length:
                        tail = words[source, 2 * pair + 1]
                panels[panel, pair, vector, 0, lane] = head
                panels[panel, pair, vector, 1, lane] = head ^ tail if PARITY else tail


@njit(nogil=True, cache=True)
def multiply(
    a, panels, rows_from, rows_to, panel_first, panel_last, rows, columns, double, epilogue
):
    """Rows [rows_from, rows_to) of A against some panels, BLOCK rows at a time.

    rows, columns  int32 of each row and column, the latter padded to whole panels: an element is
                   their sum - 2 * count, or where `double` is 0 half of their sum - count
    epilogue       see `finish_row`
    """
    counts = np.empty((_STRIP, BLOCK, COLUMNS), np.int32)
    for top in range(rows_from, rows_to, BLOCK):
        bottom = min(rows_to, top + BLOCK)
        for first in range(panel_first, panel_last, _STRIP):
            strip = min(_STRIP, panel_last - first)
            _count(a, panels, top, bottom, first, strip, counts)
            for row in range(top, bottom):
                for panel in range(strip):
                    values = counts.ctypes.data + 4 * COLUMNS * (BLOCK * panel + row - top)
                    left = (first + panel) * COLUMNS
                    int_row(values, rows[row], columns.ctypes.data + 4 * left, double, values)
                    finish_row(values, row, left, epilogue)


@helper
def _count(a, panels, top, bottom, first, strip, counts):
    """counts[panel][row][column] of BLOCK rows and `strip` panels from `first` on."""
    words = a.shape[1]
    counts[:strip] = 0
    for panel in range(strip):
        start_b = panels.ctypes.data + 16 * COLUMNS * (first + panel) * panels.shape[1]
        for start in range(0, words, 2 * _LONG):
            for row in range(top, bottom, ROWS):
                count_tile(
                    a.ctypes.data + 8 * (row * words + start),
                    8 * words,
                    min(ROWS, bottom - row),
                    start_b + 8 * COLUMNS * start,
                    min(2 * _LONG, words - start),
                    counts.ctypes.data + 4 * COLUMNS * (BLOCK * panel + row - top),
                )


@helper
def finish_row(values, row, left, epilogue):
    """COLUMNS dot products of a row to where the epilogue puts them.

    epilogue  addresses, as arrays would be counted in and out for every row: (what, out, width,
              scale or thresholds, shift or flips). `what` is 0 for int32 and 1 for float32, of
              `width` columns; 2 for bits, `width` bytes a row. Vectors are padded to whole panels,
              rows of bits too.
    """
    what, out, width, first, second = epilogue
    if what == 2:
        target = out + width * row + left // 8
        threshold_row(values, first + 4 * left, second + left // 8, target)
        return
    if what == 1:
        real_row(values, first + 4 * left, second + 4 * left, values)
    copy_row(values, out + 4 * (width * row + left), min(COLUMNS, width - left))


@njit(nogil=True, cache=True)
def few_rows(a, b, first, last, out):
    """counts out[i, j] = popcount(a[i] xor b[j]) for j in [first, last), both as they lie."""
    for column in range(first, last):
        for row in range(a.shape[0]):
            count = np.uint64(0)
            for word in range(a.shape[1]):
                count += ones(a[row, word] ^ b[column, word])
            out[row, column] = count


@njit(nogil=True, cache=True)
def pack_rows(numbers, first, last, mask, infinity, plus, words):
    """Rows of numbers, as integers of their width, to words. (zeros, NaNs): whether there are any.

    The last number of a row may share its word with others: they are read one by one.
    """
    length = numbers.shape[1]
    flat = numbers.reshape(-1)
    zeros = nans = np.uint64(0)
    for row in range(first, last):
        for word in range(length // 64):
            above, zero, nan = signs(flat, row * length + 64 * word, mask, infinity, plus)
            words[row, word] = above
            zeros |= zero
            nans |= nan
        tail = np.uint64(0)
        for column in range(length // 64 * 64, length):
            value = np.int64(numbers[row, column])
            size = value & mask
            if size == 0:
                zeros |= np.uint64(1)
            if infinity >= 0 and size > infinity:
                nans |= np.uint64(1)
            if value > 0 or (size == 0 and plus != 0):
                tail |= np.uint64(1) << np.uint64(column % 64)
        if length % 64:
            words[row, length // 64] = tail
    return zeros != 0, nans != 0
