"""A film of one picture, made in memory before work begins, to see whether its container holds it.

Many a container takes what it then cannot write, or leaves it out without a word; that would be
known when all the work is done.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

from tilewright.errors import ArgumentError
from tilewright.video import chunk
from tilewright.video.assemble import picture_packet
from tilewright.video.pyav import exact, opened, pyav, reading
from tilewright.video.source import Film
from tilewright.video.streams import (
    FORMATS,
    Made,
    goes_along,
    holds,
    named,
    options_of,
    streams_of,
    unheld,
)
from tilewright.wording import in_one_line

_REHEARSED = 2000  # packets that are looked through for the first of every stream


def rehearsed(found: Film, made: Made, out: Path) -> None:
    """Raise ArgumentError where the container cannot hold a stream; nothing is written.

    A film of one picture and of every other stream's first packet is made in memory and read again,
    as many a container takes what it then cannot write, or leaves it out without a word.
    """
    av, kept = pyav(), BytesIO()
    with reading(found.path, "source") as source:
        options = options_of(found, made, out, source)
        options.pop("movflags", None)  # which would read the file again
        sink = av.open(kept, "w", format=FORMATS[out.suffix.lower()], options=options)
        try:
            streams = streams_of(source, sink, found, made, out)
            sink.start_encoding()
            for packet in chunk.rehearsed(made.coding, made.look):
                sink.mux(
                    picture_packet(packet, packet.pts, streams[found.index], made.coding.time_base)
                )
            given = _first_packets(source, streams, found)
            for index, packet in given.items():
                packet.stream = streams[index]
                sink.mux(packet)
            names = {index: named(streams[index]) for index in given}  # a closed one's have none
            sink.close()
            _check_rehearsal(BytesIO(kept.getvalue()), list(streams), names, found, made)
        except (av.FFmpegError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            film = f"this film as {made.coding.codec} ({in_one_line(error)})"
            others = [s for s in source.streams if goes_along(s, found, made.hidden, out)]
            others = [one for one in others if one.index != found.index and not holds(one, out)]
            film = named(others[0]) if others else film
            raise unheld(found, out, film) from None
        except _LostError as lost:
            raise unheld(found, out, str(lost)) from None
        finally:
            with suppress(av.FFmpegError):
                sink.close()


class _LostError(Exception):
    """What a rehearsal did not bring back."""


def _first_packets(source: Any, streams: dict[int, Any], found: Film) -> dict[int, Any]:
    """A packet of every stream that is copied, of those that begin soon."""
    wanted = {index for index in streams if index != found.index and index in found.packets}
    first: dict[int, Any] = {}
    for packet, _ in zip(source.demux(), range(_REHEARSED), strict=False):
        if packet.size and packet.stream_index in wanted and packet.stream_index not in first:
            first[packet.stream_index] = packet
        if len(first) == len(wanted):
            break
    return first


def _check_rehearsal(
    kept: BytesIO, order: list[int], given: dict[int, str], found: Film, made: Made
) -> None:
    """Raise _LostError for a stream, or a trait of the pictures, that did not come back."""
    with opened(kept) as container:
        counts: dict[int, int] = {}
        pictures = container.streams[order.index(found.index)]
        for packet in container.demux():
            counts[packet.stream_index] = counts.get(packet.stream_index, 0) + bool(packet.size)
        for index, name in given.items():
            if not counts.get(order.index(index)):
                raise _LostError(name)
        if exact(pictures.sample_aspect_ratio, Fraction(1)) != made.look.aspect:
            raise _LostError(f"{made.coding.codec} with samples of aspect {made.look.aspect}")
