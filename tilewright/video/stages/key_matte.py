"""Somebody's opacity before a wall of one colour: a plate is made of the wall, picture by picture.

What is near to the key in chroma is wall; its light may differ from place to place and from picture
to picture, so the plate is the mean of wall round each place, of a wider one where there is none
near by. All else is as with a plate (`mattes.py`). The camera may move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, FileError
from tilewright.inputs.devices import host
from tilewright.video import mattes
from tilewright.video.decode import decoded
from tilewright.video.look import Frame, Look
from tilewright.video.planes import kernels_of
from tilewright.video.plates import of_image
from tilewright.video.source import Film
from tilewright.video.stages.background import colour_of
from tilewright.video.stages.contract import Window, Work, workers_on
from tilewright.video.stages.opacity import opaque
from tilewright.video.stages.plate_matte import given
from tilewright.video.stills import pillow
from tilewright.wording import PATH, short

_NEAR, _GREY = 18.0, 14.0  # of chroma: as the key is; too grey to tell by
_SPREAD = np.array((6.0, 2.5, 2.5), np.float32)  # of a wall, beside noise
_WIDER = (3, 12, 48)  # places of half the size
_BORDER, _SHARE, _LEAST = 0.06, 0.35, 0.005


@dataclass(frozen=True, slots=True)
class KeyMatte:
    """Pictures with opacity, by the colour of the wall behind.

    colour   a name of CSS or #RRGGBB; "auto" takes what prevails at the first picture's border
    careful  as of `PlateMatte`
    chroma   the key, 0 to 255 twice; `watched` fills it in
    """

    colour: str = "auto"
    careful: bool = False
    chroma: tuple[float, ...] = ()

    name: ClassVar[str] = "matte"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    @property
    def said(self) -> str:
        """What it goes by, for messages."""
        found = ", ".join(f"{one:.0f}" for one in self.chroma)
        return f"by key {self.colour} (chroma {found})"

    def turned(self, look: Look) -> Look:
        """The same look with opacity. Refuses what has none to tell by: grey pictures."""
        if look.kind == "grey":
            raise ArgumentError(f"key: pictures are {look.format}; accepted are those in colour")
        if self.colour != "auto":
            self._named(look)
        return opaque(self.name, look)

    @property
    def unseen(self) -> bool:
        """Whether it has yet to find its key."""
        return not self.chroma

    def watched(self, film: Film, progress: Callable[[int, int], None] | None = None) -> KeyMatte:
        """With a key. Raises ArgumentError where no colour prevails."""
        if self.colour != "auto":
            return replace(self, chroma=self._named(film.look))
        with closing(decoded(film)) as pictures:
            first = next(pictures, None)
        if first is None:
            raise FileError(
                f"source={short(str(film.path), PATH)}: no picture can be decoded; accepted are"
                " films"
            )
        return replace(self, chroma=prevailing(mattes.halves(first).colours))

    def _named(self, look: Look) -> tuple[float, ...]:
        square = pillow().new("RGB", (look.width, look.height), colour_of(self.colour, "key"))
        found = mattes.halves(of_image(square, look)).colours[1:, 0, 0]
        return _told((float(found[0]), float(found[1])), f"key={short(self.colour, PATH)}")

    def bound(self, look: Look) -> Work:
        """Nothing to make ready but the loops."""
        turned = self.turned(look)
        key = self.chroma or (self._named(look) if self.colour != "auto" else ())

        def work(window: Window) -> Iterable[Frame]:
            seen = mattes.halves(window.frame)
            plate = wall(seen, key or prevailing(seen.colours))
            found = mattes.matte(seen, plate, _SPREAD)
            return (given(window.frame, turned, found, careful=self.careful),)

        return work


def _told(chroma: tuple[float, float], label: str) -> tuple[float, float]:
    """A key that is far enough from grey."""
    if np.hypot(chroma[0] - 128, chroma[1] - 128) < _GREY:
        raise ArgumentError(
            f"{label}: nearly grey (chroma {chroma[0]:.0f}, {chroma[1]:.0f}); accepted are colours,"
            " as green"
        )
    return chroma


def prevailing(colours: NDArray) -> tuple[float, float]:
    """The chroma that most of a picture's border has. Raises ArgumentError where none prevails."""
    _, rows, columns = colours.shape
    high, wide = max(1, int(_BORDER * rows)), max(1, int(_BORDER * columns))
    sides = (colours[1:, :high], colours[1:, high:, :wide], colours[1:, high:, -wide:])
    border = np.concatenate([one.reshape(2, -1) for one in sides], 1)
    bins = np.zeros((32, 32), np.int64)
    np.add.at(bins, tuple((border / 8).astype(int).clip(0, 31)), 1)
    key = 8.0 * np.array(np.unravel_index(int(bins.argmax()), bins.shape)) + 4
    for _ in range(3):  # to the middle of what is near
        near = np.hypot(*(border - key[:, None])) < _NEAR
        key = border[:, near].mean(1) if near.any() else key
    share = float(near.mean())
    if share < _SHARE:
        raise ArgumentError(
            f"key=auto: no colour prevails at the picture's border ({share:.0%} at most); accepted"
            " is --key COLOUR"
        )
    return _told((float(key[0]), float(key[1])), "key=auto")


def wall(seen: mattes.Halves, key: tuple[float, ...]) -> mattes.Halves:
    """The wall behind a picture, as light as it is there."""
    run = kernels_of("mattes").boxed
    apart = np.hypot(seen.colours[1] - key[0], seen.colours[2] - key[1])
    near = (apart < _NEAR).astype(np.float32)
    inside = np.empty_like(near)
    run(near, 2, inside)
    weights = near * (inside > 0.99)  # rims are of both
    made = np.empty_like(seen.colours)
    made[0] = np.average(seen.colours[0], weights=weights) if weights.any() else 128
    made[1], made[2] = key
    sums, part = np.empty_like(near), np.empty_like(near)
    for radius in reversed(_WIDER):
        run(weights, radius, part)
        there = part > _LEAST
        for number, one in enumerate(seen.colours):
            run(weights * one, radius, sums)
            made[number][there] = sums[there] / part[there]
    luma = made[0].repeat(2, 0).repeat(2, 1)[: seen.luma.shape[0], : seen.luma.shape[1]]
    return mattes.Halves(np.ascontiguousarray(luma), made)
