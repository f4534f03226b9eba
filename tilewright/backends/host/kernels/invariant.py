"""Rows of C, every element summed alike: 8 rows of A by 256 columns of B stay in the first cache.

             256 columns of B, read along a row
    8 rows  +----------------------------------+
    of A    | sums, one chain of 128 of k      |   then added to C, and the next chain begins
            +----------------------------------+

The inner loop goes along columns, so vectors hold different elements of C and no order of a sum
depends on how wide they are; products and sums are rounded one by one, as no fast mathematics is
allowed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_ROWS, _COLUMNS = 8, 256


@njit(cache=True, nogil=True)
def multiply(x, w, out, chain):
    """out = x @ w, in chains of so many steps of k."""
    rows, k = x.shape
    n = w.shape[1]
    sums = np.empty((_ROWS, _COLUMNS), x.dtype)
    for column in range(0, n, _COLUMNS):
        width = min(_COLUMNS, n - column)
        for row in range(0, rows, _ROWS):
            height = min(_ROWS, rows - row)
            out[row : row + height, column : column + width] = 0
            for begin in range(0, k, chain):
                sums[:height, :width] = 0
                for depth in range(begin, min(k, begin + chain)):
                    steps = w[depth, column : column + width]
                    for one in range(height):
                        factor, line = x[row + one, depth], sums[one, :width]
                        for at in range(width):
                            line[at] += factor * steps[at]
                for one in range(height):
                    for at in range(width):
                        out[row + one, column + at] += sums[one, at]
