"""What a stage before found, as the pictures round each one have it: votes of tracks.

`Detect` says what it sees in a picture by itself, unsure of it or not; this stage keeps what is
sure enough once three pictures before and three behind have had their say (`detection/votes.py`).
What it says depends on that window alone, so chunks may begin anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.detection.things import Found, rounded
from tilewright.video.detection.votes import grouped, voted
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Window, Work, workers_on

UNSURE = 0.3  # of the score that is asked for, what `Detect` is to find


@dataclass(frozen=True, slots=True)
class Follow:
    """Things that the pictures round each one agree on; it stands behind `Detect`.

    score  how sure they have to be together, 0 to 1
    """

    score: float = 0.5

    name: ClassVar[str] = "follow"
    before: ClassVar[int] = 3
    after: ClassVar[int] = 3

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    def turned(self, look: Look) -> Look:
        """The same look. Refuses scores that are none."""
        if not 0 < self.score < 1:
            raise ArgumentError(f"follow: score={self.score!r}; accepted is between 0 and 1")
        return look

    def bound(self, look: Look) -> Work:
        """Nothing to make ready."""

        def followed(window: Window) -> Iterable[Frame]:
            frame = window.frame
            if not isinstance(frame.found, Found):
                return (frame,)
            shown = (*window.before, frame, *window.after)
            looked = [
                (float(one.time), grouped(one.found.sized(look.width, look.height)))
                for one in shown
                if isinstance(one.found, Found)
            ]
            place = sum(isinstance(one.found, Found) for one in window.before)
            sure = [one for one in voted(looked, place) if one.score >= self.score]
            things = tuple(rounded(one) for one in sure)
            return (replace(frame, found=Found(frame.time, look.width, look.height, things)),)

        return followed
