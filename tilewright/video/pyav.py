"""PyAV, which decodes and encodes: imported when a film is first opened, its errors in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from tilewright.errors import DeviceError, FileError
from tilewright.wording import PATH, in_one_line, short

SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm")  # what films are written as


def pyav() -> Any:
    """The module `av`. Raises DeviceError where it is not installed."""
    os.environ.setdefault("SVT_LOG", "1")  # errors alone; this encoder greets on stderr else
    try:
        import av
    except ImportError as error:
        raise DeviceError(
            f"films need PyAV ({in_one_line(error)}); accepted is pip install 'tilewright[video]'"
        ) from None
    return av


def opened(file: Any) -> Any:
    """A container, open for reading, whose text need not be UTF-8.

    From PyAV 19 on what is not comes as it lies there; those before are told to replace it.
    """
    av = pyav()
    replacing = {"metadata_errors": "replace"} if _major(av) < 19 else {}
    return av.open(file, **replacing)


def _major(av: Any) -> int:
    return int(av.__version__.partition(".")[0])


def exact(rational: Any, absent: Fraction = Fraction(0)) -> Fraction:
    """One of PyAV's times, rates and aspects; `absent` where FFmpeg knows none.

    Those of PyAV 19 are FFmpeg's own rationals, which are rounded when they are multiplied.
    """
    if rational is None or not rational.denominator or not rational.numerator:
        return absent
    return Fraction(rational.numerator, rational.denominator)


def beside(frame: Any, stream: Any) -> dict[str, bytes]:
    """What a decoder said beside a picture's samples, of it or of all, by kind.

    FFmpeg 9, which PyAV 19 brings, tells of all pictures what it told of each. Pictures' own are
    got by number: going through them gave contents before PyAV 19, and kinds from then on.
    """
    shared = getattr(stream.codec_context, "decoded_side_data", {})
    found = {kind.name: bytes(held) for kind, held in shared.items()}
    for number in range(len(frame.side_data)):
        own = frame.side_data[number]
        found[own.type.name] = bytes(own)
    return found


def _address(path: Path) -> str:
    """A path for FFmpeg, to whom "Film: part 2.mp4" were a protocol and its address."""
    return f"file:{path}"


def check_there(path: Path, argument: str) -> None:
    """Raise FileError where there is no such file."""
    if path.is_file():
        return
    what = "a folder" if path.is_dir() else "no file" if path.exists() else "no such file"
    raise FileError(f"{argument}={short(str(path), PATH)}: {what}; accepted are films and pictures")


@contextmanager
def reading(path: Path, argument: str = "path") -> Iterator[Any]:
    """A film's container, open for reading.

    Raises FileError for what is no film, and for what FFmpeg cannot read in the block.
    """
    av = pyav()
    label = f"{argument}={short(str(path), PATH)}"
    check_there(path, argument)
    try:
        with opened(_address(path)) as container:
            yield container
    except (av.FFmpegError, UnicodeError) as error:
        # Not its text, which begins with FFmpeg's number for it: "[Errno 1094995529]".
        why = getattr(error, "strerror", None) or in_one_line(error)
        raise FileError(
            f"{label}: cannot be read ({why}); accepted are films that FFmpeg reads"
        ) from None


@contextmanager
def writing(path: Path, options: dict[str, str], argument: str = "out") -> Iterator[Any]:
    """A film's container, open for writing; raises FileError for what FFmpeg cannot write."""
    av = pyav()
    try:
        with av.open(_address(path), "w", options=options) as container:
            yield container
    except (av.FFmpegError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"{argument}={short(str(path), PATH)}: cannot be written ({in_one_line(error)});"
            f" accepted are {', '.join(SUFFIXES)} on a disk with room"
        ) from None
