"""A part of the film as opacity: a box in its first picture, which follows what it covers.

The film is looked at once before (`following.py`), and where the part is in every picture goes with
the stage's record. Where the part is not surely seen the box grows, up to the whole picture, and
the run tells of these pictures; a part that leaves the picture is refused before work begins.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.analysis.cuts import step, tiny
from tilewright.video.analysis.small import shrunk
from tilewright.video.decode import decoded
from tilewright.video.following import SIDE, Follower, Place
from tilewright.video.look import Frame, Look
from tilewright.video.source import Film
from tilewright.video.stages.contract import Window, Work, workers_on
from tilewright.video.stages.opacity import opaque, with_alpha
from tilewright.video.tables import LIGHT, span

GROWN = "blur: box grown where what it covers was not surely seen"
_WORTH = 0.2  # of a part's longer side: by less it is not said that a box grew
_ROUND, _LEAST = 0.08, 8  # of a part's size, what a box is larger all round; samples a side


@dataclass(frozen=True, slots=True)
class BoxMatte:
    """Pictures with opacity: a part of them, wherever it goes.

    box     left, top, width and height in the first picture, in samples
    places  of it in the film's pictures, as text; `watched` fills it in
    """

    box: tuple[int, int, int, int]
    places: str = field(default="", repr=False)

    name: ClassVar[str] = "box"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    @property
    def said(self) -> str:
        """What it covers, for messages."""
        return ",".join(map(str, self.box))

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"blur-box={self.said}"

    def turned(self, look: Look) -> Look:
        """The same look with opacity. Refuses a box that is not in the picture."""
        left, top, wide, high = self.box
        if min(wide, high) < _LEAST:
            raise ArgumentError(f"{self.label}: accepted are {_LEAST} samples a side and more")
        if min(left, top) < 0 or left + wide > look.width or top + high > look.height:
            raise ArgumentError(
                f"{self.label}: reaches out of the picture; accepted are boxes within"
                f" {look.width}x{look.height}, as X,Y,WIDTH,HEIGHT"
            )
        return opaque(self.name, look)

    @property
    def unseen(self) -> bool:
        """Whether it has yet to follow its part."""
        return not self.places

    def watched(self, film: Film, progress: Callable[[int, int], None] | None = None) -> BoxMatte:
        """Having followed its part. Raises ArgumentError where that leaves the picture."""
        self.turned(film.look)
        rows, follower, before = [], None, None
        shrink = max(1, round(max(self.box[2:]) / SIDE))
        with closing(decoded(film)) as pictures:
            for number, frame in enumerate(pictures):
                light, small = _light(frame, shrink), tiny(frame)
                if follower is None or before is None:
                    follower = Follower(light, self._begun(shrink))
                    place = follower.place
                else:
                    place = follower.next(light, step(before, small))
                before = small
                if place.inside(*light.shape) < 0.5 and place.more < max(light.shape):
                    raise ArgumentError(
                        f"{self.label}: what it covers leaves the picture at"
                        f" {float(frame.time):.2f} s; accepted is a part that stays in it, a film"
                        " that ends there, or --blur FILE, a matte"
                    )
                rows.append((frame.pts, *_box(place, shrink)))
                if progress is not None:
                    progress(number + 1, len(film.times))
        content = np.array(rows, np.int64).tobytes()
        return replace(self, places=base64.b64encode(zlib.compress(content)).decode())

    def _begun(self, shrink: int) -> Place:
        left, top, wide, high = (one / shrink for one in self.box)
        return Place(top + high / 2, left + wide / 2, high, wide, 0.0)

    def bound(self, look: Look) -> Work:
        """The places; of a picture by itself, the box."""
        turned = self.turned(look)
        if self.unseen:
            left, top, wide, high = self.box
            alone = (left, top, left + wide, top + high, 0)
            return lambda window: (_covered(window.frame, turned, alone),)
        content = zlib.decompress(base64.b64decode(self.places))
        rows = np.frombuffer(content, np.int64).reshape(-1, 6).tolist()
        places = {row[0]: tuple(row[1:]) for row in rows}
        whole = (0, 0, look.width, look.height, 1)  # of a picture that was not seen before

        def work(window: Window) -> Iterable[Frame]:
            return (_covered(window.frame, turned, places.get(window.frame.pts, whole)),)

        return work


def _light(frame: Frame, shrink: int) -> NDArray:
    """A picture's light, 0 to 255, so many times smaller."""
    black, wide = span(frame.look)
    small = shrunk(frame.planes[0], shrink)
    found: NDArray = ((small - black) * (LIGHT / wide)).astype(np.float32)
    return found


def _box(place: Place, shrink: int) -> tuple[int, int, int, int, int]:
    """Left, top, right, bottom of what is covered, in samples; whether that is more than usual."""
    sides = []
    for middle, length in ((place.x, place.wide), (place.y, place.high)):
        half = length * (0.5 + _ROUND) + place.more + 1
        sides.append(
            (int(np.floor((middle - half) * shrink)), int(np.ceil((middle + half) * shrink)))
        )
    (left, right), (top, bottom) = sides
    grown = place.lost or place.more > _WORTH * max(place.high, place.wide)
    return left, top, right, bottom, int(grown)


def _covered(frame: Frame, look: Look, place: tuple[int, ...]) -> Frame:
    left, top, right, bottom, grown = place
    alpha = np.zeros(look.shapes[0], np.float32)
    alpha[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = 1
    made = with_alpha(frame, look, alpha)
    return replace(made, notes=(*made.notes, GROWN)) if grown else made
