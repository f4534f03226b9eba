"""Pictures over each other by opacity: held still over time, cleaned of the plate, blurred, laid.

    steady    opacity of a picture and the two beside it -> its own, without what flickers
    cleaned   a plane with the plate's share taken out of rims
    softened  a plane blurred, samples weighed, at a share of the size
    laid      one plane over another
    reached   weak places that are joined to sure ones
    covered   the most of 2 x 2 of several planes of opacity

Planes are flat with the distance of their rows (`pitch`); opacity is float32 [rows, columns] of the
whole picture, of which planes of chroma take means.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.mattes import _parts, _root, boxed

_F = np.float32


@helper
def _changes(lumas, pitches, rows, columns, which, out):
    """How far luma of 3 x 3 lies from that of another moment, in the mean; edges are repeated.

    Of a sample alone that is noise as much as somebody: who wears the wall's colour differs by less
    from it than one sample does from itself a moment later.
    """
    line = np.empty(columns, np.float32)
    for y in range(rows):
        top, low = max(y - 1, 0), min(y + 1, rows - 1)
        for x in range(columns):
            total = _F(0)
            for at in (top, y, low):
                now = _F(lumas[1][at * pitches[4] + x])
                total += _F(lumas[which][at * pitches[3 + which] + x]) - now
            line[x] = total
        for x in range(columns):
            left, right = max(x - 1, 0), min(x + 1, columns - 1)
            out[y, x] = abs(line[left] + line[x] + line[right]) / _F(9)


@njit(nogil=True, cache=True)
def steady(alphas, lumas, pitches, rows, columns, scale, near, out):
    """`alphas`, `lumas`: flat planes before, now, after. Only where luma stays is time mixed.

    A value that neither neighbour has becomes the middle of three; then those within a quarter of
    it are averaged.
    """
    quarter = _F(0.25)
    earlier, later = np.empty_like(out), np.empty_like(out)
    _changes(lumas, pitches, rows, columns, 0, earlier)
    _changes(lumas, pitches, rows, columns, 2, later)
    for y in range(rows):
        for x in range(columns):
            one = _F(alphas[0][y * pitches[0] + x]) * scale
            now = _F(alphas[1][y * pitches[1] + x]) * scale
            two = _F(alphas[2][y * pitches[2] + x]) * scale
            first = max(_F(1) - earlier[y, x] / near, _F(0))
            last = max(_F(1) - later[y, x] / near, _F(0))
            middle = max(min(one, two), min(max(one, two), now))
            held = now + min(first, last) * (middle - now)
            first = first if abs(one - held) < quarter else _F(0)
            last = last if abs(two - held) < quarter else _F(0)
            out[y, x] = (held + first * one + last * two) / (1 + first + last)


@helper
def _share(alpha, y, x, down, across):
    rows, columns = alpha.shape
    total = _F(0)
    for dy in range(down):
        for dx in range(across):
            total += alpha[min(y * down + dy, rows - 1), min(x * across + dx, columns - 1)]
    return total / _F(down * across)


@njit(nogil=True, cache=True)
def cleaned(plane, pitch, rows, columns, down, across, alpha, behind, own, there, light, out, to):
    """Rims as the person's colours alone.

    behind  float32 [rows, columns], own [rows / 2, columns / 2]: the plate's and the person's
            values of 0 to 255; `there`: where the latter are known
    light   the code of 0, and codes a value
    """
    black, white = light
    tall, wide = there.shape
    most = black + white * _F(255)
    for y in range(rows):
        for x in range(columns):
            code = _F(plane[y * pitch + x])
            share = _share(alpha, y, x, down, across)
            if share <= _F(0.004) or share >= _F(0.996):
                out[y * to + x] = plane[y * pitch + x]
                continue
            value = (code - black) / white
            sy = min(y * down // 2, tall - 1)
            sx = min(x * across // 2, wide - 1)
            back = behind[min(y, behind.shape[0] - 1), min(x, behind.shape[1] - 1)]
            whole = back + (value - back) / max(share, _F(0.2))
            if there[sy, sx] > _F(1e-5):
                near = own[sy, sx]
                whole = min(max(whole, near - _F(24)), near + _F(24))
            found = min(max(black + white * whole + _F(0.5), _F(0)), most + _F(0.5))
            out[y * to + x] = int(found)


@njit(nogil=True, cache=True)
def softened(plane, pitch, rows, columns, down, across, alpha, aside, step, radius, out, to):
    """A plane blurred by three means at 1 / step of its size; `aside` leaves opacity out of it."""
    tall, wide = (rows + step - 1) // step, (columns + step - 1) // step
    sums, weights = np.zeros((tall, wide), np.float32), np.zeros((tall, wide), np.float32)
    for y in range(rows):
        for x in range(columns):
            weight = _F(1)
            if aside:
                share = _share(alpha, y, x, down, across)
                weight = _F(1) if share < _F(0.02) else _F(1e-4)
            sums[y // step, x // step] += weight * _F(plane[y * pitch + x])
            weights[y // step, x // step] += weight
    made = np.empty_like(sums)
    for _ in range(3):
        boxed(sums, radius, made)
        sums, made = made, sums
        boxed(weights, radius, made)
        weights, made = made, weights
    for y in range(tall):
        for x in range(wide):
            sums[y, x] /= weights[y, x]
    for y in range(rows):
        place = (_F(y) + _F(0.5)) / _F(step) - _F(0.5)
        top = int(np.floor(place))
        fy = place - _F(top)
        y0, y1 = max(top, 0), min(top + 1, tall - 1)
        for x in range(columns):
            place = (_F(x) + _F(0.5)) / _F(step) - _F(0.5)
            left = int(np.floor(place))
            fx = place - _F(left)
            x0, x1 = max(left, 0), min(left + 1, wide - 1)
            above = sums[y0, x0] * (1 - fx) + sums[y0, x1] * fx
            below = sums[y1, x0] * (1 - fx) + sums[y1, x1] * fx
            out[y * to + x] = int(above * (1 - fy) + below * fy + _F(0.5))


@njit(nogil=True, cache=True)
def laid(over, pitch, under, below, rows, columns, down, across, alpha, out, to):
    """`over` where opacity is 1, `under` where it is 0, the nearest sample of both between."""
    for y in range(rows):
        for x in range(columns):
            share = _share(alpha, y, x, down, across)
            mixed = share * _F(over[y * pitch + x]) + (1 - share) * _F(under[y * below + x])
            out[y * to + x] = int(mixed + _F(0.5))


@njit(nogil=True, cache=True)
def reached(sure, weak, out):
    """1 where a place is sure, or weak and joined to one by weak places."""
    rows, columns = sure.shape
    for y in range(rows):
        for x in range(columns):
            out[y, x] = _F(1) if sure[y, x] > 0 or weak[y, x] > 0 else _F(0)
    parents = _parts(out)
    known = np.zeros(rows * columns, np.uint8)
    for y in range(rows):
        for x in range(columns):
            if sure[y, x] > 0:
                known[_root(parents, y * columns + x)] = 1
    for y in range(rows):
        for x in range(columns):
            if not known[_root(parents, y * columns + x)]:
                out[y, x] = _F(0)


@njit(nogil=True, cache=True)
def covered(plane, pitch, rows, columns, limit, out):
    """Set places of half the size to 1 where one of 2 x 2 samples is over a limit."""
    tall, wide = out.shape
    for y in range(rows):
        for x in range(columns):
            if plane[y * pitch + x] > limit:
                out[min(y >> 1, tall - 1), min(x >> 1, wide - 1)] = _F(1)


@njit(nogil=True, cache=True)
def spread(small, out):
    """Every place of half the size as 2 x 2."""
    rows, columns = out.shape
    tall, wide = small.shape
    for y in range(rows):
        for x in range(columns):
            out[y, x] = small[min(y >> 1, tall - 1), min(x >> 1, wide - 1)]
