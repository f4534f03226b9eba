"""PyAV, which decodes and encodes: imported when a film is first opened, its errors in one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
        with av.open(_address(path), metadata_errors="replace") as container:
            yield container
    except (av.FFmpegError, UnicodeError) as error:
        raise FileError(
            f"{label}: cannot be read ({in_one_line(error)}); accepted are films that FFmpeg reads"
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
