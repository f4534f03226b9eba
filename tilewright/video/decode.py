"""Pictures out of a film, in the order in which they are shown, from any time on.

A run that goes on in the middle seeks a picture that can be decoded by itself, and decodes from
there. Where that does not give the picture that was asked for, as streams without an index (MPEG)
are entered anywhere, and refreshed pictures need many before them, it begins further back, and at
last with the first; as it does where pictures are told by their number alone.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.files.whole import path_of
from tilewright.video.look import Frame, Look
from tilewright.video.pyav import pyav, reading
from tilewright.video.source import Film, as_shown, film, pictures

_BACK = (1, 2, 4)  # key pictures: by so many a search goes back, then to the film's start


@dataclass(slots=True)
class Damage:
    """Packets that could not be decoded, and those of them that somebody took note of."""

    packets: int = 0
    noted: int = 0

    def add(self) -> None:
        """One more."""
        self.packets += 1

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
    with closing(entered(found, first, Damage() if damage is None else damage)) as pictures:
        for frame in pictures:
            if end is not None and frame.pts >= end:
                return
            yield frame


def entered(
    found: Film, first: int | None, damage: Damage, *, alone: bool = False
) -> Generator[Frame, None, None]:
    """Pictures from a time on; `alone` as of `rising`.

    Begun where that gives the picture of that time; or where beginning further back gave no other,
    so that it is lost.
    """
    before, wanted = damage.packets, _next_time(found, first)
    came: tuple[int | None, int | None] = (None, None)  # where it began, and with what
    for start in starts(found, first):
        with closing(rising(found, start, damage, alone=alone)) as pictures:
            at, begun = _begun(pictures, first)
            time = None if begun is None else begun.pts
            if start is not None:
                damage.packets = before  # those further back are another's
                lost = at is not None and came[0] is not None and at < came[0] and time == came[1]
                if time != wanted and not lost:
                    came = (at, time)
                    continue
            if begun is not None:
                yield begun
                yield from pictures
        return


def _begun(pictures: Iterator[Frame], time: int | None) -> tuple[int | None, Frame | None]:
    """When the first picture is shown, and the first from a time on."""
    at: int | None = None
    for frame in pictures:
        at = frame.pts if at is None else at
        if time is None or frame.pts >= time:
            return at, frame
    return at, None


def starts(found: Film, first: int | None) -> Iterator[int | None]:
    """Where to begin, one after the other until it gives the picture; None is the film's start."""
    if first is not None:
        place = bisect_right(found.keys, first)
        for back in _BACK:
            if place > back:
                yield found.keys[place - back]
    yield None


def _next_time(found: Film, first: int | None) -> int | None:
    """When the picture is shown that is asked for."""
    place = 0 if first is None else bisect_left(found.times, first)
    return found.times[place] if place < len(found.times) else None


def rising(
    found: Film,
    start: int | None,
    damage: Damage,
    *,
    alone: bool = False,
    strict: bool = False,
) -> Generator[Frame, None, None]:
    """Pictures from a time on; none where the container cannot be searched.

    alone   decoded by one thread and copied, so that no picture depends on who is at what when
    strict  what is damaged in part is refused too; a picture's own mark of it may come too late
    """
    before: int | None = None
    with reading(found.path, found.argument) as container:
        if start is not None:
            try:
                container.seek(start, stream=container.streams[found.index])
            except pyav().FFmpegError:
                return
        context = container.streams[found.index].codec_context
        context.thread_type = "NONE" if alone else "AUTO"
        context.thread_count = int(alone)  # 0 is as many as there are cores
        context.options = {"err_detect": "explode"} if strict else {}
        for frame in _raw(found, container, damage, alone):
            if before is not None and frame.pts <= before:
                damage.packets += 1
                continue
            before = frame.pts
            yield frame


def _raw(found: Film, container: Any, damage: Damage, alone: bool) -> Generator[Frame, None, None]:
    stream = container.streams[found.index]
    copies, number = _Copies(), 0
    for decoded_one in pictures(container, stream, damage.add):
        picture = copies.of(decoded_one, stream) if alone else decoded_one
        if found.numbered:
            if number >= len(found.times):
                return
            picture.pts = found.times[number]
        elif picture.pts is None:
            damage.packets += 1
            continue
        number += 1
        yield _frame(found, picture)


class _Copies:
    """Pictures in memory of their own, with all they say of themselves.

    A damaged picture may show what its buffer held before, which depends on when others let go.
    """

    def __init__(self) -> None:
        self._graph: Any = None
        self._kind: tuple[Any, ...] = ()

    def of(self, picture: Any, stream: Any) -> Any:
        kind = (picture.width, picture.height, picture.format.name)
        if kind != self._kind:
            self._graph, self._kind = self._made(kind, stream.time_base), kind
        self._graph.push(picture)
        return self._graph.pull()

    @staticmethod
    def _made(kind: tuple[Any, ...], time_base: Any) -> Any:
        width, height, name = kind
        graph = pyav().filter.Graph()
        begin = graph.add_buffer(width=width, height=height, format=name, time_base=time_base)
        copy, end = graph.add("copy"), graph.add("buffersink")
        begin.link_to(copy)
        copy.link_to(end)
        graph.configure()
        return graph


def _frame(found: Film, picture: Any) -> Frame:
    look = as_shown(found.look, picture)
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
