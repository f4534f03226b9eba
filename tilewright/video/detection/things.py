"""What was found in a picture, as it goes along with the picture and into files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from tilewright.video.detection.boxes import Boxes

_DIGITS = 2  # of places, behind the point; scores have two more


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing: its class, how sure the network is (0 to 1), left, top, width, height.

    track  its track's number, where the whole film was followed; else 0
    """

    kind: str
    score: float
    x: float
    y: float
    w: float
    h: float
    track: int = field(default=0, kw_only=True)

    @property
    def middle(self) -> tuple[float, float]:
        """Across and down."""
        return self.x + self.w / 2, self.y + self.h / 2

    @property
    def long(self) -> float:
        """The longer side."""
        return max(self.w, self.h)


@dataclass(frozen=True, slots=True)
class Found:
    """The things of one picture.

    time           of the picture that was looked at: others may be made of it later
    width, height  of that picture, in whose samples the things are
    """

    time: Fraction
    width: int
    height: int
    things: tuple[Thing, ...]

    def sized(self, width: int, height: int) -> tuple[Thing, ...]:
        """The things in samples of a picture of another size."""
        across, down = width / self.width, height / self.height
        return tuple(
            replace(one, x=one.x * across, y=one.y * down, w=one.w * across, h=one.h * down)
            for one in self.things
        )


def of_boxes(boxes: Boxes, names: Sequence[str]) -> tuple[Thing, ...]:
    """Boxes as things of named classes, rounded as files have them."""
    found = []
    for corners, score, kind in zip(boxes.corners, boxes.scores, boxes.kinds, strict=True):
        left, top, right, bottom = (float(value) for value in corners)
        place = left, top, right - left, bottom - top
        found.append(rounded(Thing(names[int(kind)], float(score), *place)))
    return tuple(found)


def rounded(one: Thing) -> Thing:
    """As files have it."""
    place = (round(length, _DIGITS) for length in (one.x, one.y, one.w, one.h))
    made = Thing(one.kind, round(one.score, _DIGITS + 2), *place)
    return replace(made, track=one.track)


def plain(found: Any, time: Fraction, width: int, height: int) -> list[list[Any]] | None:
    """A picture's things as JSON has them; None where it was not looked at itself."""
    if not isinstance(found, Found) or found.time != time:
        return None
    return [
        [one.kind, one.score, *(round(v, _DIGITS) for v in (one.x, one.y, one.w, one.h))]
        for one in found.sized(width, height)
    ]
