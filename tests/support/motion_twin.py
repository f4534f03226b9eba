"""What the loops of motion mean, in float64 and plain NumPy: slow, without shortcuts.

Pictures come without a border; beyond an edge lies the edge's sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
SIDE, STEP = 8, 4


def at(image: Array, y: Array, x: Array) -> Array:
    """Samples between samples, bilinear."""
    rows, columns = image.shape
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    down, right = y - top, x - left

    def pick(i: Array, j: Array) -> Array:
        return image[i.clip(0, rows - 1), j.clip(0, columns - 1)].astype(np.float64)

    above = pick(top, left) * (1 - right) + pick(top, left + 1) * right
    below = pick(top + 1, left) * (1 - right) + pick(top + 1, left + 1) * right
    return above * (1 - down) + below * down


def cubic(image: Array, y: Array, x: Array) -> Array:
    """Samples between samples by Keys' kernel."""
    rows, columns = image.shape
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)

    def weight(apart: Array) -> Array:
        a = np.abs(apart)
        near, far = 1.5 * a**3 - 2.5 * a**2 + 1, -0.5 * a**3 + 2.5 * a**2 - 4 * a + 2
        return np.where(a <= 1, near, np.where(a < 2, far, 0))

    total = np.zeros(y.shape)
    for i in range(-1, 3):
        for j in range(-1, 3):
            sample = image[(top + i).clip(0, rows - 1), (left + j).clip(0, columns - 1)]
            total += weight(y - top - i) * weight(x - left - j) * sample
    return total


def _patch(image: Array, y: float, x: float, border: int = 16) -> Array:
    """8 x 8 samples from a place on, no further outside than the border of the loops lets."""
    rows, columns = image.shape
    y = float(np.clip(y, 1 - border, rows + border - SIDE - 2))
    x = float(np.clip(x, 1 - border, columns + border - SIDE - 2))
    i, j = np.mgrid[:SIDE, :SIDE].astype(float)
    return at(image, i + y, j + x)


def matched(first: Array, second: Array, coarse: Array | None) -> Array:
    """The field of motion from one picture to another: [2, rows, columns], across and down."""
    rows, columns = first.shape
    high, wide = (-(-(length - SIDE) // STEP) + 1 for length in first.shape)
    found = np.zeros((high, wide, 2))
    field, weights = np.zeros((2, rows, columns)), np.zeros((rows, columns))
    for pi in range(high):
        y = min(STEP * pi, rows - SIDE)
        for pj in range(wide):
            x = min(STEP * pj, columns - SIDE)
            begin = np.zeros(2)
            if coarse is not None:
                cy = min((y + SIDE // 2) // 2, coarse.shape[1] - 1)
                begin = 2 * coarse[:, cy, min((x + SIDE // 2) // 2, coarse.shape[2] - 1)]
            others = [found[pi, pj - 1]] if pj else []
            others += [found[pi - 1, pj]] if pi else []
            motion = _one(first, second, y, x, begin, [*others, np.zeros(2)])
            found[pi, pj] = motion
            moved = _patch(second, y + motion[1], x + motion[0])
            weight = 1 / np.maximum(np.abs(moved - first[y : y + SIDE, x : x + SIDE]), 1)
            field[:, y : y + SIDE, x : x + SIDE] += weight * motion[:, None, None]
            weights[y : y + SIDE, x : x + SIDE] += weight
    return field / weights


def _one(first: Array, second: Array, y: int, x: int, motion: Array, others: list[Array]) -> Array:
    i, j = np.mgrid[:SIDE, :SIDE].astype(float)
    i, j = i + y, j + x
    patch = at(first, i, j)
    slopes = np.stack([
        (at(first, i, j + 1) - at(first, i, j - 1)) / 2,
        (at(first, i + 1, j) - at(first, i - 1, j)) / 2,
    ]).reshape(2, -1)  # fmt: skip
    slopes = slopes - slopes.mean(1, keepdims=True)
    inverse = np.linalg.inv(slopes @ slopes.T + 16 * np.eye(2))

    def apart(motion: Array) -> Array:
        moved = _patch(second, y + motion[1], x + motion[0])
        return (moved - moved.mean() - patch + patch.mean()).ravel()

    best = (apart(motion) ** 2).sum()
    for other in others:
        if np.abs(other - motion).sum() >= 0.25 and (apart(other) ** 2).sum() < 0.9 * best - 16:
            best, motion = (apart(other) ** 2).sum(), other
    now = motion
    for _ in range(8):
        step = inverse @ (slopes @ apart(now))
        now = now - step
        score = (apart(now) ** 2).sum()
        if not score < best:
            break
        best, motion = score, now
        if (step**2).sum() < 0.0025:
            break
    return motion


def thrown(field: Array, trust: Array, share: float, sign: float, sums: Array) -> None:
    """Add what a field's samples say where they are after a share of their way."""
    rows, columns = trust.shape
    for y, x in np.ndindex(rows, columns):
        u, v = field[:, y, x]
        for i, j in np.ndindex(2, 2):
            top, left = int(np.floor(y + share * v)) + i, int(np.floor(x + share * u)) + j
            part = (1 - abs(y + share * v - top)) * (1 - abs(x + share * u - left)) * trust[y, x]
            if 0 <= top < rows and 0 <= left < columns:
                sums[:, top, left] += part * np.array((sign * u, sign * v, 1))


def mixed(first: Array, second: Array, field: Array, share: float) -> Array:
    """Both pictures moved along a field of their own size, and mixed by time."""
    y, x = np.mgrid[: first.shape[0], : first.shape[1]].astype(float)
    one = cubic(first, y - share * field[1], x - share * field[0])
    other = cubic(second, y + (1 - share) * field[1], x + (1 - share) * field[0])
    return (1 - share) * one + share * other
