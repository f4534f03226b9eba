"""The film out of its chunks: pictures one chunk after the other, all else copied from the source.

Packets of sound, subtitles and data are copied bit for bit with their time stamps, and go into the
file in the order of time, so that a player never has to look far ahead. What was written is read
again before it gets its name: the pictures' number and times, and every copied packet's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from tilewright.errors import FileError
from tilewright.video import chunk
from tilewright.video.pyav import exact, pyav, reading, writing
from tilewright.video.source import Film
from tilewright.video.streams import MP4, Made, goes_along, options_of, streams_of
from tilewright.wording import PATH, short


def assemble(found: Film, made: Made, parts: Sequence[Path], whole: Path) -> Counter[int]:
    """Write the film that chunks make into a file.

    Gives how many packets of each stream no writer takes, as they are damaged or their times step
    back: those are left out, as pictures are that cannot be decoded.
    """
    refused: Counter[int] = Counter()
    shown = [p.pts for part in parts for p in chunk.packets(part)]
    decoding, later = _decoding_times(shown), _later(shown, made, whole)
    with reading(found.path, "source") as source:
        options = options_of(found, made, whole, source)
        with writing(whole, options) as sink:
            streams = streams_of(source, sink, found, made, whole)
            sink.start_encoding()
            pictures = streams[found.index]
            copied = _copied(source, streams, found.index, later)
            waiting = next(copied, None)
            for dts, packet in zip(decoding, _all(parts), strict=True):
                now = dts * made.coding.time_base
                while waiting is not None and waiting[0] <= now:
                    _copy(sink, *waiting[1], refused)
                    waiting = next(copied, None)
                picture = picture_packet(packet, dts, pictures, made.coding.time_base)
                sink.mux(_moved(picture, later))
            while waiting is not None:
                _copy(sink, *waiting[1], refused)
                waiting = next(copied, None)
    return refused


def _later(shown: Sequence[int], made: Made, whole: Path) -> Fraction:
    """By how many seconds all is written later: players of MP4 show no picture before 0."""
    begin = min(shown, default=0) if whole.suffix.lower() in MP4 else 0
    return max(0, -begin) * made.coding.time_base


def _moved(packet: Any, later: Fraction) -> Any:
    """A packet so many seconds later."""
    if later:
        ticks = round(later / exact(packet.time_base))
        packet.pts = None if packet.pts is None else packet.pts + ticks
        packet.dts = None if packet.dts is None else packet.dts + ticks
    return packet


def _copy(sink: Any, index: int, packet: Any, refused: Counter[int]) -> None:
    """A packet of the source's stream of that number, where the writer takes it."""
    av = pyav()
    try:
        sink.mux(packet)
    except (av.InvalidDataError, av.ArgumentError, av.PatchWelcomeError):
        refused[index] += 1


def _all(parts: Sequence[Path]) -> Iterator[chunk.Packet]:
    for part in parts:
        yield from chunk.packets(part)


def picture_packet(packet: chunk.Packet, dts: int, stream: Any, time_base: Fraction) -> Any:
    """A packet of a chunk as writers take it."""
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


def _copied(
    source: Any, streams: dict[int, Any], index: int, later: Fraction
) -> Iterator[tuple[Fraction, tuple[int, Any]]]:
    """Every other stream's packets, each with its time and the stream's number."""
    time = Fraction(-1 << 40)
    for packet in source.demux():
        if packet.stream_index == index or packet.stream_index not in streams or not packet.size:
            continue
        stamp = packet.dts if packet.dts is not None else packet.pts
        if stamp is not None:
            time = stamp * exact(packet.time_base)
        number = packet.stream_index
        packet.stream = streams[number]
        yield time, (number, _moved(packet, later))


def verified(
    found: Film, made: Made, expected: Sequence[int], refused: Counter[int], whole: Path
) -> None:
    """Raise FileError where the written film's pictures or copied packets are not the source's."""
    with reading(found.path, "source") as source:
        order = [one.index for one in source.streams if goes_along(one, found, made.hidden, whole)]
    with reading(whole, "out") as container:
        tick, times, others = _stamps(container, order.index(found.index))
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
    for place, index in enumerate(order):
        number = found.packets.get(index, 0) - refused[index]
        if index != found.index and others.get(place, 0) != number:
            raise FileError(
                f"{label}: stream {index} has {others.get(place, 0)} packets; accepted are {number}"
            )


def _stamps(container: Any, index: int) -> tuple[Fraction, list[Fraction], dict[int, int]]:
    """The pictures' tick and times, rising, and how many packets every other stream has."""
    others: dict[int, int] = {}
    times: list[Fraction] = []
    base = exact(container.streams[index].time_base)
    for packet in container.demux():
        if not packet.size:
            continue
        if packet.stream_index != index:
            others[packet.stream_index] = others.get(packet.stream_index, 0) + 1
        elif packet.pts is not None:
            times.append(packet.pts * base)
    return base, sorted(times), others
