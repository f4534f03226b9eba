"""Whether a film's pictures are of one kind: asked of some before work begins, of each as it comes.

Everything after the decoder is made for one size and one kind of samples, and a film may change
both in its middle (recordings of broadcasts, parts joined without being encoded anew). Fields may
begin in the middle too; one interlaced picture makes a film interlaced, as encoders and stages see
it. What the few that are looked at do not show costs the work that was done until then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.errors import FileError
from tilewright.video.look import Frame, Look
from tilewright.video.pyav import pyav, reading
from tilewright.video.source import Film, as_shown
from tilewright.wording import PATH, short

_LOOKED_AT = 16  # pictures, evenly spread over those that can be decoded by themselves


def sampled(film: Film) -> Film:
    """The film, interlaced where any picture is. Raises FileError where kinds differ."""
    interlaced = film.look.interlaced
    for picture in _some(film):
        _check(film, as_shown(film.look, picture), float((picture.pts or 0) * film.time_base))
        interlaced = interlaced or bool(picture.interlaced_frame)
    return replace(film, look=replace(film.look, interlaced=interlaced))


def checked(film: Film, pictures: Iterator[Frame]) -> Generator[Frame, None, None]:
    """The same pictures. Raises FileError at the first of another kind."""
    for frame in pictures:
        _check(film, frame.look, float(frame.time))
        yield frame


def _check(film: Film, look: Look, time: float) -> None:
    mine = film.look
    if (look.width, look.height, look.format) != (mine.width, mine.height, mine.format):
        raise FileError(
            f"{film.argument}={short(str(film.path), PATH)}: the picture at {time:.3f} s is"
            f" {look.said()}; accepted are films of one size and kind, here {mine.said()}"
        )


def _some(film: Film) -> Iterator[Any]:
    """Pictures as a decoder gives them, from all parts of the film."""
    count = min(_LOOKED_AT, len(film.keys))
    places = np.linspace(0, len(film.keys) - 1, count).round().astype(int) if count > 1 else ()
    if not len(places):
        return
    with reading(film.path, film.argument) as container:
        stream = container.streams[film.index]
        for place in places[1:]:
            with suppress(pyav().FFmpegError):  # damage, or no index: others tell
                container.seek(film.keys[place], stream=stream)
                picture = next(container.decode(stream), None)
                if picture is not None:
                    yield picture
