"""Pictures out of a film, in the order in which they are shown, from any time on.

A run that goes on in the middle seeks the picture that can be decoded by itself, and decodes from
there; where a container cannot seek, or pictures are told by their number alone, from the start.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.files.whole import path_of
from tilewright.video.look import Frame, Look
from tilewright.video.pyav import pyav, reading
from tilewright.video.source import Film, film


@dataclass(slots=True)
class Damage:
    """Packets that could not be decoded, and those of them that somebody took note of."""

    packets: int = 0
    noted: int = 0

    def taken(self) -> int:
        """How many came since this was last asked."""
        fresh, self.noted = self.packets - self.noted, self.packets
        return fresh


def frames(path: str | os.PathLike[str]) -> Iterator[Frame]:
    """Every picture of a film, as it is shown.

    Args:
        path: a film that FFmpeg reads.

    Yields:
        `Frame`: planes as NumPy views (uint8 or uint16, [rows, columns], to be read alone), the
        time stamp in the film's own units, and its `look`: sizes, samples, colours.

    Raises FileError for what is no film, DeviceError where PyAV is not installed.
    """
    found = film(path_of(path))
    with closing(decoded(found)) as pictures:
        yield from pictures


def decoded(
    found: Film,
    first: int | None = None,
    end: int | None = None,
    damage: Damage | None = None,
) -> Generator[Frame, None, None]:
    """Pictures whose time stamps are `first` and more, and less than `end`."""
    damage = Damage() if damage is None else damage
    if first is not None and not found.numbered and (start := _seekable(found, first)):
        begin: int | None = start
    else:
        begin = None
    before: int | None = None
    with reading(found.path) as container:
        for frame in _raw(found, container, begin, damage):
            if before is not None and frame.pts <= before:
                damage.packets += 1
                continue
            before = frame.pts
            if end is not None and frame.pts >= end:
                return
            if first is None or frame.pts >= first:
                yield frame


def _seekable(found: Film, first: int) -> int | None:
    """A time from which decoding begins at or before `first`; None where seeking finds none."""
    with reading(found.path) as container:
        stream = container.streams[found.index]
        try:
            container.seek(first, stream=stream)
            pts = next((p.pts for p in container.demux(stream) if p.size), None)
        except pyav().FFmpegError:
            return None
        return first if pts is not None and found.times[0] < pts <= first else None


def _raw(
    found: Film, container: Any, begin: int | None, damage: Damage
) -> Generator[Frame, None, None]:
    stream = container.streams[found.index]
    stream.thread_type = "AUTO"
    if begin is not None:
        container.seek(begin, stream=stream)
    number = 0
    for picture in _pictures(container, stream, damage):
        if found.numbered:
            if number >= len(found.times):
                return
            picture.pts = found.times[number]
        elif picture.pts is None:
            damage.packets += 1
            continue
        number += 1
        yield _frame(found, picture)


def _pictures(container: Any, stream: Any, damage: Damage) -> Iterator[Any]:
    av = pyav()
    for packet in container.demux(stream):
        try:
            yield from packet.decode()
        except av.InvalidDataError:
            damage.packets += 1


def _frame(found: Film, picture: Any) -> Frame:
    look = found.look
    name = picture.format.name.replace("yuvj", "yuv")
    if (picture.width, picture.height, name) != (look.width, look.height, look.format):
        look = replace(look, width=picture.width, height=picture.height, format=name)
    picture.pict_type = 0  # what the old encoder chose is no order to the new one
    picture.time_base = found.time_base
    length = found.lengths.get(picture.pts, 0)
    picture.duration = length
    views = planes(picture, look)
    return Frame(views, picture.pts, length, found.time_base, look, picture)


def planes(picture: Any, look: Look) -> tuple[NDArray, ...]:
    """The planes of a decoder's frame, as views."""
    if look.kind == "packed":
        return tuple(_view(plane, np.uint8, plane.height, None) for plane in picture.planes)
    rows = look.shapes
    dtype = look.dtype
    # "gbrp" and others of colours lie green, blue, red, in that order.
    return tuple(
        _view(plane, dtype, *shape) for plane, shape in zip(picture.planes, rows, strict=True)
    )


def _view(plane: Any, dtype: type[np.generic], rows: int, columns: int | None) -> NDArray:
    flat = np.frombuffer(plane, dtype)
    pitch = abs(plane.line_size) // flat.itemsize
    whole = flat[: rows * pitch].reshape(rows, pitch)[:, :columns]
    return whole[::-1] if plane.line_size < 0 else whole
