"""Another background: a picture, which fills the frame and is cut to it, or one colour."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tilewright.errors import ArgumentError
from tilewright.inputs.devices import host
from tilewright.video.look import Frame, Look
from tilewright.video.planes import kernels_of
from tilewright.video.plates import of_image
from tilewright.video.stages.contract import Window, Work, workers_on
from tilewright.video.stages.opacity import laid, plain, steady
from tilewright.video.stills import SUFFIXES, opened, pillow
from tilewright.wording import PATH, short


@dataclass(frozen=True, slots=True)
class Background:
    """Pictures with opacity before something else; without opacity afterwards.

    colour  a name of CSS or #RRGGBB
    model   a picture's file instead, which goes to workers as networks' files do
    mark    tells that file from another; `of` fills it in
    """

    colour: str = ""
    model: str = ""
    mark: str = ""

    name: ClassVar[str] = "background"
    before: ClassVar[int] = 1
    after: ClassVar[int] = 1

    @classmethod
    def of(cls, given: str) -> Background:
        """By a file's name or a colour's. Raises ArgumentError for what is neither."""
        path = Path(given)
        if path.suffix.lower() in SUFFIXES:
            opened(path, "background")
            return cls(model=given, mark=hashlib.sha256(path.read_bytes()).hexdigest())
        colour_of(given, "background", f"{', '.join(SUFFIXES)}, ")
        return cls(colour=given)

    @property
    def workers(self) -> int:
        """A picture a core."""
        return workers_on(host())

    @property
    def said(self) -> str:
        """What it shows, for messages."""
        return Path(self.model).name if self.model else self.colour

    def turned(self, look: Look) -> Look:
        """The same look without opacity. Refuses pictures that have none."""
        return plain(self.name, look)

    def bound(self, look: Look) -> Work:
        """The background in the film's samples."""
        kernels_of("layers")
        turned = self.turned(look)
        return partial(_before, turned, of_image(self._image(turned), turned))

    def _image(self, look: Look) -> Any:
        size = (look.width, look.height)
        if not self.model:
            return pillow().new("RGB", size, colour_of(self.colour, "background"))
        from PIL import ImageOps

        return ImageOps.fit(opened(Path(self.model), "background").convert("RGB"), size)


def _before(look: Look, behind: Frame, window: Window) -> Iterable[Frame]:
    return (laid(window.frame, look, steady(window), behind.planes, above=True),)


def colour_of(given: str, argument: str, others: str = "") -> tuple[int, int, int]:
    """Red, green and blue of a colour. Raises ArgumentError for what is none."""
    pillow()
    from PIL import ImageColor

    try:
        found = ImageColor.getrgb(given)
    except ValueError:
        raise ArgumentError(
            f"{argument}={short(given, PATH)}: no colour; accepted are {others}names as green, and"
            " #RRGGBB"
        ) from None
    return found[0], found[1], found[2]
