"""What a stage before found, drawn into the pictures: boxes that stay for more than a moment.

Things are followed through the pictures round each one (`detection/tracks.py`): what is seen in one
of them alone is not drawn, and where a thing is missed between two pictures its box goes on its way
between them. What is drawn depends on that window alone, so chunks may begin anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from tilewright.inputs.devices import host
from tilewright.video.detection.drawn import draw
from tilewright.video.detection.things import Found, Thing
from tilewright.video.detection.tracks import between, tracked
from tilewright.video.look import Frame, Look
from tilewright.video.planes import blank
from tilewright.video.stages.contract import Window, Work, check_luma, workers_on

REACH = 6  # pictures to each side


@dataclass(frozen=True, slots=True)
class Draw:
    """Boxes and names of what `Detect` found, or `Listed` with numbers of tracks, before it."""

    name: ClassVar[str] = "draw"
    before: ClassVar[int] = REACH
    after: ClassVar[int] = REACH

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    def turned(self, look: Look) -> Look:
        """The same look. Refuses interlaced pictures, and what has no plane of luma."""
        check_luma(self.name, look)
        return look

    def bound(self, look: Look) -> Work:
        """Nothing to make ready."""
        return _drawn


def _drawn(window: Window) -> Iterable[Frame]:
    things = steady(window)
    if not things:
        return (window.frame,)
    out = blank(window.frame, window.frame.look)
    for plane, to in zip(window.frame.planes, out.planes, strict=True):
        to[...] = plane
    draw(out, things)
    return (out,)


def steady(window: Window) -> list[Thing]:
    """What is in a window's picture, or was before and is again behind it, in its samples."""
    look = window.frame.look
    looked = [
        (frame.time, frame.found.sized(look.width, look.height))
        for frame in (*window.before, window.frame, *window.after)
        if isinstance(frame.found, Found) and frame.found.time == frame.time
    ]
    tracks: dict[int, list[tuple[float, Thing]]] = {}
    numbers = tracked((float(time), things) for time, things in looked)
    for (time, things), ours in zip(looked, numbers, strict=True):
        for thing, number in zip(things, ours, strict=True):
            # Numbers of whole films stand, others are below all of them.
            own = thing.track or -number
            tracks.setdefault(own, []).append((float(time), thing))
    least = min(2, len(looked))
    now = float(window.frame.time)
    return [
        _at(now, seen)
        for seen in tracks.values()
        if len(seen) >= least and seen[0][0] <= now <= seen[-1][0]
    ]


def _at(now: float, seen: list[tuple[float, Thing]]) -> Thing:
    """Where a thing is at a time between its first and its last."""
    place = next(number for number, (time, _) in enumerate(seen) if time >= now)
    time, thing = seen[place]
    if time == now or place == 0:
        return thing
    earlier, before = seen[place - 1]
    return between(before, thing, (now - earlier) / (time - earlier))
