"""What a network of fusion reads and changes of a picture between two others (`between.py`).

    weighed  doubt of cells of 8 x 8 goes into how much of the second picture is taken
    planes   both moved pictures and what is known of them -> 23 planes of half the sides
    fused    what the network says of every sample -> both moved pictures and how much of which

    planes   0-3 the first picture moved, 4-7 the second, 8-11 both as they stand, mixed: light over
             255 less a half; 12-15 how much of the second is taken; 16-19 how far both as they
             stand are apart, over 255; 20 how much motion landed there, halved; 21 how far it goes,
             over 32 samples; 22 the share of the time. Groups of four are places of 2 x 2, by rows.
    said     0-3 how much more of the second is taken; 4-7 how much of both as they stand

All that comes of it lies between samples of both pictures: nothing is made up. Chroma and opacity
are mixed as luma is. A sample that stands still (`take` above 1) is never changed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tilewright.backends.host.kernels.motion import BORDER

_F = np.float32
READ, SAID = 23, 8  # planes
_WHITE = 255.0
_MOST, _FAR = 4.0, 64.0  # of what lands at a place, and of samples that it goes


@njit(nogil=True, cache=True, fastmath=True)
def weighed(take, rows, columns, share, cells, ratio):
    """Take more of the nearer picture where both differ; `ratio` is cells a sample, (y, x)."""
    high, wide = cells.shape
    late = _F(1) if share > _F(0.5) else _F(0)
    for y in range(rows):
        place = min(max((_F(y) + _F(0.5)) * ratio[0] - _F(0.5), _F(0)), _F(high - 1))
        top = int(place)
        down, below = place - _F(top), min(top + 1, high - 1)
        for x in range(columns):
            part = take[y, x]
            if not _F(0) < part < _F(1):
                continue
            at = min(max((_F(x) + _F(0.5)) * ratio[1] - _F(0.5), _F(0)), _F(wide - 1))
            left = int(at)
            right, beside = at - _F(left), min(left + 1, wide - 1)
            above = cells[top, left] + right * (cells[top, beside] - cells[top, left])
            under = cells[below, left] + right * (cells[below, beside] - cells[below, left])
            take[y, x] = part + (above + down * (under - above)) * (late - part)


@njit(nogil=True, cache=True, fastmath=True)
def planes(one, other, take, first, second, rows, columns, share, sums, through, halvings, out):
    """What the network reads, [READ, half the rows, half the columns], rounded up.

    sums, through  what landed, and the motion of it, at a size halved `halvings` times
    Samples beyond an end repeat the last one.
    """
    scale, half = _F(1 / _WHITE), _F(0.5)
    longer = _F(1 << halvings)
    high, wide = out.shape[1:]
    for i in range(high):
        for di in range(2):
            y = min(2 * i + di, rows - 1)
            a = first[y + BORDER, BORDER : BORDER + columns]
            b = second[y + BORDER, BORDER : BORDER + columns]
            for dj in range(2):
                n = 2 * di + dj
                for j in range(wide):
                    x = min(2 * j + dj, columns - 1)
                    mixed = (a[x] + share * (b[x] - a[x])) * scale - half
                    still = take[y, x] > _F(1)
                    out[n, i, j] = mixed if still else one[y, x] * scale - half
                    out[4 + n, i, j] = mixed if still else other[y, x] * scale - half
                    out[8 + n, i, j] = mixed
                    out[12 + n, i, j] = share if still else take[y, x]
                    out[16 + n, i, j] = abs(b[x] - a[x]) * scale
        at = min((2 * i) >> halvings, sums.shape[1] - 1)
        for j in range(wide):
            place = min((2 * j) >> halvings, sums.shape[2] - 1)
            far = (abs(through[0, at, place]) + abs(through[1, at, place])) * longer
            out[20, i, j] = half * min(sums[2, at, place], _F(_MOST))
            out[21, i, j] = min(far, _F(_FAR)) * _F(1 / 32)
            out[22, i, j] = share


@njit(nogil=True, cache=True, fastmath=True)
def fused(one, other, take, first, second, rows, columns, share, said, steps, size):
    """Change both moved pictures and how much of the second is taken, as the network says.

    said   [SAID, half of luma's rows, half of its columns]
    steps  samples of luma a sample of this plane, (y, x); size: rows and columns of luma
    """
    count = _F(1) / _F(steps[0] * steps[1])
    for y in range(rows):
        a = first[y + BORDER, BORDER : BORDER + columns]
        b = second[y + BORDER, BORDER : BORDER + columns]
        for x in range(columns):
            if take[y, x] > _F(1):
                continue
            more, stay = _F(0), _F(0)
            for i in range(y * steps[0], (y + 1) * steps[0]):
                i = min(i, size[0] - 1)
                for j in range(x * steps[1], (x + 1) * steps[1]):
                    j = min(j, size[1] - 1)
                    n = 2 * (i & 1) + (j & 1)
                    more += said[n, i >> 1, j >> 1]
                    stay += said[4 + n, i >> 1, j >> 1]
            take[y, x] = min(max(take[y, x] + more * count, _F(0)), _F(1))
            stay = min(max(stay * count, _F(0)), _F(1))
            mixed = a[x] + share * (b[x] - a[x])
            one[y, x] += stay * (mixed - one[y, x])
            other[y, x] += stay * (mixed - other[y, x])
