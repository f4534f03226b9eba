"""A chunk: pictures encoded so that nothing before or after is needed, as packets in a small file.

    magic | packet, packet, ... | head (JSON), its length | end: magic, packets, CRC-32 of the rest

A packet is its time stamp, duration, flag and bytes. A file without its end is not there: a run
that is killed leaves either a whole chunk or none.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tilewright.errors import ArgumentError, FileError
from tilewright.files import atomic
from tilewright.video.codecs import Coding, encoder
from tilewright.video.detection.things import plain
from tilewright.video.look import Frame, Look
from tilewright.video.pyav import pyav
from tilewright.wording import PATH, in_one_line, short

_MAGIC = b"TWCHUNK1"
_PACKET = struct.Struct("<qqIB")  # pts, duration, bytes, whether it is a key
_END = struct.Struct("<8sII")  # magic, packets, CRC-32
_LONGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Packet:
    """What an encoder gave for one picture."""

    pts: int
    duration: int
    key: bool
    content: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What is said of a chunk.

    frames   pictures in it
    damaged  packets of the source between its bounds that could not be decoded
    extra    the encoder's headers, as hexadecimal digits
    notes    what stages told of pictures: seconds, words
    found    what was found in those that were looked at: time stamps, things (`things.plain`)
    """

    frames: int
    damaged: int
    extra: str
    notes: Sequence[Sequence[Any]] = ()
    found: Sequence[Sequence[Any]] = ()


def encode(
    path: Path,
    pictures: Iterable[Frame],
    coding: Coding,
    look: Look,
    damaged: Callable[[], int] = lambda: 0,
) -> Head:
    """Encode pictures as one chunk and write its file, whole or not at all."""
    with _written(path) as file, _refused(coding, look):
        context = encoder(coding, look)
        lengths: dict[int, int] = {}
        sink = _Sink(file)
        count = 0
        notes: list[tuple[float, str]] = []
        found: list[tuple[int, list[list[Any]]]] = []
        for frame in pictures:
            pts = _pts(frame, coding)
            lengths[pts] = int(frame.duration * frame.time_base / coding.time_base)
            carrier = carried(frame, look)
            carrier.pict_type = 0  # what the old encoder chose is no order to the new one
            carrier.pts, carrier.time_base = pts, coding.time_base
            carrier.duration = lengths[pts]
            count += 1
            notes += [(float(frame.time), words) for words in frame.notes]
            seen = plain(frame.found, frame.time, look.width, look.height)
            found += [] if seen is None else [(pts, seen)]
            sink.take(context.encode(carrier), lengths)
        sink.take(context.encode(None), lengths)
        head = Head(count, damaged(), (context.extradata or b"").hex(), notes, found)
        sink.finish(head)
    return head


def rehearsed(coding: Coding, look: Look) -> list[Packet]:
    """What the encoder makes of one black picture. Raises ArgumentError where it takes none."""
    with _refused(coding, look):
        context = encoder(coding, look)
        planes = pyav().VideoFrame(look.width, look.height, look.format)
        for plane in planes.planes:
            np.frombuffer(plane, np.uint8)[:] = 0
        planes.pts, planes.time_base = 0, coding.time_base
        given = [*context.encode(planes), *context.encode(None)]
        return [Packet(0, 1, bool(one.is_keyframe), bytes(one)) for one in given]


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """A file that is `path` once the block ends well, and gone where it does not."""
    try:
        with atomic.replacing(path, ".part") as temporary, temporary.open("w+b") as file:
            yield file
    except OSError as error:
        if isinstance(error, pyav().FFmpegError):
            raise
        raise unwritten(path, error) from None


def unwritten(path: Path, error: OSError) -> FileError:
    """What is said where a disk takes no more."""
    return FileError(
        f"out={short(str(path), PATH)}: cannot be written ({error.strerror}); accepted is a disk"
        " with room; the same line goes on where it was"
    )


@contextmanager
def _refused(coding: Coding, look: Look) -> Iterator[None]:
    """What an encoder complains of, in one line."""
    try:
        yield
    except pyav().FFmpegError as error:
        raise ArgumentError(
            f"codec={coding.codec!r}: failed on {look.said()} ({in_one_line(error)}); accepted is"
            " another codec"
        ) from None


def _pts(frame: Frame, coding: Coding) -> int:
    if frame.time_base == coding.time_base:
        return frame.pts
    return round(frame.time / coding.time_base)


def carried(frame: Frame, look: Look) -> Any:
    """A frame as encoders take it: the decoder's own where no stage made another."""
    if frame.carrier is not None and frame.carrier.format.name == look.format:
        return frame.carrier
    made = pyav().VideoFrame(look.width, look.height, look.format)
    for plane, samples in zip(made.planes, frame.planes, strict=True):
        rows, columns = samples.shape
        pitch = plane.line_size // samples.itemsize
        into = np.frombuffer(plane, samples.dtype)[: rows * pitch].reshape(rows, pitch)
        into[:, :columns] = samples
    made.color_range, made.colorspace = look.range, look.matrix
    made.color_primaries, made.color_trc = look.primaries, look.transfer
    made.duration = frame.duration
    return made


class _Sink:
    """Packets on their way into a file. The head stands at the end of what is kept in `file`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._sum, self._count = file, 0, 0
        self._put(_MAGIC)

    def _put(self, content: bytes) -> None:
        self._sum = zlib.crc32(content, self._sum)
        self._file.write(content)

    def take(self, packets: Iterable[Any], lengths: dict[int, int]) -> None:
        for packet in packets:
            length = lengths.pop(packet.pts, packet.duration or 0)
            content = bytes(packet)
            self._put(_PACKET.pack(packet.pts, length, len(content), packet.is_keyframe))
            self._put(content)
            self._count += 1

    def finish(self, head: Head) -> None:
        text = json.dumps(asdict(head)).encode()
        self._put(text)
        self._put(struct.pack("<I", len(text)))
        self._file.write(_END.pack(_MAGIC, self._count, self._sum))
        self._file.flush()


def head_of(path: Path) -> Head | None:
    """What a chunk's file says, once its sum is right; None for anything but a whole chunk."""
    with suppress(OSError, ValueError, struct.error, TypeError), path.open("rb") as file:
        size = path.stat().st_size - _END.size
        magic, _, wanted = _ended(file, size)
        file.seek(0)
        found, left = 0, size
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            found, left = zlib.crc32(block, found), left - len(block)
        if magic != _MAGIC or found != wanted or left:
            return None
        text, _ = _text(file, size)
        return Head(**json.loads(text))
    return None


def _ended(file: BinaryIO, size: int) -> tuple[bytes, int, int]:
    if size < len(_MAGIC) + 4:
        raise ValueError("too short")
    file.seek(size)
    magic, count, wanted = _END.unpack(file.read(_END.size))
    return magic, count, wanted


def _text(file: BinaryIO, size: int) -> tuple[bytes, int]:
    """The head's text, and where it begins."""
    file.seek(size - 4)
    (length,) = struct.unpack("<I", file.read(4))
    begin = size - 4 - length
    if not 0 < length < _LONGEST or begin < len(_MAGIC):
        raise ValueError("head")
    file.seek(begin)
    return file.read(length), begin


def packets(path: Path) -> Iterator[Packet]:
    """The packets of a chunk that `head_of` found whole, in the order of decoding."""
    with path.open("rb") as file:
        _, begin = _text(file, path.stat().st_size - _END.size)
        file.seek(len(_MAGIC))
        while file.tell() < begin:
            pts, duration, length, key = _PACKET.unpack(file.read(_PACKET.size))
            yield Packet(pts, duration, bool(key), file.read(length))
