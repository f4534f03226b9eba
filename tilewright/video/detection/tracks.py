"""Things followed from picture to picture: the same number for the same thing.

A thing is expected where it was, moved on as fast as it lately was, and takes the nearest one of
its class that is found there, within a gate of its own size. Which takes which is the assignment of
least distance in all (Kuhn 1955; SciPy's `linear_sum_assignment`) where SciPy is there and `exact`
is asked for; else the nearest pair first, which differs only where gates overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.detection.things import Thing

FRESH, KNOWN = 3.0, 1.5  # gates in sizes of a thing seen once, and of one whose speed is known
_GROWN = 2.0  # how many times as large it may be
_LOST = 0.4  # seconds without being seen after which a thing is gone
_TRUST = 0.5  # share of a new speed
_FAR = 1e9


@dataclass(slots=True)
class _Track:
    number: int
    time: float
    thing: Thing
    speed: tuple[float, float] = (0.0, 0.0)  # samples a second
    seen: int = 1

    def expected(self, time: float) -> tuple[float, float]:
        x, y = self.thing.middle
        passed = time - self.time
        return x + self.speed[0] * passed, y + self.speed[1] * passed

    def take(self, time: float, thing: Thing) -> None:
        passed = time - self.time
        if passed > 0:
            (x, y), (a, b) = self.thing.middle, thing.middle
            new = ((a - x) / passed, (b - y) / passed)
            share = 1.0 if self.seen == 1 else _TRUST
            old = self.speed
            self.speed = (
                old[0] + share * (new[0] - old[0]), old[1] + share * (new[1] - old[1])
            )  # fmt: skip
        self.time, self.thing, self.seen = time, thing, self.seen + 1


def tracked(
    pictures: Iterable[tuple[float, Sequence[Thing]]], exact: bool = False
) -> Iterator[list[int]]:
    """Of each picture's things the numbers of their tracks, from 1 on.

    pictures: times in seconds, rising, and what is there.
    exact: by SciPy where it is there; without, the same on every machine.
    """
    tracks: list[_Track] = []
    count = 0
    for time, things in pictures:
        tracks = [one for one in tracks if time - one.time <= _LOST]
        numbers = [0] * len(things)
        for place, chosen in _pairs(_distances(tracks, time, things), exact):
            tracks[place].take(time, things[chosen])
            numbers[chosen] = tracks[place].number
        for place, thing in enumerate(things):
            if not numbers[place]:
                count += 1
                numbers[place] = count
                tracks.append(_Track(count, time, thing))
        yield numbers


def _distances(tracks: Sequence[_Track], time: float, things: Sequence[Thing]) -> NDArray:
    """How far each thing is from where each track is expected, in its gates; _FAR beyond 1."""
    found = np.full((len(tracks), len(things)), _FAR)
    for row, track in enumerate(tracks):
        x, y = track.expected(time)
        gate = (KNOWN if track.seen > 1 else FRESH) * track.thing.long
        for column, thing in enumerate(things):
            grown = thing.long / max(track.thing.long, 1e-6)
            if thing.kind != track.thing.kind or not 1 / _GROWN <= grown <= _GROWN:
                continue
            a, b = thing.middle
            apart = math.hypot(a - x, b - y) / max(gate, 1e-6)
            if apart <= 1:
                found[row, column] = apart
    return found


def _pairs(apart: NDArray, exact: bool) -> list[tuple[int, int]]:
    """Which track takes which thing."""
    if exact and apart.size:
        try:
            from scipy.optimize import linear_sum_assignment
        except ImportError:
            pass
        else:
            rows, columns = linear_sum_assignment(apart)
            pairs = zip(rows.tolist(), columns.tolist(), strict=True)
            return [pair for pair in pairs if apart[pair] < _FAR]
    found: list[tuple[int, int]] = []
    for place in np.argsort(apart, axis=None, kind="stable"):
        row, column = divmod(int(place), apart.shape[1])
        if apart[row, column] >= _FAR:
            break
        if all(row != a and column != b for a, b in found):
            found.append((row, column))
    return found


def between(before: Thing, after: Thing, share: float) -> Thing:
    """A thing on its way from one place to another."""
    places = (
        a + share * (b - a)
        for a, b in zip(
            (before.score, before.x, before.y, before.w, before.h),
            (after.score, after.x, after.y, after.w, after.h),
            strict=True,
        )
    )
    return replace(Thing(after.kind, *places), track=after.track)
