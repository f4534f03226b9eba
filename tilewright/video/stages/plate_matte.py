"""Somebody's opacity, found by what lies behind: a picture of the empty scene, or a film's median.

Light that changes all over, as of a lens that adapts, is taken out; shadows are not, and are taken
for somebody, as is all that was moved. What looks as the plate does there cannot be seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video import mattes, plates
from tilewright.video.look import Frame, Look
from tilewright.video.source import Film
from tilewright.video.stages.contract import Window, Work, workers_on
from tilewright.video.stages.opacity import cleaned, opaque, with_alpha
from tilewright.wording import PATH, short

GROWN = "blur: grown where the matte was unsure"
_WORTH = 0.003  # of the picture: by less it is not said that a blur grew


@dataclass(frozen=True, slots=True)
class PlateMatte:
    """Pictures with opacity, by a plate.

    picture  a file: the empty scene, as large as the film; "" takes the median of the film, whose
             camera has to hold still
    careful  whatever may be somebody is, and pictures in which that made a difference are told of
    plate    the plate as text; `watched` fills it in
    mark     the plate's digest, likewise
    """

    picture: str = ""
    careful: bool = False
    plate: str = field(default="", repr=False)
    mark: str = ""

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
        return f"by plate {Path(self.picture).name}" if self.picture else "by the film's median"

    def turned(self, look: Look) -> Look:
        """The same look with opacity. Refuses interlaced pictures, and those that have one."""
        return opaque(self.name, look)

    @property
    def unseen(self) -> bool:
        """Whether it has yet to find its plate."""
        return not self.plate

    def watched(self, film: Film, progress: Callable[[int, int], None] | None = None) -> PlateMatte:
        """With a plate. Raises what `plates` does."""
        found = self._read(film.look) if self.picture else plates.of_film(film, progress)
        text = plates.packed(found.planes)
        return replace(self, plate=text, mark=hashlib.sha256(text.encode()).hexdigest())

    def bound(self, look: Look) -> Work:
        """The plate, made ready."""
        if self.plate:
            plate = plates.unpacked(self.plate, look)
        elif self.picture:
            plate = self._read(look)
        else:
            raise ArgumentError("matte: no plate; accepted for pictures is --plate FILE")
        return Plated(self.turned(look), mattes.halves(plate), careful=self.careful)

    def _read(self, look: Look) -> Frame:
        found = plates.of_file(Path(self.picture), look, "plate")
        plates.check_filled(found, f"plate={short(self.picture, PATH)}")
        return found


class Plated:
    """Pictures against one plate."""

    def __init__(self, look: Look, plate: mattes.Halves, *, careful: bool) -> None:
        self._look, self._plate, self._careful = look, plate, careful

    def __call__(self, window: Window) -> Iterable[Frame]:
        """The picture with opacity."""
        frame = window.frame
        found = mattes.matte(mattes.halves(frame), self._plate)
        return (given(frame, self._look, found, careful=self._careful),)


def given(frame: Frame, look: Look, found: mattes.Found, *, careful: bool) -> Frame:
    """A picture with what was found of its opacity."""
    if not careful:
        return with_alpha(frame, look, found.alpha, cleaned(frame, found))
    alpha, more = mattes.closed(found)
    return grown(with_alpha(frame, look, alpha), more)


def grown(made: Frame, more: float) -> Frame:
    """The picture, telling that a blur grew where that is so much of it."""
    return replace(made, notes=(*made.notes, GROWN)) if more > _WORTH else made
