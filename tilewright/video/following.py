"""A part of a picture followed through a film, and how far from there it may be.

    motion of samples between two pictures (`kernels/motion.py`), as far as both ways agree
        -> where the part should be -> looked for there, by how it looked before (correlation)

What is not known counts as distance: it grows with every step that motion alone tells, much faster
where nothing does, and becomes small again where the part is surely seen. So a place is a middle,
a size, and by how much more all round the part may reach.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.correlation import correlated
from tilewright.video.analysis.cuts import Step
from tilewright.video.planes import kernels_of

SIDE = 40  # samples that a part's longer side is shrunk to, about
_AGREE = 0.35  # of a part's samples, that motion there and back meets in
_SEEN, _AGAIN, _BEHIND = 0.75, 0.85, 0.92  # correlation: surely seen; after it was lost; a cut
_LIKELY, _NEW = 0.5, 0.9  # it may be there; below it looks anew
_SECOND = 0.08  # by so much the next best place has to be worse, where it was lost
_KEPT = 3  # ways that a part looked, the first among them
_SCALES = (0.96, 1.0, 1.04)
_DRIFT, _SLIP = 0.15, 0.04  # samples a picture, and of a step, by which motion goes astray
_ASTRAY, _FASTER = 0.06, 1.2  # of a part's size, and of its last step, where nothing is known
_EVEN = 4.0  # deviation of light, of 255: less is nothing to be known by
_QUIET = 2.0  # mean difference of each part of 8 x 8: nothing moved


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part is, in samples.

    y, x        its middle
    high, wide  its size
    more        by how much further it may reach, to every side
    lost        whether it is not seen
    """

    y: float
    x: float
    high: float
    wide: float
    more: float
    lost: bool = False

    def inside(self, rows: int, columns: int) -> float:
        """Which share of it lies in the picture."""
        high = min(self.y + self.high / 2, rows) - max(self.y - self.high / 2, 0)
        wide = min(self.x + self.wide / 2, columns) - max(self.x - self.wide / 2, 0)
        return max(high, 0) * max(wide, 0) / (self.high * self.wide)


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """How a part looked, and how far from it that picture of it may have been taken."""

    light: NDArray
    more: float


class Follower:
    """Follows one part; pictures are float32, light of 0 to 255, and all of one size."""

    def __init__(self, first: NDArray, place: Place) -> None:
        self.place = place
        self._before, self._step = first, np.zeros(2)
        self._ways = [_Way(_cut(first, place), 0.0)]
        self._cut, self._fastest = False, 0.0

    def next(self, light: NDArray, jump: Step) -> Place:
        """Where it is in the next picture; `jump` is how unlike that is to the one before."""
        now = self.place
        if not now.lost and _quiet(self._before, light, now):
            self._before = light
            return now
        moved, agree = _moved(self._before, light, now)
        size = max(now.high, now.wide)
        known = agree >= _AGREE and not now.lost
        by = moved if known else 0.8 * self._step
        length = float(np.hypot(*by))
        self._fastest = max(self._fastest, length)
        astray = max(1.5, _ASTRAY * size, _FASTER * self._fastest)
        more = now.more + (_DRIFT + _SLIP * length if known else astray)
        wanted = replace(now, y=now.y + by[0], x=now.x + by[1], more=more)
        found, score, alone = self._seen(light, wanted)
        need = _BEHIND if self._cut else _AGAIN if now.lost else _SEEN
        if score >= need and (alone or not now.lost):
            self._cut = False
            self._step = np.array((found.y - now.y, found.x - now.x)) if not now.lost else by
            self.place = found
            if score < _NEW and known:
                self._ways = [*self._ways[:1], *self._ways[1:][-_KEPT + 2 :]]
                self._ways.append(_Way(_cut(light, found), found.more))
        else:
            if jump.large and score < _LIKELY:
                self._cut, more = True, float(sum(light.shape))
            lost = now.lost or not known or score < _LIKELY
            self.place, self._step = replace(wanted, more=more, lost=lost), by
        self._before = light
        return self.place

    def _seen(self, light: NDArray, near: Place) -> tuple[Place, float, bool]:
        """The best place near one, how well it correlates, and whether no other does as well."""
        best, score, alone = near, 0.0, False
        for number, way in enumerate(self._ways):
            if way.light.std() < _EVEN:
                continue
            # It becomes smaller by how it looked at first alone: what adds up leaves it covered.
            for scale in _SCALES[number > 0 :]:
                rows, columns = near.high * scale, near.wide * scale
                light_of = _resized(way.light, max(4, round(rows)), max(4, round(columns)))
                y, x, like, single = _matched(light, light_of, near)
                # A size that is no better than the one before is chance.
                if like > score + (0.01 if scale != 1 else 0):
                    score, alone = like, single
                    best = Place(y, x, rows, columns, way.more + 0.5)
        return best, score, alone


def _cut(light: NDArray, place: Place) -> NDArray:
    """The picture where a part is; what lies outside repeats the edge."""
    high, wide = max(4, round(place.high)), max(4, round(place.wide))
    top, left = round(place.y - high / 2), round(place.x - wide / 2)
    rows = np.arange(top, top + high).clip(0, light.shape[0] - 1)
    columns = np.arange(left, left + wide).clip(0, light.shape[1] - 1)
    found: NDArray = light[np.ix_(rows, columns)]
    return found


def _resized(light: NDArray, rows: int, columns: int) -> NDArray:
    """Another size, by mixing neighbours."""
    for axis, count in enumerate((rows, columns)):
        length = light.shape[axis]
        if length == count:
            continue
        at = ((np.arange(count) + 0.5) * length / count - 0.5).clip(0, length - 1)
        low = np.floor(at).astype(int)
        part = (at - low).astype(np.float32)
        part = part[:, None] if axis == 0 else part
        above = light.take((low + 1).clip(0, length - 1), axis)
        light = light.take(low, axis) * (1 - part) + above * part
    return light


def _quiet(before: NDArray, now: NDArray, place: Place) -> bool:
    """Whether nothing moved where a part is."""
    apart = np.abs(_cut(now, place) - _cut(before, place))
    if place.inside(*now.shape) < 1:
        return False
    rows, columns = (max(1, length // 8) for length in apart.shape)
    cells = apart[: rows * 8, : columns * 8]
    parts = [part.mean() for row in np.array_split(cells, rows) for part in _split(row, columns)]
    return bool(max(parts) < _QUIET)


def _split(row: NDArray, count: int) -> list[NDArray]:
    return np.array_split(row, count, axis=1)


def _moved(before: NDArray, now: NDArray, place: Place) -> tuple[NDArray, float]:
    """How far a part's samples went, down and across: the median of those that are sure of it, and
    how many are."""
    reach = max(16, round(max(place.high, place.wide)))
    top, left = (max(0, int(one)) for one in (place.y - reach, place.x - reach))
    cut = (slice(top, int(place.y + reach)), slice(left, int(place.x + reach)))
    pair = [np.ascontiguousarray(one[cut], np.float32) for one in (before, now)]
    if min(pair[0].shape, default=0) < 16:
        return np.zeros(2), 0.0
    field, trust = _flow(*pair)
    y, x = np.mgrid[: trust.shape[0], : trust.shape[1]]
    down, across = (y + top - place.y) / place.high, (x + left - place.x) / place.wide
    own = np.hypot(down, across) < 0.4
    sure = own & (trust > 0.5)
    if not sure.any():
        return np.zeros(2), 0.0
    found = np.array([np.median(field[1][sure]), np.median(field[0][sure])], np.float64)
    return found, float(sure.sum() / own.sum())


def _flow(first: NDArray, second: NDArray) -> tuple[NDArray, NDArray]:
    """Motion of every sample, [across and down, ...], and how far motion back agrees."""
    run = kernels_of("motion")
    sizes = [first.shape]
    while min(sizes[-1]) // 2 >= 2 * run.SIDE:
        sizes.append((sizes[-1][0] // 2, sizes[-1][1] // 2))
    lights = []
    for one in (first, second):
        several = [np.pad(one, run.BORDER, mode="edge")]
        for rows, columns in sizes[1:]:
            smaller = np.zeros((rows + 2 * run.BORDER, columns + 2 * run.BORDER), np.float32)
            run.halved(several[-1], smaller, rows, columns)
            several.append(smaller)
        lights.append(several)
    fields = [_searched(sizes, *pair) for pair in (lights, lights[::-1])]
    trust = np.empty(first.shape, np.float32)
    run.trusted(lights[0][0], lights[1][0], *first.shape, *fields, trust)
    return fields[0], trust


def _searched(sizes: list[tuple[int, ...]], first: list[NDArray], second: list[NDArray]) -> NDArray:
    run, found = kernels_of("motion"), np.zeros((2, 0, 0), np.float32)
    for level in range(len(sizes) - 1, -1, -1):
        size = sizes[level]
        coarse, found = found, np.zeros((2, *size), np.float32)
        counts = (-(-(length - run.SIDE) // run.STEP) + 1 for length in size)
        patches, weights = np.empty((2, *counts), np.float32), np.empty(size, np.float32)
        run.matched(first[level], second[level], *size, coarse, found, weights, patches)
    return found


def _matched(light: NDArray, wanted: NDArray, near: Place) -> tuple[float, float, float, bool]:
    """Where a part's look correlates best within reach of a place: its middle, how well, and
    whether no place half a part away is nearly as good.

    Of a part that reaches out of the picture what lies in it is looked for.
    """
    reach = int(min(near.more + 2, max(light.shape)))
    high, wide = wanted.shape
    tops = (round(near.y - high / 2), round(near.x - wide / 2))
    parts, windows, starts = [], [], []
    for top, length, whole in zip(tops, wanted.shape, light.shape, strict=True):
        first, last = max(0, -top), min(length, whole - top)
        if last - first < max(4, length // 2):
            return near.y, near.x, 0.0, False
        begin, end = max(0, top + first - reach), min(whole, top + last + reach)
        parts.append(slice(first, last))
        windows.append(slice(begin, end))
        starts.append(begin - first)
    like = correlated(light[tuple(windows)], wanted[tuple(parts)])
    row, column = np.unravel_index(int(like.argmax()), like.shape)
    best = float(like[row, column])
    y, x = np.ogrid[: like.shape[0], : like.shape[1]]
    other = like[(np.abs(y - row) > high // 2) | (np.abs(x - column) > wide // 2)]
    alone = other.size == 0 or float(other.max()) < best - _SECOND
    return starts[0] + row + high / 2, starts[1] + column + wide / 2, best, alone
