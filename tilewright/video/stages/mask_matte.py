"""Opacity that is given: a grey film as long as this one, or one picture for all of it.

White is what is meant, black what is not, as `--matte` writes it. A film has a picture for each of
this one's, shown at the same times; that is seen before anything is written. Where one of them
cannot be decoded nobody knows what is meant, so that all is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError
from tilewright.video.decode import decoded
from tilewright.video.look import Frame, Look
from tilewright.video.source import Film, film
from tilewright.video.stages.blur import OPEN
from tilewright.video.stages.contract import Window, Work
from tilewright.video.stages.network_file import mark_of
from tilewright.video.stages.opacity import opaque, with_alpha
from tilewright.video.stages.plate_matte import GROWN
from tilewright.video.stills import SUFFIXES, opened
from tilewright.video.tables import span
from tilewright.wording import PATH, counted, short

_NEAR = Fraction(1, 400)  # seconds: Matroska counts milliseconds
_AHEAD = 240  # pictures that are decoded to come to one, before it is sought


@dataclass(frozen=True, slots=True)
class MaskMatte:
    """Pictures with opacity, by a matte's file.

    model  the file: a grey film, or a picture
    mark   tells it from another; `watched` fills it in
    later  by how many seconds the film begins later than the matte, (count, of a second);
           likewise
    """

    model: str
    mark: str = ""
    later: tuple[int, int] = (0, 1)

    name: ClassVar[str] = "mask"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0
    workers: ClassVar[int] = 1  # its pictures are decoded one after the other

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"blur={short(self.model, PATH)}"

    @property
    def still(self) -> bool:
        """Whether it is one picture for all."""
        return Path(self.model).suffix.lower() in SUFFIXES

    def turned(self, look: Look) -> Look:
        """The same look with opacity. Refuses a picture of another size."""
        if self.still:
            _check_size(self.label, opened(Path(self.model), "blur").size, look)
        return opaque(self.name, look)

    @property
    def unseen(self) -> bool:
        """Whether it has yet to be held against the film."""
        return not self.mark

    def watched(self, film: Film, progress: Callable[[int, int], None] | None = None) -> MaskMatte:
        """Held against a film. Raises ArgumentError where sizes, lengths or times do not fit."""
        if self.still:
            _picture(self.model, self.label)
            return replace(self, mark=mark_of(Path(self.model), "blur"))
        found = _read(self.model, self.label)
        _check_size(self.label, (found.look.width, found.look.height), film.look)
        ours, theirs = len(film.times), len(found.times)
        if ours != theirs:
            raise ArgumentError(
                f"{self.label}: {counted(theirs, 'picture')}; accepted are as many as the film"
                f" has, {ours}"
            )
        later = film.times[0] * film.time_base - found.times[0] * found.time_base
        for one, other in zip(film.times, found.times, strict=True):
            time = other * found.time_base + later
            if abs(one * film.time_base - time) > 2 * _NEAR:
                raise ArgumentError(
                    f"{self.label}: has a picture at {float(time):.3f} s; accepted is a matte of"
                    f" the film's times, {float(one * film.time_base):.3f} s"
                )
        mark = mark_of(Path(self.model), "blur")
        return replace(self, mark=mark, later=(later.numerator, later.denominator))

    def bound(self, look: Look) -> Work:
        """The picture, or a decoder."""
        turned = self.turned(look)
        if self.still:
            grey = _picture(self.model, self.label)

            def same(window: Window) -> Iterable[Frame]:
                return (with_alpha(window.frame, turned, grey),)

            return same
        if self.unseen:
            raise ArgumentError(f"{self.label}: a film; accepted for pictures is a picture")
        pictures = _Pictures(_read(self.model, self.label))

        def meant(window: Window) -> Iterable[Frame]:
            frame = window.frame
            alpha = pictures.at(frame.time - Fraction(*self.later))
            if alpha is not None:
                return (with_alpha(frame, turned, alpha),)
            every = np.ones(turned.shapes[0], np.float32)
            return (replace(with_alpha(frame, turned, every), notes=(*frame.notes, GROWN)),)

        return meant


def _picture(model: str, label: str) -> NDArray:
    """A matte's picture, 0 to 1. Raises ArgumentError for one by which nothing would be meant."""
    found = opened(Path(model), "blur")
    if "A" in found.mode and found.getchannel("A").getextrema()[0] < 255:
        raise ArgumentError(
            f"{label}: is transparent in places; accepted is a grey picture, white where"
            " it is meant"
        )
    grey: NDArray = np.asarray(found.convert("L"), np.float32) / 255
    if grey.max() <= OPEN:
        raise ArgumentError(
            f"{label}: black all over, so that nothing would be blurred; accepted is a picture that"
            " is white where it is meant"
        )
    return grey


def _read(model: str, label: str) -> Film:
    """A matte's film. Raises ArgumentError for one without a plane of luma."""
    found = film(Path(model), "blur")
    if found.look.kind not in ("yuv", "grey") or found.look.alpha:
        raise ArgumentError(
            f"{label}: samples are {found.look.format}; accepted is a grey film, as --matte writes"
        )
    return found


def _check_size(label: str, size: tuple[int, int], look: Look) -> None:
    if size != (look.width, look.height):
        raise ArgumentError(
            f"{label}: {size[0]}x{size[1]}; accepted is the film's size, {look.width}x{look.height}"
        )


class _Pictures:
    """A matte's pictures by time; quickest where they are asked for one after the other."""

    def __init__(self, found: Film) -> None:
        self._film = found
        self._times = np.array([float(one * found.time_base) for one in found.times])
        self._going: Generator[Frame, None, None] | None = None
        self._last: Frame | None = None

    def at(self, time: Fraction) -> NDArray | None:
        """Opacity at a time, 0 to 1; None where there is no such picture."""
        place = int(np.abs(self._times - float(time)).argmin())
        wanted = self._film.times[place]
        if abs(wanted * self._film.time_base - time) > 2 * _NEAR:
            return None
        found = self._found(place, wanted)
        if found is None or found.pts != wanted:
            return None
        black, wide = span(found.look)
        plane = found.planes[0].astype(np.float32)
        shown: NDArray = ((plane - np.float32(black)) / np.float32(wide)).clip(0, 1)
        return shown

    def _found(self, place: int, wanted: int) -> Frame | None:
        """The picture of a time stamp, or the next one that can be decoded."""
        last = self._last
        first = self._film.times[max(0, place - _AHEAD)]
        if last is None or not first <= last.pts <= wanted:
            if self._going is not None:
                self._going.close()
            self._going = decoded(self._film, wanted)
            self._last = last = next(self._going, None)
        while last is not None and last.pts < wanted and self._going is not None:
            self._last = last = next(self._going, None)
        return last
