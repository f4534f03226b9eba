"""The film out of its chunks: pictures one chunk after the other, all else copied from the source.

Packets of sound, subtitles and data are copied bit for bit with their time stamps, and go into the
file in the order of time, so that a player never has to look far ahead. What was written is read
again before it gets its name: the pictures' number and times, and every copied packet's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

from tilewright.errors import ArgumentError, FileError
from tilewright.video import chunk
from tilewright.video.codecs import Coding, opened
from tilewright.video.look import Look
from tilewright.video.pyav import pyav, reading, writing
from tilewright.video.source import Film
from tilewright.wording import PATH, in_one_line, short

# Made anew by whoever writes a container, and wrong of another.
_OWN = {"major_brand", "minor_version", "compatible_brands", "encoder", "duration"}
# What MP4 has places of its own for; others need a list of names and values that players ignore.
_KNOWN_TO_MP4 = {
    *("title", "artist", "album_artist", "album", "composer", "date", "comment", "genre"),
    *("copyright", "description", "synopsis", "show", "episode_id", "network", "lyrics", "track"),
    *("creation_time", "language", "handler_name", "vendor_id", "timecode", "grouping"),
}
_MP4 = (".mp4", ".m4v", ".mov")
_FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska", ".webm": "webm"}


@dataclass(frozen=True, slots=True)
class Made:
    """How the pictures of the new film are: as encoded, and when each is shown."""

    look: Look
    coding: Coding


def rehearsed(found: Film, made: Made, out: Path) -> None:
    """Raise ArgumentError where the container cannot hold a stream; nothing is written."""
    av = pyav()
    with reading(found.path, "source") as source:
        options = _options(found, made, out, source)
        options.pop("movflags", None)  # which would read the file again
        sink = av.open(BytesIO(), "w", format=_FORMATS[out.suffix.lower()], options=options)
        try:
            _streams(source, sink, found, made, out)
            sink.start_encoding()
        except (av.FFmpegError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(
                f"out={short(str(out), PATH)}: {out.suffix} cannot hold this film as"
                f" {made.coding.codec} ({in_one_line(error)}); accepted is another suffix or codec"
            ) from None
        finally:
            with suppress(av.FFmpegError):
                sink.close()


def assemble(found: Film, made: Made, parts: Sequence[Path], whole: Path) -> None:
    """Write the film that chunks make into a file."""
    decoding = _decoding_times([p.pts for part in parts for p in chunk.packets(part)])
    with reading(found.path, "source") as source:
        options = _options(found, made, whole, source)
        with writing(whole, options) as sink:
            streams = _streams(source, sink, found, made, whole)
            sink.start_encoding()
            pictures = streams[found.index]
            copied = _copied(source, streams, found.index)
            waiting = next(copied, None)
            for dts, packet in zip(decoding, _all(parts), strict=True):
                now = dts * made.coding.time_base
                while waiting is not None and waiting[0] <= now:
                    sink.mux(waiting[1])
                    waiting = next(copied, None)
                sink.mux(_picture(packet, dts, pictures, made.coding.time_base))
            while waiting is not None:
                sink.mux(waiting[1])
                waiting = next(copied, None)


def _all(parts: Sequence[Path]) -> Iterator[chunk.Packet]:
    for part in parts:
        yield from chunk.packets(part)


def _picture(packet: chunk.Packet, dts: int, stream: Any, time_base: Fraction) -> Any:
    made = pyav().Packet(packet.content)
    made.time_base = time_base
    made.pts, made.dts, made.duration = packet.pts, dts, packet.duration
    made.is_keyframe = packet.key
    made.stream = stream
    return made


def _decoding_times(shown: Sequence[int]) -> list[int]:
    """Times at which packets are decoded, rising, none after its picture is shown.

    Chunks know nothing of each other, so their encoders' own would step back at every seam. Each
    packet takes the time of the picture shown so many places earlier as the film's worst needs.
    """
    order = sorted(shown)
    place = {pts: number for number, pts in enumerate(order)}
    late = max((number - place[pts] for number, pts in enumerate(shown)), default=0)
    step = order[1] - order[0] if len(order) > 1 else 1
    return [
        order[number - late] if number >= late else order[0] - (late - number) * step
        for number in range(len(order))
    ]


def _options(found: Film, made: Made, out: Path, source: Any) -> dict[str, str]:
    if out.suffix.lower() not in _MP4:
        return {}
    options = {"movflags": "+faststart"}
    if made.coding.time_base.numerator == 1:
        options["video_track_timescale"] = str(made.coding.time_base.denominator)
    if set(_metadata(source.metadata)) - _KNOWN_TO_MP4:
        options["movflags"] += "+use_metadata_tags"
    return options


def _metadata(given: dict[str, str]) -> dict[str, str]:
    return {key: text for key, text in given.items() if key.lower() not in _OWN}


def _streams(source: Any, sink: Any, found: Film, made: Made, out: Path) -> dict[int, Any]:
    """A stream of the sink for each of the source, in the same order."""
    sink.metadata.update(_metadata(source.metadata))
    if chapters := source.chapters():
        sink.set_chapters(chapters)
    streams: dict[int, Any] = {}
    for stream in source.streams:
        if stream.index == found.index:
            new = opened(sink, made.coding, made.look)
        else:
            new = _template(sink, stream, out)
        new.metadata.update(_metadata(stream.metadata))
        new.disposition = int(stream.disposition)
        streams[stream.index] = new
    return streams


def _template(sink: Any, stream: Any, out: Path) -> Any:
    try:
        return sink.add_stream_from_template(stream, opaque=True)
    except ValueError:
        name = getattr(stream.codec_context, "name", None) or stream.type
        raise ArgumentError(
            f"out={short(str(out), PATH)}: {out.suffix} cannot hold stream {stream.index}"
            f" ({stream.type}, {name}); accepted is .mkv, which holds nearly all"
        ) from None


def _copied(source: Any, streams: dict[int, Any], index: int) -> Iterator[tuple[Fraction, Any]]:
    """Every other stream's packets, each with its time."""
    time = Fraction(-1 << 40)
    for packet in source.demux():
        if packet.stream_index == index or not packet.size:
            continue
        stamp = packet.dts if packet.dts is not None else packet.pts
        if stamp is not None:
            time = stamp * packet.time_base
        packet.stream = streams[packet.stream_index]
        yield time, packet


def verified(found: Film, made: Made, expected: Sequence[int], whole: Path) -> None:
    """Raise FileError where the written film's pictures or copied packets are not the source's."""
    with reading(whole, "out") as container:
        tick, times, others = _stamps(container, found.index)
    with reading(found.path, "source") as container:
        _, _, given = _stamps(container, found.index)
    wanted = [pts * made.coding.time_base for pts in sorted(expected)]
    label = f"out={short(str(whole), PATH)}"
    if len(times) != len(wanted):
        raise FileError(f"{label}: {len(times)} pictures were written; accepted are {len(wanted)}")
    # A container may begin at 0 what began before; then all streams move alike.
    shift = times[0] - wanted[0]
    coarse = tick if made.coding.time_base % tick else Fraction(0)
    wrong = [(a, b) for a, b in zip(times, wanted, strict=True) if abs(a - b - shift) > coarse]
    if wrong:
        raise FileError(
            f"{label}: a picture is at {float(wrong[0][0])} s; accepted is {float(wrong[0][1])} s"
        )
    for index, number in given.items():
        if others.get(index, 0) != number:
            raise FileError(
                f"{label}: stream {index} has {others.get(index, 0)} packets; accepted are {number}"
            )


def _stamps(container: Any, index: int) -> tuple[Fraction, list[Fraction], dict[int, int]]:
    """The pictures' tick and times, rising, and how many packets every other stream has."""
    others: dict[int, int] = {}
    times: list[Fraction] = []
    base = Fraction(container.streams[index].time_base)
    for packet in container.demux():
        if not packet.size:
            continue
        if packet.stream_index != index:
            others[packet.stream_index] = others.get(packet.stream_index, 0) + 1
        elif packet.pts is not None:
            times.append(packet.pts * base)
    return base, sorted(times), others
