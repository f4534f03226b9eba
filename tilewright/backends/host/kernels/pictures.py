"""Planes of pictures: whole numbers to float32 and back, doubled by a filter, sharpened.

    widen    whole [rows, columns] -> float32      sample * scale + offset
    narrow   float32 -> whole                      the nearest, from 0 to `most`
    stretch  whole [rows, columns] -> float32 [rows, wide]    two phases of four taps across
    pile     float32 [rows, wide] -> whole [tall, wide]       the same down, then the nearest
    sharpen  whole -> whole        sample + amount * (sample - mean of 3 x 3), weights 1 2 1
    quarters   whole -> float32 [4, rows / 2, columns / 2]    sample * scale, by places of 2 x 2
    corrected  whole -> whole    sample plus what such planes say

Planes are flat, with the distance of their rows (`pitch`), as decoders pad rows: so Numba sees
neighbouring samples and LLVM makes vectors. Beyond an edge lies the edge's sample.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tilewright.backends.host.kernels.helpers import helper

_F = np.float32


@njit(nogil=True, cache=True)
def widen(source, pitch, rows, columns, out, scale, offset):
    """Samples as float32, rows of `out` without gaps."""
    for y in range(rows):
        row = source[y * pitch : y * pitch + columns]
        to = out[y * columns : (y + 1) * columns]
        for x in range(columns):
            to[x] = _F(row[x]) * scale + offset


@njit(nogil=True, cache=True)
def narrow(source, rows, columns, out, pitch, scale, offset, most):
    """float32 as the nearest samples; what is no number is 0."""
    for y in range(rows):
        row = source[y * columns : (y + 1) * columns]
        to = out[y * pitch : y * pitch + columns]
        for x in range(columns):
            found = row[x] * scale + offset + _F(0.5)
            found = found if found > _F(0) else _F(0)
            to[x] = int(found if found < most else most)


@njit(nogil=True, cache=True)
def stretch(source, pitch, rows, columns, out, wide, taps, first):
    """Across: sample 2i is taps[0] over source[i + first[0]] and three more, 2i + 1 by taps[1]."""
    padded = np.empty(columns + 8, _F)
    for y in range(rows):
        for x in range(columns):
            padded[x + 4] = source[y * pitch + x]
        padded[:4] = padded[4]
        padded[columns + 4 :] = padded[columns + 3]
        for phase in range(2):
            a, b, c, d = taps[phase, 0], taps[phase, 1], taps[phase, 2], taps[phase, 3]
            row = padded[4 + first[phase] :]
            to = out[y * wide + phase : (y + 1) * wide]
            for x in range((wide + 1 - phase) // 2):
                to[2 * x] = a * row[x] + b * row[x + 1] + c * row[x + 2] + d * row[x + 3]


@njit(nogil=True, cache=True)
def pile(source, rows, wide, out, pitch, tall, taps, first, most):
    """Down, as `stretch` across."""
    for y in range(tall):
        phase = y % 2
        top = y // 2 + first[phase]
        a, b, c, d = taps[phase, 0], taps[phase, 1], taps[phase, 2], taps[phase, 3]
        r0, r1 = _row(source, top, rows, wide), _row(source, top + 1, rows, wide)
        r2, r3 = _row(source, top + 2, rows, wide), _row(source, top + 3, rows, wide)
        to = out[y * pitch : y * pitch + wide]
        for x in range(wide):
            found = a * r0[x] + b * r1[x] + c * r2[x] + d * r3[x] + _F(0.5)
            found = found if found > _F(0) else _F(0)
            to[x] = int(found if found < most else most)


@helper
def _row(source, y, rows, wide):
    y = min(max(y, 0), rows - 1)
    return source[y * wide : (y + 1) * wide]


@helper
def _means(source, pitch, rows, columns, y, sums, means):
    """The means of 3 x 3 round every sample of a row: sums down first, one wider on both sides."""
    above = source[max(y - 1, 0) * pitch :]
    here = source[y * pitch :]
    below = source[min(y + 1, rows - 1) * pitch :]
    for x in range(columns):
        sums[x + 1] = _F(above[x]) + _F(2) * _F(here[x]) + _F(below[x])
    sums[0], sums[columns + 1] = sums[1], sums[columns]
    for x in range(columns):
        means[x] = (sums[x] + _F(2) * sums[x + 1] + sums[x + 2]) * _F(0.0625)


@njit(nogil=True, cache=True)
def sharpen(source, pitch, rows, columns, out, pitch_out, amount, most):
    """Every sample further from the mean round it."""
    sums, means = np.empty(columns + 2, _F), np.empty(columns, _F)
    for y in range(rows):
        _means(source, pitch, rows, columns, y, sums, means)
        row = source[y * pitch : y * pitch + columns]
        to = out[y * pitch_out : y * pitch_out + columns]
        for x in range(columns):
            found = _F(row[x]) + amount * (_F(row[x]) - means[x]) + _F(0.5)
            found = found if found > _F(0) else _F(0)
            to[x] = int(found if found < most else most)


@njit(nogil=True, cache=True)
def quarters(source, pitch, rows, columns, out, scale):
    """Samples as float32, four planes of half the rows and columns: by places of 2 x 2.

    Beyond an odd picture's edge lies the edge's sample.
    """
    high, wide = (rows + 1) // 2, (columns + 1) // 2
    for place in range(4):
        down, right = place // 2, place % 2
        inside = (columns + 1 - right) // 2
        for y in range(high):
            row = source[min(2 * y + down, rows - 1) * pitch + right :]
            to = out[(place * high + y) * wide : (place * high + y + 1) * wide]
            for x in range(inside):
                to[x] = _F(row[2 * x]) * scale
            if inside < wide:
                to[wide - 1] = _F(source[min(2 * y + down, rows - 1) * pitch + columns - 1]) * scale


@njit(nogil=True, cache=True)
def corrected(source, pitch, rows, columns, added, out, pitch_out, scale, most):
    """Samples plus what four such planes say, times `scale`; the nearest, from 0 to `most`."""
    high, wide = (rows + 1) // 2, (columns + 1) // 2
    for y in range(rows):
        row = source[y * pitch : y * pitch + columns]
        to = out[y * pitch_out : y * pitch_out + columns]
        for right in range(2):
            place = 2 * (y % 2) + right
            said = added[(place * high + y // 2) * wide : (place * high + y // 2 + 1) * wide]
            for x in range((columns + 1 - right) // 2):
                found = _F(row[2 * x + right]) + said[x] * scale + _F(0.5)
                found = found if found > _F(0) else _F(0)
                to[2 * x + right] = int(found if found < most else most)
