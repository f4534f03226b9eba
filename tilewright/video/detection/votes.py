"""What pictures before and after say of the things in one: their class, and how sure it is.

Boxes that lie on each other in a picture are one thing, with a score for each class that was said
of it. Things are followed through the pictures of a window, whatever their class (`tracks.py`), and
all pictures of a track vote: its class is that of the largest sum of scores, and a thing's score is
the mean of its own and of the track's average, to which a picture that missed it gives nothing. So
what shows for a moment is doubted, and what is hardly seen in one of many pictures is believed. Its
sides are those of the track on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.video.detection.boxes import ALIKE, overlaps
from tilewright.video.detection.things import Thing
from tilewright.video.detection.tracks import between, tracked

OWN = 0.5  # what a picture's own score counts, of what a track says
MOST = 60  # things of a picture that are followed, the best


@dataclass(frozen=True, slots=True)
class Group:
    """Boxes of a picture that are one thing: the best, without a class, and scores by class."""

    thing: Thing
    scores: dict[str, float]


def grouped(things: Sequence[Thing]) -> list[Group]:
    """The things of a picture, the best first; each box belongs to the best that it lies on."""
    order = sorted(things, key=lambda one: -one.score)
    corners = np.asarray([(one.x, one.y, one.x + one.w, one.y + one.h) for one in order])
    alike = overlaps(corners.reshape(-1, 4), corners.reshape(-1, 4)) > ALIKE
    left = np.ones(len(order), bool)
    found: list[Group] = []
    for number, one in enumerate(order):
        if not left[number]:
            continue
        if len(found) == MOST:
            break
        mine = np.flatnonzero(left & alike[number])
        left[mine] = False
        left[number] = False
        scores = {one.kind: one.score}
        for other in mine.tolist():
            scores.setdefault(order[other].kind, order[other].score)
        found.append(Group(replace(one, kind=""), scores))
    return found


def voted(pictures: Sequence[tuple[float, Sequence[Group]]], place: int) -> list[Thing]:
    """The things of one of some pictures in a row, by its place, as all of them have it.

    pictures: times in seconds, rising, and what is there.
    """
    tracks: dict[int, dict[int, Group]] = {}
    numbers = tracked((time, [one.thing for one in groups]) for time, groups in pictures)
    for at, ((_, groups), ours) in enumerate(zip(pictures, numbers, strict=True)):
        for one, number in zip(groups, ours, strict=True):
            tracks.setdefault(number, {})[at] = one
    found = [_said(pictures, seen, place) for seen in tracks.values()]
    return sorted((one for one in found if one is not None), key=lambda one: -one.score)


def _said(
    pictures: Sequence[tuple[float, Sequence[Group]]], seen: dict[int, Group], place: int
) -> Thing | None:
    """A track's thing at a place; None before its first and behind its last."""
    if not min(seen) <= place <= max(seen):
        return None
    sums: dict[str, float] = {}
    for one in seen.values():
        for kind, score in one.scores.items():
            sums[kind] = sums.get(kind, 0.0) + score
    kind = max(sums, key=lambda one: (sums[one], one))
    whole = sums[kind] / len(pictures)
    if place in seen:
        own = seen[place].scores.get(kind, 0.0)
        thing = seen[place].thing
    else:
        own = 0.0
        before, after = max(n for n in seen if n < place), min(n for n in seen if n > place)
        (begin, _), (now, _), (end, _) = pictures[before], pictures[place], pictures[after]
        share = (now - begin) / (end - begin)
        thing = between(seen[before].thing, seen[after].thing, share)
    w, h = (
        sum(sides) / len(seen)
        for sides in (
            [one.thing.w for one in seen.values()],
            [one.thing.h for one in seen.values()],
        )
    )
    x, y = thing.middle
    return Thing(kind, OWN * own + (1 - OWN) * whole, x - w / 2, y - h / 2, w, h)
