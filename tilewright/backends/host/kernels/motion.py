"""Where patches of a picture went in another: dense inverse search, from coarse to fine.

    taken      whole samples [rows, columns] -> float32 with a border, 0 to 255
    halved     means of 2 x 2, with a border
    matched    a field of motion one size coarser -> one of this size
    trusted    how far a field and the one the other way say the same, 0 to 1
    still      samples of strokes that stand still, as of text, whatever moves round them

As Kroeger and others (2016): patches of 8 x 8, four samples apart, are moved by Gauss-Newton steps
whose matrix is the patch's own; what patches say is mixed by how well each fits every sample.
Pictures are float32 [rows + 2 * BORDER, columns + 2 * BORDER], the edges' samples repeated; fields
are float32 [rows, columns], across and down, in samples. Means of patches are left out, so that
light that changes is no motion. Sums may be made in any order (`fastmath`), the same on processors
of one kind.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tilewright.backends.host.kernels.helpers import fast_helper

_F = np.float32
BORDER = 16
SIDE, STEP = 8, 4  # of a patch; from one to the next
_TURNS = 8  # Gauss-Newton steps at most
_LEAST = 0.0025  # of a step, squared, in samples: less is the end
_STIFF = 16.0  # added to the matrix, so that even patches stay
# Of strokes that stand still, codes of 255: the least contrast, and how far their samples may be
# apart; from what contrast on they may be further, by how much of it, and the most; how far samples
# of one stroke are from each other.
_STEEP, _ALIKE, _STEEPER, _SHARE, _MOST, _STROKE = 40.0, 4.0, 70.0, 0.5, 32.0, 24.0
_FEW = 48  # samples of a stroke in 24 x 24, at least
_BETTER = 0.9  # of what fits now a neighbour's motion has to leave at most


@njit(nogil=True, cache=True, fastmath=True)
def taken(source, pitch, rows, columns, scale, out):
    """Samples times `scale`, with a border."""
    for y in range(rows):
        row = source[y * pitch : y * pitch + columns]
        to = out[y + BORDER, BORDER : BORDER + columns]
        for x in range(columns):
            to[x] = _F(row[x]) * scale
    _edged(out, rows, columns)


@fast_helper
def _edged(out, rows, columns):
    # Loops, as assignments of whole slices take Numba five seconds to compile.
    for y in range(BORDER, BORDER + rows):
        for x in range(BORDER):
            out[y, x] = out[y, BORDER]
            out[y, BORDER + columns + x] = out[y, BORDER + columns - 1]
    for y in range(BORDER):
        for x in range(out.shape[1]):
            out[y, x] = out[BORDER, x]
            out[BORDER + rows + y, x] = out[BORDER + rows - 1, x]


@njit(nogil=True, cache=True, fastmath=True)
def halved(source, out, rows, columns):
    """Means of 2 x 2 as a picture of rows x columns, with a border."""
    for y in range(rows):
        above = source[BORDER + 2 * y, BORDER:]
        below = source[BORDER + 2 * y + 1, BORDER:]
        to = out[y + BORDER, BORDER : BORDER + columns]
        for x in range(columns):
            near = above[2 * x] + above[2 * x + 1] + below[2 * x] + below[2 * x + 1]
            to[x] = near * _F(0.25)
    _edged(out, rows, columns)


@fast_helper
def _sampled(image, y, x, rows, columns, out):
    """A patch whose first sample lies at (y, x), between samples; gives its mean."""
    y = min(max(y, _F(1 - BORDER)), _F(rows + BORDER - SIDE - 2))
    x = min(max(x, _F(1 - BORDER)), _F(columns + BORDER - SIDE - 2))
    top, left = int(np.floor(y)), int(np.floor(x))
    down, right = y - _F(top), x - _F(left)
    a, b = (_F(1) - down) * (_F(1) - right), (_F(1) - down) * right
    c, d = down * (_F(1) - right), down * right
    total = _F(0)
    for i in range(SIDE):
        above = image[top + BORDER + i, left + BORDER : left + BORDER + SIDE + 1]
        below = image[top + BORDER + i + 1, left + BORDER : left + BORDER + SIDE + 1]
        to = out[i]
        for j in range(SIDE):
            found = a * above[j] + b * above[j + 1] + c * below[j] + d * below[j + 1]
            to[j] = found
            total += found
    return total * _F(1 / (SIDE * SIDE))


@fast_helper
def _apart(one, other, shift):
    """The sum of squares between two patches, one of them made lighter by `shift`."""
    total = _F(0)
    for i in range(SIDE):
        a, b = one[i], other[i]
        for j in range(SIDE):
            step = b[j] - a[j] + shift
            total += step * step
    return total


@fast_helper
def _sloped(image, top, left, patch, across, down):
    """A patch and its slopes; gives its mean and the inverse of its matrix."""
    mean, sx, sy = _F(0), _F(0), _F(0)
    xx, xy, yy = _F(0), _F(0), _F(0)
    for i in range(SIDE):
        y = top + BORDER + i
        row = image[y, left + BORDER - 1 : left + BORDER + SIDE + 1]
        above = image[y - 1, left + BORDER : left + BORDER + SIDE]
        below = image[y + 1, left + BORDER : left + BORDER + SIDE]
        p, gx, gy = patch[i], across[i], down[i]
        for j in range(SIDE):
            p[j] = row[j + 1]
            a, b = (row[j + 2] - row[j]) * _F(0.5), (below[j] - above[j]) * _F(0.5)
            gx[j], gy[j] = a, b
            mean += row[j + 1]
            sx += a
            sy += b
            xx += a * a
            xy += a * b
            yy += b * b
    share = _F(1 / (SIDE * SIDE))
    xx += _F(_STIFF) - sx * sx * share
    yy += _F(_STIFF) - sy * sy * share
    xy -= sx * sy * share
    whole = _F(1) / (xx * yy - xy * xy)
    return mean * share, yy * whole, -xy * whole, xx * whole


@njit(nogil=True, cache=True, fastmath=True)
def matched(first, second, rows, columns, coarse, field, weights, patches):
    """Motion from the first picture to the second, of every sample.

    coarse   [2, rows, columns] one size coarser; empty where there is none
    field    [2, rows, columns], what is found
    weights  [rows, columns], scratch
    patches  [2, patches down, patches across], scratch
    """
    high, wide = patches.shape[1:]
    patch, moved = np.empty((SIDE, SIDE), _F), np.empty((SIDE, SIDE), _F)
    across, down = np.empty((SIDE, SIDE), _F), np.empty((SIDE, SIDE), _F)
    field[:] = 0
    weights[:] = 0
    for pi in range(high):
        y = min(pi * STEP, rows - SIDE)
        for pj in range(wide):
            x = min(pj * STEP, columns - SIDE)
            mean, ixx, ixy, iyy = _sloped(first, y, x, patch, across, down)
            u, v = _F(0), _F(0)
            if coarse.size:
                cy = min((y + SIDE // 2) // 2, coarse.shape[1] - 1)
                cx = min((x + SIDE // 2) // 2, coarse.shape[2] - 1)
                u, v = coarse[0, cy, cx] * _F(2), coarse[1, cy, cx] * _F(2)
            best, cu, cv = _F(np.inf), u, v
            # First this motion, that of the patch to the left, of the one above, and none; then
            # steps from the best of them.
            for turn in range(-4, _TURNS):
                if turn < 0:
                    if (turn == -3 and pj == 0) or (turn == -2 and pi == 0):
                        continue
                    if turn == -3:
                        cu, cv = patches[0, pi, pj - 1], patches[1, pi, pj - 1]
                    elif turn == -2:
                        cu, cv = patches[0, pi - 1, pj], patches[1, pi - 1, pj]
                    elif turn == -1:
                        cu, cv = _F(0), _F(0)
                    if turn > -4 and abs(cu - u) + abs(cv - v) < _F(0.25):
                        continue
                else:
                    if turn == 0:
                        cu, cv = u, v
                        light = _sampled(second, _F(y) + v, _F(x) + u, rows, columns, moved)
                    bx, by, shift = _F(0), _F(0), mean - light
                    for i in range(SIDE):
                        p, m, gx, gy = patch[i], moved[i], across[i], down[i]
                        for j in range(SIDE):
                            step = m[j] - p[j] + shift
                            bx += gx[j] * step
                            by += gy[j] * step
                    du, dv = ixx * bx + ixy * by, ixy * bx + iyy * by
                    cu -= du
                    cv -= dv
                light = _sampled(second, _F(y) + cv, _F(x) + cu, rows, columns, moved)
                score = _apart(patch, moved, mean - light)
                if turn < 0:
                    if turn == -4 or score < best * _F(_BETTER) - _F(16):
                        best, u, v = score, cu, cv
                    continue
                if not score < best:
                    break
                best, u, v = score, cu, cv
                if du * du + dv * dv < _F(_LEAST):
                    break
            patches[0, pi, pj], patches[1, pi, pj] = u, v
            _sampled(second, _F(y) + v, _F(x) + u, rows, columns, moved)
            for i in range(SIDE):
                p, m = patch[i], moved[i]
                to_u, to_v = field[0, y + i, x : x + SIDE], field[1, y + i, x : x + SIDE]
                to = weights[y + i, x : x + SIDE]
                for j in range(SIDE):
                    weight = _F(1) / max(abs(m[j] - p[j]), _F(1))
                    to_u[j] += weight * u
                    to_v[j] += weight * v
                    to[j] += weight
    for y in range(rows):
        to_u, to_v, to = field[0, y], field[1, y], weights[y]
        for x in range(columns):
            share = _F(1) / to[x]
            to_u[x] *= share
            to_v[x] *= share


@njit(nogil=True, cache=True, fastmath=True)
def trusted(first, second, rows, columns, field, back, out):
    """How far motion there and back meet, and what lies there is alike: 1 and less."""
    for y in range(rows):
        for x in range(columns):
            u, v = field[0, y, x], field[1, y, x]
            at_y = min(max(_F(y) + v, _F(0)), _F(rows) - _F(1.001))
            at_x = min(max(_F(x) + u, _F(0)), _F(columns) - _F(1.001))
            top, left = int(at_y), int(at_x)
            down, right = at_y - _F(top), at_x - _F(left)
            a, b = (_F(1) - down) * (_F(1) - right), (_F(1) - down) * right
            c, d = down * (_F(1) - right), down * right
            apart = _F(0)
            for n in range(2):
                there = (
                    a * back[n, top, left]
                    + b * back[n, top, left + 1]
                    + c * back[n, top + 1, left]
                    + d * back[n, top + 1, left + 1]
                    + field[n, y, x]
                )
                apart += there * there
            i, j = top + BORDER, left + BORDER
            light = a * second[i, j] + b * second[i, j + 1]
            light += c * second[i + 1, j] + d * second[i + 1, j + 1]
            light -= first[y + BORDER, x + BORDER]
            out[y, x] = np.exp(-_F(0.5) * apart - _F(0.1) * abs(light)) + _F(1e-4)


@njit(nogil=True, cache=True, fastmath=True)
def still(first, second, rows, columns, reach, out):
    """How far apart samples of strokes may be that stand still; 0 for those that are none.

    A stroke's samples are as alike in both pictures as its contrast lets: coding leaves more of
    what moves behind it round black and white letters. `reach` samples beside its end belong to it.
    """
    out[:] = 0
    for y in range(1, rows - 1):
        for x in range(1, columns - 1):
            a, b = first[y + BORDER, x + BORDER], second[y + BORDER, x + BORDER]
            if abs(a - b) > _F(_MOST):
                continue
            far, other = _F(0), _F(0)
            for i in range(BORDER - 1, BORDER + 2):
                for j in range(BORDER - 1, BORDER + 2):
                    far = max(far, abs(first[y + i, x + j] - a))
                    other = max(other, abs(second[y + i, x + j] - b))
            far = min(far, other)
            more = max(far - _F(_STEEPER), _F(0)) * _F(_SHARE)
            alike = min(_F(_ALIKE) + more, _F(_MOST))
            if far < _F(_STEEP) or abs(a - b) > alike:
                continue
            own, count = 0, 0
            for i in range(BORDER - 1, BORDER + 2):
                for j in range(BORDER - 1, BORDER + 2):
                    light = first[y + i, x + j]
                    near = abs(light - second[y + i, x + j]) <= alike
                    count += near
                    own += near and abs(light - a) <= _F(_STROKE)
            if own < 3:
                continue
            out[y, x] = max(out[y, x], int(alike))
            if count == 9:  # nothing moves here
                continue
            for i in range(max(y - reach, 0), min(y + reach + 1, rows)):
                for j in range(max(x - reach, 0), min(x + reach + 1, columns)):
                    light = first[i + BORDER, j + BORDER]
                    near = abs(light - second[i + BORDER, j + BORDER]) <= alike
                    if near and abs(light - a) <= _F(_STROKE):
                        out[i, j] = max(out[i, j], int(alike))
    _lone(out, rows, columns)
    _softened(first, second, rows, columns, out)


@fast_helper
def _lone(mask, rows, columns):
    """Take out of a mask what has too little of its kind round it: it was alike by chance."""
    high, wide = (rows + SIDE - 1) // SIDE, (columns + SIDE - 1) // SIDE
    counts = np.zeros((high + 2, wide + 2), np.int32)
    for y in range(rows):
        for x in range(columns):
            counts[y // SIDE + 1, x // SIDE + 1] += mask[y, x] > 0
    for cy in range(high):
        for cx in range(wide):
            total = 0
            for i in range(3):
                for j in range(3):
                    total += counts[cy + i, cx + j]
            if total < _FEW and counts[cy + 1, cx + 1]:
                for y in range(cy * SIDE, min(cy * SIDE + SIDE, rows)):
                    for x in range(cx * SIDE, min(cx * SIDE + SIDE, columns)):
                        mask[y, x] = 0


@fast_helper
def _softened(first, second, rows, columns, mask):
    """Add the half tones at strokes' ends: beside them, and alike to twice what they have to be."""
    before = mask.copy()
    for y in range(rows):
        for x in range(columns):
            if before[y, x]:
                continue
            apart = abs(first[y + BORDER, x + BORDER] - second[y + BORDER, x + BORDER])
            for i in range(max(y - 1, 0), min(y + 2, rows)):
                for j in range(max(x - 1, 0), min(x + 2, columns)):
                    if before[i, j] and apart <= _F(2 * before[i, j]):
                        mask[y, x] = before[i, j]
