"""Opacity out of pictures and what is known to lie behind: evidence, decisions, shares of colours.

    quartered   whole [rows, columns] -> float32 [rows / 2, columns / 2], means of 2 x 2
    evidence    how much likelier each place is somebody than the plate
    boxed       means of (2 r + 1)² round each place, of those that are there
    guided      a guided filter (He, Sun, Tang 2013); `applied` its second half, at any size
    grown       the most of (2 r + 1)² round each place
    decided     small parts taken away, gaps that nothing speaks for filled
    doubted     how much speaks against places, of those it does speak against
    shared      opacity of rims: which share of two colours each sample is

Arrays are float32 [rows, columns] without gaps, but for planes of a picture, which are flat with
the distance of their rows (`pitch`). One thread a call.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tilewright.backends.host.kernels.helpers import helper

_F = np.float32
_BINS = 32  # of each colour, in the histogram of what somebody wears


@njit(nogil=True, cache=True)
def quartered(plane, pitch, rows, columns, down, across, scale, offset, out):
    """Means of `down` x `across` samples (1 or 2), the edges' repeated, scaled."""
    tall, wide = out.shape
    for y in range(tall):
        first = min(y * down, rows - 1) * pitch
        second = min(y * down + down - 1, rows - 1) * pitch
        for x in range(wide):
            left = min(x * across, columns - 1)
            right = min(x * across + across - 1, columns - 1)
            total = _F(plane[first + left]) + _F(plane[first + right])
            total += _F(plane[second + left]) + _F(plane[second + right])
            out[y, x] = total * _F(0.25) * scale + offset


@njit(nogil=True, cache=True)
def boxed(source, radius, out):
    """Means of the places of a window that are in the picture."""
    rows, columns = source.shape
    sums = np.zeros(columns, np.float64)
    line = np.zeros(columns + 1, np.float64)
    for y in range(-radius, rows):
        if y + radius < rows:
            for x in range(columns):
                sums[x] += source[y + radius, x]
        if y - radius - 1 >= 0:
            for x in range(columns):
                sums[x] -= source[y - radius - 1, x]
        if y < 0:
            continue
        high = min(y + radius, rows - 1) - max(y - radius, 0) + 1
        total = 0.0
        for x in range(columns):
            total += sums[x]
            line[x + 1] = total
        for x in range(columns):
            left, right = max(x - radius, 0), min(x + radius + 1, columns)
            out[y, x] = (line[right] - line[left]) / (high * (right - left))


@njit(nogil=True, cache=True)
def grown(source, radius, out):
    """The most of a window."""
    rows, columns = source.shape
    line = np.empty_like(source)
    for y in range(rows):
        line[y] = source[y]
        for step in range(1, min(radius, columns - 1) + 1):
            for x in range(columns - step):
                line[y, x] = max(line[y, x], source[y, x + step])
                line[y, x + step] = max(line[y, x + step], source[y, x])
    for y in range(rows):
        out[y] = line[y]
        for step in range(max(0, y - radius), min(rows, y + radius + 1)):
            for x in range(columns):
                out[y, x] = max(out[y, x], line[step, x])


@njit(nogil=True, cache=True)
def slopes(guide, values, radius, eps, slope, shift):
    """Where values are slope * guide + shift, in the mean of all windows round a place."""
    mean_g, mean_v = np.empty_like(guide), np.empty_like(guide)
    a, b, made = np.empty_like(guide), np.empty_like(guide), np.empty_like(guide)
    boxed(guide, radius, mean_g)
    boxed(values, radius, mean_v)
    rows, columns = guide.shape
    for y in range(rows):
        for x in range(columns):
            made[y, x] = guide[y, x] * guide[y, x]
    boxed(made, radius, a)
    for y in range(rows):
        for x in range(columns):
            made[y, x] = guide[y, x] * values[y, x]
    boxed(made, radius, b)
    for y in range(rows):
        for x in range(columns):
            variance = max(a[y, x] - mean_g[y, x] * mean_g[y, x], _F(0))
            both = b[y, x] - mean_g[y, x] * mean_v[y, x]
            a[y, x] = both / (variance + eps)
            b[y, x] = mean_v[y, x] - a[y, x] * mean_g[y, x]
    boxed(a, radius, slope)
    boxed(b, radius, shift)


@njit(nogil=True, cache=True)
def guided(guide, values, radius, eps, out):
    """Values, smoothed where the guide is."""
    slope, shift = np.empty_like(guide), np.empty_like(guide)
    slopes(guide, values, radius, eps, slope, shift)
    rows, columns = guide.shape
    for y in range(rows):
        for x in range(columns):
            out[y, x] = slope[y, x] * guide[y, x] + shift[y, x]


@helper
def _mixed(values, y, x):
    """A value between places of half the size, by distance; y, x in samples of the whole."""
    rows, columns = values.shape
    down, right = (_F(y) - _F(0.5)) * _F(0.5), (_F(x) - _F(0.5)) * _F(0.5)
    top, left = int(np.floor(down)), int(np.floor(right))
    fy, fx = down - _F(top), right - _F(left)
    y0, y1 = max(top, 0), min(top + 1, rows - 1)
    x0, x1 = max(left, 0), min(left + 1, columns - 1)
    above = values[y0, x0] * (1 - fx) + values[y0, x1] * fx
    below = values[y1, x0] * (1 - fx) + values[y1, x1] * fx
    return above * (1 - fy) + below * fy


@helper
def _bin(one):
    return min(max(int(one) >> 3, 0), _BINS - 1)


@njit(nogil=True, cache=True)
def worn(seen, apart, limit):
    """Densities [32, 32, 32] of the colours of places that lie further from the plate than that."""
    _, rows, columns = seen.shape
    found = np.zeros((_BINS, _BINS, _BINS), np.float32)
    total = 0
    for y in range(rows):
        for x in range(columns):
            if apart[y, x] > limit:
                found[_bin(seen[0, y, x]), _bin(seen[1, y, x]), _bin(seen[2, y, x])] += _F(1)
                total += 1
    smooth = np.empty_like(found)
    for _ in range(2):  # a little of each into its neighbours, along one axis after the other
        for axis in range(3):
            for i in range(_BINS):
                for j in range(_BINS):
                    for k in range(_BINS):
                        n = (i, j, k)[axis]
                        low, high = max(n - 1, 0), min(n + 1, _BINS - 1)
                        if axis == 0:
                            near = found[low, j, k] + found[high, j, k]
                        elif axis == 1:
                            near = found[i, low, k] + found[i, high, k]
                        else:
                            near = found[i, j, low] + found[i, j, high]
                        smooth[i, j, k] = found[i, j, k] * _F(0.8) + near * _F(0.1)
            found, smooth = smooth, found
    return found / _F(512 * max(total, 1)), total


@njit(nogil=True, cache=True)
def roughness(colours, out):
    """The most that luma differs between neighbours of 3 x 3."""
    _, rows, columns = colours.shape
    for y in range(rows):
        top, low = max(y - 1, 0), min(y + 1, rows - 1)
        for x in range(columns):
            left, right = max(x - 1, 0), min(x + 1, columns - 1)
            across = abs(colours[0, y, right] - colours[0, y, left])
            down = abs(colours[0, low, x] - colours[0, top, x])
            out[y, x] = max(across, down)


@njit(nogil=True, cache=True)
def evidence(seen, plate, spread, rough, strict, most, out, apart):
    """Logarithms of how much likelier somebody is than the plate, from -most to most.

    seen, plate  [3, rows, columns], 0 to 255
    spread       the deviation of noise of each colour's difference, where the plate is even
    rough        by how many times more it is
    strict       how far apart (squares over variances, mean of 3 x 3) is surely somebody
    """
    _, rows, columns = seen.shape
    raw = np.empty_like(out)
    for y in range(rows):
        for x in range(columns):
            total = _F(0)
            for c in range(3):
                step = (seen[c, y, x] - plate[c, y, x]) / spread[c]
                total += step * step
            raw[y, x] = total / (rough[y, x] * rough[y, x])
    boxed(raw, 1, apart)
    density, count = worn(seen, apart, strict)
    floor = _F(1e-7)
    narrow = np.log(spread[0] * spread[1] * spread[2] * _F(15.75))
    for y in range(rows):
        for x in range(columns):
            own = density[_bin(seen[0, y, x]), _bin(seen[1, y, x]), _bin(seen[2, y, x])]
            near = min(raw[y, x], apart[y, x] * _F(2))
            found = np.log((own * _F(0.9) + floor) * rough[y, x]) + narrow + _F(0.5) * near
            out[y, x] = min(max(found, -most), most)
    return count


@helper
def _root(parents, at):
    while parents[at] != at:
        parents[at] = parents[parents[at]]
        at = parents[at]
    return at


@helper
def _parts(mask):
    """Of every place the first place of the part it is joined to, of those alike it."""
    rows, columns = mask.shape
    parents = np.arange(rows * columns)
    for y in range(rows):
        for x in range(columns):
            at = y * columns + x
            if x and mask[y, x - 1] == mask[y, x]:
                parents[_root(parents, at)] = _root(parents, at - 1)
            if y and mask[y - 1, x] == mask[y, x]:
                a, b = _root(parents, at), _root(parents, at - columns)
                parents[max(a, b)] = min(a, b)
    return parents


@njit(nogil=True, cache=True)
def decided(evidence, raw, small, gap, against, mask):
    """Whether each place is somebody's (1) or not (0), parts and gaps seen as wholes.

    evidence       smoothed; above 0 speaks for somebody
    raw            not smoothed
    small          of so few places a part is nobody's
    gap, against   gaps of so few places are filled where raw evidence is no lower in the mean
    """
    rows, columns = evidence.shape
    for y in range(rows):
        for x in range(columns):
            mask[y, x] = _F(1) if evidence[y, x] > 0 else _F(0)
    parents = _parts(mask)
    sizes, sums = np.zeros(rows * columns, np.int64), np.zeros(rows * columns, np.float64)
    for y in range(rows):
        for x in range(columns):
            root = _root(parents, y * columns + x)
            sizes[root] += 1
            sums[root] += raw[y, x]
    for y in range(rows):
        for x in range(columns):
            root = _root(parents, y * columns + x)
            count = sizes[root]
            if mask[y, x] > 0 and count < small:
                mask[y, x] = _F(0)
            elif mask[y, x] == 0 and count < gap and sums[root] > against * count:
                mask[y, x] = _F(1)


@njit(nogil=True, cache=True)
def doubted(raw, mask, radius, out):
    """How much speaks against the places of a window outside `mask` that something speaks against.

    The mean of evidence below 0; 0 where a window has none.
    """
    rows, columns = raw.shape
    share, low = np.empty_like(raw), np.empty_like(raw)
    for y in range(rows):
        for x in range(columns):
            speaks = raw[y, x] < 0 and mask[y, x] == 0
            low[y, x] = _F(1) if speaks else _F(0)
            share[y, x] = raw[y, x] if speaks else _F(0)
    boxed(share, radius, out)
    boxed(low, radius, share)
    for y in range(rows):
        for x in range(columns):
            out[y, x] /= max(share[y, x], _F(1e-3))


@njit(nogil=True, cache=True)
def inner(seen, mask, core, weigh, radius, colours):
    """Somebody's colours [3, rows, columns] round each place; gives where there are any."""
    _, rows, columns = seen.shape
    weights, made = np.empty_like(mask), np.empty_like(mask)
    sums = np.empty_like(mask)
    for y in range(rows):
        for x in range(columns):
            weights[y, x] = mask[y, x] * (core[y, x] + _F(0.002) * max(weigh[y, x], _F(0)))
    boxed(weights, radius, sums)
    for c in range(3):
        for y in range(rows):
            for x in range(columns):
                made[y, x] = weights[y, x] * seen[c, y, x]
        boxed(made, radius, colours[c])
        for y in range(rows):
            for x in range(columns):
                colours[c, y, x] /= max(sums[y, x], _F(1e-6))
    return sums


@njit(nogil=True, cache=True)
def shared(luma, seen, behind, plate, own, there, mask, prior, rim, spread, ridge, out):
    """Opacity of a whole picture: 0 and 1 off the rims, the share of two colours on them.

    luma, behind   the picture's and the plate's, of whole size, 0 to 255
    seen, plate, own  colours of half the size; `own` where `there` says
    prior          opacity that is taken where colours do not tell; rim: where it is to be found
    ridge          how much it weighs, against squares of colours' distance over variances
    """
    rows, columns = luma.shape
    tall, wide = mask.shape
    for y in range(rows):
        for x in range(columns):
            sy, sx = min(y >> 1, tall - 1), min(x >> 1, wide - 1)
            if rim[sy, sx] == 0:
                out[y, x] = mask[sy, sx]
                continue
            likely = min(max(_mixed(prior, y, x), _F(0)), _F(1))
            if there[sy, sx] < _F(1e-5):
                out[y, x] = likely
                continue
            step = (own[0, sy, sx] - behind[y, x]) / spread[0]
            over = step * (luma[y, x] - behind[y, x]) / spread[0] * _F(0.5)
            under = step * step * _F(0.5)
            for c in range(1, 3):
                step = (own[c, sy, sx] - plate[c, sy, sx]) / spread[c]
                over += step * (seen[c, sy, sx] - plate[c, sy, sx]) / spread[c] * _F(0.25)
                under += step * step * _F(0.25)
            found = (over + ridge * likely) / (under + ridge)
            out[y, x] = min(max(found, _F(0)), _F(1))


@njit(nogil=True, cache=True)
def applied(slope, shift, guide, rim, out):
    """A guided filter's lines of half the size, along a guide of whole size, on rims alone."""
    rows, columns = guide.shape
    tall, wide = rim.shape
    for y in range(rows):
        for x in range(columns):
            if rim[min(y >> 1, tall - 1), min(x >> 1, wide - 1)] > 0:
                found = _mixed(slope, y, x) * guide[y, x] + _mixed(shift, y, x)
                out[y, x] = min(max(found, _F(0)), _F(1))
