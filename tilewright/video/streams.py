"""Which streams of a film go along, and as what: pictures as encoded, others packet for packet."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from tilewright.errors import ArgumentError
from tilewright.video.codecs import Coding, opened
from tilewright.video.look import Look
from tilewright.video.pyav import pyav, reading
from tilewright.video.source import Film
from tilewright.wording import PATH, short

# Made anew by whoever writes a container, and wrong of another.
_OWN = {"major_brand", "minor_version", "compatible_brands", "encoder", "duration"}
# What MP4 has places of its own for; others need a list of names and values that players ignore.
_KNOWN_TO_MP4 = {
    *("title", "artist", "album_artist", "album", "composer", "date", "comment", "genre"),
    *("copyright", "description", "synopsis", "show", "episode_id", "network", "lyrics", "track"),
    *("creation_time", "language", "handler_name", "vendor_id", "timecode", "grouping"),
}
MP4 = (".mp4", ".m4v", ".mov")
FORMATS = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska", ".webm": "webm"}


@dataclass(frozen=True, slots=True)
class Made:
    """How the pictures of the new film are.

    hidden  whether something is made unseen in them, which other streams must not show
    """

    look: Look
    coding: Coding
    hidden: bool = False


def options_of(found: Film, made: Made, out: Path, source: Any) -> dict[str, str]:
    """What the writer of a container is told."""
    if out.suffix.lower() not in MP4:
        return {}
    options = {"movflags": "+faststart"}
    if made.coding.time_base.numerator == 1:
        options["video_track_timescale"] = str(made.coding.time_base.denominator)
    if set(map(str.lower, _metadata(source.metadata))) - _KNOWN_TO_MP4:
        options["movflags"] += "+use_metadata_tags"
    return options


def _metadata(given: dict[str, str]) -> dict[str, str]:
    return {key: text for key, text in given.items() if key.lower() not in _OWN}


def streams_of(source: Any, sink: Any, found: Film, made: Made, out: Path) -> dict[int, Any]:
    """A stream of the sink for each of the source that goes along, in the same order."""
    sink.metadata.update(_metadata(source.metadata))
    if chapters := source.chapters():
        sink.set_chapters(chapters)
    streams: dict[int, Any] = {}
    for stream in source.streams:
        if not goes_along(stream, found, made.hidden, out):
            continue
        if stream.index == found.index:
            _check_opacity(stream, found)
            new = opened(sink, made.coding, made.look)
        else:
            new = _template(sink, stream, found, out)
        new.metadata.update(_metadata(stream.metadata))
        new.disposition = int(stream.disposition)
        streams[stream.index] = new
    if timecode := next((s.metadata["timecode"] for s in source.streams if _is_timecode(s)), None):
        streams[found.index].metadata.setdefault("timecode", timecode)
    return streams


def _check_opacity(stream: Any, found: Film) -> None:
    """Raise ArgumentError for WebM's opacity: a second picture in each packet, not decoded here."""
    told = {key.lower(): text for key, text in stream.metadata.items()}
    if told.get("alpha_mode") == "1" and not found.look.alpha:
        raise ArgumentError(
            f"source={short(str(found.path), PATH)}: has opacity that lies beside its pictures"
            " (alpha_mode), and would be lost; accepted is opacity in the pictures, as of ProRes"
        )


def goes_along(stream: Any, found: Film, hidden: bool, out: Path) -> bool:
    """Whether a stream is copied; not where whoever writes the container makes it anew, nor where
    it may show what is hidden.

    QuickTime's chapters and time codes are tracks; they are chapters and a tag to FFmpeg, which
    writes tracks of them.
    """
    if hidden and shows(stream, found):
        return False
    if stream.type != "data":
        return True
    empty = stream.index not in found.packets
    return not (empty or _is_timecode(stream)) and holds(stream, out)


def shows(stream: Any, found: Film) -> bool:
    """Whether a stream may have pictures from before: covers, other films, attachments, but fonts.

    What a camera puts into tracks of data of its own may be anything.
    """
    if stream.type == "attachment":
        return "font" not in str(stream.metadata.get("mimetype", ""))
    if stream.type == "data":
        return not _is_timecode(stream) and stream.index in found.packets
    return bool(stream.type == "video" and stream.index != found.index)


def _is_timecode(stream: Any) -> bool:
    return stream.type == "data" and "timecode" in stream.metadata


def holds(stream: Any, out: Path) -> bool:
    """Whether a container takes a stream, by itself; of data, whether it gives a packet back."""
    av, kept = pyav(), BytesIO()
    sink = av.open(kept, "w", format=FORMATS[out.suffix.lower()])
    try:
        new = sink.add_stream_from_template(stream, opaque=True)
        sink.start_encoding()
        if stream.type != "data":
            return True
        packet = av.Packet(bytes(8))
        packet.pts = packet.dts = 0
        packet.time_base, packet.stream = stream.time_base, new
        sink.mux(packet)
        sink.close()
        with av.open(BytesIO(kept.getvalue())) as container:
            return any(one.size for one in container.demux())
    except (av.FFmpegError, ValueError):
        return False
    finally:
        with suppress(av.FFmpegError):
            sink.close()


def left_out(found: Film, hidden: bool, out: Path) -> list[str]:
    """Streams that the new film has not, and why: as they would show what is hidden, and those of
    data that its container cannot hold."""
    with reading(found.path, "source") as source:
        shown = [one for one in source.streams if hidden and shows(one, found)]
        told = [f"{named(one)}: not kept, as it may show what is hidden" for one in shown]
        return told + [
            f"{named(stream)}: not kept, as {out.suffix} cannot hold it"
            for stream in source.streams
            if stream.type == "data"
            and stream not in shown
            and stream.index in found.packets
            and not _is_timecode(stream)
            and not holds(stream, out)
        ]


def named(stream: Any) -> str:
    """A stream in messages."""
    name = getattr(stream.codec_context, "name", None) or stream.type
    return f"stream {stream.index} ({stream.type}, {name})"


def _template(sink: Any, stream: Any, found: Film, out: Path) -> Any:
    try:
        return sink.add_stream_from_template(stream, opaque=True)
    except ValueError:
        raise unheld(found, out, named(stream)) from None


def unheld(found: Film, out: Path, what: str) -> ArgumentError:
    """What is said where a container does not hold something."""
    own, suffix = found.path.suffix.lower(), out.suffix.lower()
    other = own if own in FORMATS and own != suffix else ".mkv" if suffix != ".mkv" else ".mp4"
    return ArgumentError(
        f"out={short(str(out), PATH)}: {out.suffix} cannot hold {what}; accepted is another suffix,"
        f" as {other}, or codec"
    )
