"""A picture between two others, of where their samples go (`motion.py`).

    thrown    a field of motion lands where its samples are at a time between; sums of what lands
    gathered  such sums at half the size, and theirs, for places where nothing lands
    settled   sums -> motion through every place, from what lies round it where nothing landed
    warped    both pictures moved along that motion, and how much of which is to be taken
    unsure    cells of 8 x 8 in which these two say something else
    mixed     whole samples of both; of the nearer alone in such cells; what stands still, in place

Samples between samples are cubic (Keys 1981), as bilinear ones are blurred. A sample that motion
takes from a stroke that stands still (`motion.still`) is left to the other picture.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tilewright.backends.host.kernels.helpers import fast_helper
from tilewright.backends.host.kernels.motion import BORDER

_F, _U, _I = np.float32, np.uint64, np.int32
CELL = 8
_FEW = 1e-3  # of a sum: with less, what lies round a place says where it goes


@njit(nogil=True, cache=True, fastmath=True)
def thrown(field, trust, rows, columns, share, sign, sums):
    """Add a field's samples where they are after a share of their way; sums [3, rows, columns].

    sign is 1 for motion from the first picture, -1 for that from the second.
    """
    for y in range(rows):
        for x in range(columns):
            u, v, weight = field[0, y, x], field[1, y, x], trust[y, x]
            at_x, at_y = _F(x) + share * u, _F(y) + share * v
            left, top = int(np.floor(at_x)), int(np.floor(at_y))
            right, down = at_x - _F(left), at_y - _F(top)
            for i in range(2):
                for j in range(2):
                    if not (0 <= top + i < rows and 0 <= left + j < columns):
                        continue
                    part = (down if i else _F(1) - down) * (right if j else _F(1) - right)
                    part *= weight
                    sums[0, top + i, left + j] += part * sign * u
                    sums[1, top + i, left + j] += part * sign * v
                    sums[2, top + i, left + j] += part


@njit(nogil=True, cache=True, fastmath=True)
def gathered(sums, out):
    """Sums of 2 x 2, of fewer at the ends."""
    rows, columns = sums.shape[1:]
    for n in range(3):
        for y in range(out.shape[1]):
            for x in range(out.shape[2]):
                total = _F(0)
                for i in range(2 * y, min(2 * y + 2, rows)):
                    for j in range(2 * x, min(2 * x + 2, columns)):
                        total += sums[n, i, j]
                out[n, y, x] = total


@njit(nogil=True, cache=True, fastmath=True)
def settled(sums, coarse, field):
    """Motion of sums; where they are small, that of the field one size coarser, if there is one."""
    rows, columns = sums.shape[1:]
    for y in range(rows):
        for x in range(columns):
            u, v = _F(0), _F(0)
            if coarse.size:
                u, v = coarse[0, y // 2, x // 2], coarse[1, y // 2, x // 2]
            share = _F(1) / (sums[2, y, x] + _F(_FEW))
            field[0, y, x] = (sums[0, y, x] + _F(_FEW) * u) * share
            field[1, y, x] = (sums[1, y, x] + _F(_FEW) * v) * share


@fast_helper
def _along(field, y, ratio, columns, rows_of, out):
    """Motion of a plane's row, in its own samples; `ratio` is field's places a sample, (y, x)."""
    high, wide = field.shape[1:]
    place = min(max((_F(y) + _F(0.5)) * ratio[0] - _F(0.5), _F(0)), _F(high) - _F(1.001))
    top = int(place)
    down = place - _F(top)
    for n in range(2):
        above, below, to = field[n, top], field[n, min(top + 1, high - 1)], rows_of[n]
        for x in range(wide):
            to[x] = above[x] + down * (below[x] - above[x])
        scale = _F(1) / ratio[1 - n]
        row, found = rows_of[n], out[n]
        for x in range(columns):
            at = (_F(x) + _F(0.5)) * ratio[1] - _F(0.5)
            at = min(max(at, _F(0)), _F(wide) - _F(1.001))
            left = int(at)
            here, there = row[_U(left)], row[_U(min(left + 1, wide - 1))]
            found[x] = scale * (here + (at - _F(left)) * (there - here))


@fast_helper
def _taps(part):
    """Four weights round a place `part` beyond the second."""
    half = _F(0.5) * part
    a = ((-half + _F(1)) * part - _F(0.5)) * part
    b = (_F(3) * half - _F(2.5)) * part * part + _F(1)
    c = ((-_F(3) * half + _F(2)) * part + _F(0.5)) * part
    return a, b, c, (half - _F(0.5)) * part * part


@fast_helper
def _fetched(image, y, rows, columns, motion, share, at, parts, out):
    """A row of a picture, each sample from a share of its motion away."""
    flat, pitch = image.reshape(-1), image.shape[1]
    u, v, right, down = motion[0], motion[1], parts[0], parts[1]
    for x in range(columns):
        from_y = min(max(_F(y) + share * v[x], _F(2 - BORDER)), _F(rows + BORDER - 4))
        from_x = min(max(_F(x) + share * u[x], _F(2 - BORDER)), _F(columns + BORDER - 4))
        top, left = np.floor(from_y), np.floor(from_x)
        down[x], right[x] = from_y - top, from_x - left
        at[x] = _I((_I(top) + BORDER - 1) * pitch + _I(left) + BORDER - 1)
    for x in range(columns):
        a, b, c, d = _taps(right[x])
        e, f, g, h = _taps(down[x])
        i = _U(at[x])
        found = e * (a * flat[i] + b * flat[i + _U(1)] + c * flat[i + _U(2)] + d * flat[i + _U(3)])
        i += _U(pitch)
        found += f * (a * flat[i] + b * flat[i + _U(1)] + c * flat[i + _U(2)] + d * flat[i + _U(3)])
        i += _U(pitch)
        found += g * (a * flat[i] + b * flat[i + _U(1)] + c * flat[i + _U(2)] + d * flat[i + _U(3)])
        i += _U(pitch)
        found += h * (a * flat[i] + b * flat[i + _U(1)] + c * flat[i + _U(2)] + d * flat[i + _U(3)])
        out[x] = found


@fast_helper
def _stands(mask, y, x, high, wide, steps):
    """Whether a plane's place lies on a stroke that stands still; `steps` is mask's a sample."""
    i = min(max(int(y + _F(0.5)), 0) * steps[0], high - 1)
    j = min(max(int(x + _F(0.5)), 0) * steps[1], wide - 1)
    return mask[i, j] > 0


@njit(nogil=True, cache=True, fastmath=True)
def warped(first, second, rows, columns, field, ratio, share, mask, steps, one, other, take):
    """Both pictures moved to a time `share` of the way, and how much is taken of the second.

    one, other, take  float32 [rows, columns]; `take` above 1 means that the sample stands still
    """
    high, wide = mask.shape
    motion, rows_of = np.empty((2, columns), _F), np.empty((2, field.shape[2]), _F)
    at, parts = np.empty(columns, _I), np.empty((2, columns), _F)
    rest = _F(1) - share
    for y in range(rows):
        _along(field, y, ratio, columns, rows_of, motion)
        _fetched(first, y, rows, columns, motion, -share, at, parts, one[y])
        _fetched(second, y, rows, columns, motion, rest, at, parts, other[y])
        to = take[y]
        for x in range(columns):
            to[x] = share
            if not high:
                continue
            u, v = motion[0, x], motion[1, x]
            if _stands(mask, _F(y), _F(x), high, wide, steps):
                to[x] = _F(2)
            elif abs(u) + abs(v) > _F(0.5):
                lost = _stands(mask, _F(y) - share * v, _F(x) - share * u, high, wide, steps)
                gone = _stands(mask, _F(y) + rest * v, _F(x) + rest * u, high, wide, steps)
                if lost != gone:
                    to[x] = _F(1) if lost else _F(0)


@njit(nogil=True, cache=True, fastmath=True)
def unsure(one, other, take, rows, columns, limit, out):
    """0 to 1 a cell: how far the two differ by more than light, from `limit` to twice that.

    Gives the share of cells above 0. Samples of which one picture alone is taken are left out.
    """
    count = 0
    for cy in range(out.shape[0]):
        for cx in range(out.shape[1]):
            number, total, square = 0, _F(0), _F(0)
            for y in range(cy * CELL, min(cy * CELL + CELL, rows)):
                for x in range(cx * CELL, min(cx * CELL + CELL, columns)):
                    if _F(0) < take[y, x] < _F(1):
                        apart = one[y, x] - other[y, x]
                        number += 1
                        total += apart
                        square += apart * apart
            found = _F(0)
            if number:
                mean = total / _F(number)
                spread = np.sqrt(max(square / _F(number) - mean * mean, _F(0)))
                found = min(max((spread - limit) / limit, _F(0)), _F(1))
            out[cy, cx] = found
            count += found > 0
    return count / out.size


@njit(nogil=True, cache=True, fastmath=True)
def mixed(
    one, other, take, first, second, rows, columns, share, cells, ratio, scale, most, out, pitch
):
    """The nearest whole samples; `ratio` is cells a sample, (y, x), `scale` codes of light."""
    high, wide = cells.shape
    late = share > _F(0.5)
    for y in range(rows):
        place = min(max((_F(y) + _F(0.5)) * ratio[0] - _F(0.5), _F(0)), _F(high - 1))
        top = int(place)
        down, below = place - _F(top), min(top + 1, high - 1)
        to = out[y * pitch : y * pitch + columns]
        for x in range(columns):
            part = take[y, x]
            if part > _F(1):
                here = first[y + BORDER, x + BORDER]
                found = here + share * (second[y + BORDER, x + BORDER] - here)
            else:
                at = min(max((_F(x) + _F(0.5)) * ratio[1] - _F(0.5), _F(0)), _F(wide - 1))
                left = int(at)
                right, next_ = at - _F(left), min(left + 1, wide - 1)
                above = cells[top, left] + right * (cells[top, next_] - cells[top, left])
                under = cells[below, left] + right * (cells[below, next_] - cells[below, left])
                doubt = above + down * (under - above)
                if _F(0) < part < _F(1):
                    part += doubt * ((_F(1) if late else _F(0)) - part)
                found = one[y, x] + part * (other[y, x] - one[y, x])
            found = found * scale + _F(0.5)
            to[x] = _I(min(max(found, _F(0)), most))
