"""A film before work begins: what its pictures are, when each is shown, what lies beside them.

All packets are read once, without decoding, as only they tell how many pictures there are and when
each is shown: containers' own counts and rates are often wrong, and chunks need exact bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import FileError
from tilewright.video.look import Light, Look
from tilewright.video.pyav import beside, exact, pyav, reading
from tilewright.wording import PATH, counted, short

_STEPS_BACK = 0.25  # seconds; less is a clock that trembles
_FAR = 2  # times
_REORDERED = 16  # places by which pictures lie earlier than they are shown, at most
_ATTACHED_PICTURE = 0x400  # FFmpeg's disposition of covers
# Of a picture alone, these would be lost where a stage makes it anew or a codec has no place.
_UNKEPT = {
    "DYNAMIC_HDR_PLUS": "HDR10+ metadata that change with the scene",
    "DYNAMIC_HDR_VIVID": "HDR Vivid metadata",
    "DOVI_METADATA": "Dolby Vision metadata",
    "DOVI_RPU_BUFFER": "Dolby Vision metadata",
    "STEREO3D": "how two eyes' pictures lie",
    "SPHERICAL": "the projection of a spherical film",
}


@dataclass(frozen=True, slots=True)
class Film:
    """A film as it lies in its file.

    index      of the stream whose pictures are meant
    look       of the pictures
    codec      the decoder's name
    time_base  seconds that time stamps count
    times      when each picture is shown, rising, in units of time_base
    lengths    for how long, by time stamp
    rate       pictures a second, on average
    numbered   time stamps are absent or repeat: pictures take those of `times` in their order
    keys       when those are shown that can be decoded by themselves, as the container says
    packets    of every stream, those that hold anything
    digest     of the content of all packets
    modified   when the file was changed last, as the system counts
    unkept     what a picture carries that no encoder here keeps
    argument   what a caller names it by, for messages
    """

    path: Path
    index: int
    look: Look
    codec: str
    time_base: Fraction
    times: tuple[int, ...]
    lengths: dict[int, int]
    rate: Fraction
    numbered: bool
    keys: tuple[int, ...]
    packets: dict[int, int]
    digest: str
    modified: int
    unkept: tuple[str, ...]
    argument: str = "path"

    @property
    def seconds(self) -> float:
        """From the first picture to the end of the last."""
        last = self.times[-1]
        return float((last + self.lengths.get(last, 0) - self.times[0]) * self.time_base)


def film(path: Path, argument: str = "path") -> Film:
    """A film's facts. Raises FileError for what is no film, or has no picture."""
    label = f"{argument}={short(str(path), PATH)}"
    with reading(path, argument) as container:
        changed = modified(path)
        stream = picture_stream(container, label)
        look, unkept = _look(container, stream, label)
    with reading(path, argument) as container:
        stream = picture_stream(container, label)
        read = _read(container, stream, label)
        if not read.times:
            raise FileError(f"{label}: no picture; accepted are films of one and more")
        return Film(
            path=path,
            index=stream.index,
            look=look,
            codec=stream.codec_context.name,
            time_base=exact(stream.time_base),
            times=read.times,
            lengths=read.lengths,
            rate=_rate(stream, read.times, exact(stream.time_base)),
            numbered=read.numbered,
            keys=read.keys,
            packets=read.packets,
            digest=read.digest,
            modified=changed,
            unkept=unkept,
            argument=argument,
        )


def modified(path: Path) -> int:
    """When a file was changed last; 0 where it is gone."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def picture_stream(container: Any, label: str) -> Any:
    """The stream that holds the film: the first of pictures that is no cover."""
    streams = [s for s in container.streams.video if not int(s.disposition) & _ATTACHED_PICTURE]
    if not streams:
        raise FileError(f"{label}: no stream of pictures; accepted are films")
    if streams[0].codec_context is None:
        raise FileError(f"{label}: no decoder for its pictures; accepted are films FFmpeg decodes")
    return streams[0]


def _look(container: Any, stream: Any, label: str) -> tuple[Look, tuple[str, ...]]:
    """What the first picture says, and where it says nothing the stream."""
    siting = _siting(container, stream.index)
    first = next(pictures(container, stream), None)
    if first is None:
        raise FileError(f"{label}: no picture can be decoded; accepted are films of one and more")
    return look_of(first, stream, siting), tuple(
        sorted({_UNKEPT[kind] for kind in beside(first, stream) if kind in _UNKEPT})
    )


def pictures(container: Any, stream: Any, lost: Callable[[], None] = lambda: None) -> Iterator[Any]:
    """What a decoder makes of a stream's packets; `lost` is told of each that it refuses."""
    refused = pyav().InvalidDataError
    for packet in container.demux(stream):
        if not packet.size and packet.dts is not None:  # Theora's "as before"; no end, as it looks
            continue
        try:
            yield from packet.decode()
        except refused:
            lost()


def look_of(frame: Any, stream: Any, siting: str = "") -> Look:
    """The look of a decoder's frame."""
    full = frame.format.name.startswith("yuvj")
    side = beside(frame, stream)
    content = np.frombuffer(side.get("CONTENT_LIGHT_LEVEL", b"")[:8], np.uint32)
    context = stream.codec_context
    return Look(
        **_samples(frame),
        range=2 if full else int(frame.color_range) or int(context.color_range),
        matrix=_known(frame.colorspace, context.colorspace),
        primaries=_known(frame.color_primaries, context.color_primaries),
        transfer=_known(frame.color_trc, context.color_trc),
        siting=siting,
        aspect=exact(stream.sample_aspect_ratio, Fraction(1)),
        interlaced=bool(frame.interlaced_frame),
        turned=tuple(np.frombuffer(side.get("DISPLAYMATRIX", b""), np.int32).tolist()),
        light=Light(
            side.get("MASTERING_DISPLAY_METADATA", b""),
            (int(content[0]), int(content[1])) if content.size == 2 else None,
        ),
    )


def as_shown(look: Look, frame: Any) -> Look:
    """The look of a film for a frame of it, which may be of another size or of other samples."""
    name = frame.format.name.replace("yuvj", "yuv")
    if (frame.width, frame.height, name) == (look.width, look.height, look.format):
        return look
    return replace(look, **_samples(frame))


def _samples(frame: Any) -> dict[str, Any]:
    """What a frame's samples are, and how many."""
    shown = pyav().video.format.VideoFormat(frame.format.name.replace("yuvj", "yuv"))
    parts = shown.components
    return {
        "width": frame.width,
        "height": frame.height,
        "format": shown.name,
        "bits": parts[0].bits,
        "kind": _kind(shown, parts),
        "halved": _halved(shown) if any(part.is_chroma for part in parts) else (0, 0),
        "alpha": any(part.is_alpha for part in parts),
    }


def _kind(shown: Any, parts: Any) -> str:
    if len({part.plane for part in parts}) < len(parts) or shown.is_big_endian:
        return "packed"
    if any(part.bits > 16 for part in parts) or shown.has_palette or shown.is_bit_stream:
        return "packed"
    if "f" in shown.name.removesuffix("le")[-4:]:  # grayf16, gbrpf32: floats
        return "packed"
    if shown.is_rgb:
        return "rgb"
    return "yuv" if len(parts) > 2 else "grey"


def _halved(shown: Any) -> tuple[int, int]:
    across = (64 // shown.chroma_width(64)).bit_length() - 1
    return across, (64 // shown.chroma_height(64)).bit_length() - 1


def _known(first: int, second: int) -> int:
    """A code of H.273; 2 is unknown."""
    return int(second) if int(first) == 2 else int(first)


def _siting(container: Any, index: int) -> str:
    """Where chroma lies: PyAV shows it in no other place than what FFmpeg prints of a file."""
    logging = pyav().logging
    before = logging.get_level()
    logging.set_level(logging.VERBOSE)
    logging.set_libav_level(logging.VERBOSE)
    try:
        said = container.dumps_format()
    finally:
        logging.set_libav_level(logging.INFO)
        logging.set_level(before)
    line = next((x for x in said.splitlines() if re.search(rf"Stream #\d+:{index}\b", x)), "")
    found = re.search(r"[(, ](left|center|topleft|top|bottomleft|bottom)[),]", line)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class _Read:
    """What a film's packets say; as of `Film`."""

    times: tuple[int, ...]
    lengths: dict[int, int]
    numbered: bool
    keys: tuple[int, ...]
    packets: dict[int, int]
    digest: str


def _read(container: Any, stream: Any, label: str) -> _Read:
    """When pictures are shown, how long each, and whether that had to be made up from order.

    Raises FileError for parts joined without care, each with a clock of its own.
    """
    shown: list[int | None] = []
    coded: list[int | None] = []
    keys: list[int] = []
    lengths: dict[int, int] = {}
    packets: dict[int, int] = {}
    digest = sha256()
    for packet in container.demux():
        if not packet.size:
            continue
        digest.update(packet)
        packets[packet.stream_index] = packets.get(packet.stream_index, 0) + 1
        if packet.stream_index != stream.index or packet.is_discard:
            continue
        _check_clock(coded, packet, label)
        shown.append(packet.pts)
        coded.append(packet.dts)
        if packet.pts is not None and packet.duration:
            lengths[packet.pts] = packet.duration
        if packet.pts is not None and packet.is_keyframe:
            keys.append(packet.pts)
    known = [time for time in shown if time is not None]
    if len(known) == len(shown) and len(set(known)) == len(known):
        keyed = tuple(sorted(keys))
        return _Read(tuple(sorted(known)), lengths, False, keyed, packets, digest.hexdigest())
    step = 1 / (exact(stream.time_base) * exact(stream.average_rate, Fraction(25)))
    if "matroska" in container.format.name and (times := _from_below_zero(shown, step)):
        return _Read(times, lengths, True, (), packets, digest.hexdigest())
    given = sorted(time for time in (coded if None in shown else shown) if time is not None)
    times = _made_up(given, len(shown), max(1, round(step)))
    return _Read(times, {}, True, (), packets, digest.hexdigest())


def _check_clock(coded: Sequence[int | None], packet: Any, label: str) -> None:
    before = coded[-1] if coded else None
    if before is None or packet.dts is None:
        return
    step = float((before - packet.dts) * exact(packet.time_base))
    if step > _STEPS_BACK:
        at = float(before * exact(packet.time_base))
        raise FileError(
            f"{label}: its clock steps back by {step:.3f} s at {at:.3f} s; accepted are films whose"
            " clock runs on, and the parts of this one by themselves"
        )


def _from_below_zero(shown: Sequence[int | None], step: Fraction) -> tuple[int, ...]:
    """Times where the first pictures have none, as FFmpeg reads those of Matroska below zero.

    () where others have none either.
    """
    known = sorted(time for time in shown if time is not None)
    absent = len(shown) - len(known)
    late = any(time is None for time in shown[absent + _REORDERED :])
    if late or not known or len(set(known)) < len(known):
        return ()
    return (*(known[0] - round(n * step) for n in range(absent, 0, -1)), *known)


def _made_up(given: Sequence[int], count: int, step: int) -> tuple[int, ...]:
    """So many times that rise, by those that are given."""
    times: list[int] = []
    for number in range(count):
        least = times[-1] + 1 if times else None
        time = given[number] if number < len(given) else (times[-1] + step if times else 0)
        times.append(time if least is None else max(time, least))
    return tuple(times)


def _rate(stream: Any, times: tuple[int, ...], time_base: Fraction) -> Fraction:
    """Pictures a second: what the file says, where that is not far from what its times say.

    Browsers' recordings and others without a rate are said to have one of their clock's ticks.
    """
    said = exact(stream.average_rate)
    if len(times) < 2:
        return said or Fraction(25)
    middle = Fraction(float(np.median(np.diff(times)))) * time_base
    steady, mean = 1 / middle, (len(times) - 1) / ((times[-1] - times[0]) * time_base)
    if any(_FAR * said > one and _FAR * one > said for one in (steady, mean)):
        return said
    return steady.limit_denominator(100000)


def described(found: Film) -> str:
    """A line for `--dry-run`."""
    count = counted(len(found.times), "picture")
    return f"{count}, {found.seconds:.2f} s, {found.look.said()}, {found.codec}"
