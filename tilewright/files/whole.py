"""Files that a caller names: written whole or not at all, and what reading a damaged one raises.

A file is written beside its final name and renamed when complete. The cache's own files, which must
never be fatal, are in cache.py.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewright.errors import ArgumentError, FileError, TilewrightError
from tilewright.files import atomic
from tilewright.wording import PATH, short

# What NumPy, zipfile and readers of text are known to raise on files that are not what they claim.
DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    EOFError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,  # of headers that end within a bracket
    zipfile.BadZipFile,
    zlib.error,
    csv.Error,
    struct.error,
)


def path_of(value: Any, argument: str = "path") -> Path:
    """The path that a caller named. Raises ArgumentError for what is none."""
    if isinstance(value, str | os.PathLike) and "\0" not in str(value):
        return Path(value)
    raise ArgumentError(
        f"{argument}={short(value)}: accepted is the path of a file, a str or an os.PathLike"
    )


@contextmanager
def replacing(path: Path, argument: str) -> Iterator[Path]:
    """A temporary file in the folder of `path`, renamed to `path` if the block ends well.

    Whatever else happens it is removed, and what was at `path` before stays. A file that is
    replaced keeps its mode, and its owner where that is allowed. What is no file, as /dev/stdout,
    is written to, never replaced. Raises FileError, naming `argument`, where the folder is absent
    or cannot be written; that is before the block.
    """
    target = path.resolve()
    with atomic.kept(_create(path, target, argument)) as temporary:
        try:
            yield temporary
            _finish(temporary, target)
        except TilewrightError:
            raise
        except OSError as error:
            raise FileError(_message(argument, path, error.strerror or str(error))) from None


def check_writable(path: Path | None, argument: str) -> None:
    """Raise FileError where `replacing` could not write; asked before work whose result goes there.

    None stands for an option that was not given.
    """
    if path is not None:
        _create(path, path.resolve(), argument).unlink()


def _finish(temporary: Path, target: Path) -> None:
    """Put a whole file in the place of `target`, or into it where that is a device or a pipe."""
    try:
        there = target.stat()
    except FileNotFoundError:
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
        return
    if not stat.S_ISREG(there.st_mode):
        with temporary.open("rb") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
        return
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):  # another's file: it becomes the caller's
            os.chown(temporary, there.st_uid, there.st_gid)
    temporary.chmod(stat.S_IMODE(there.st_mode))
    temporary.replace(target)


def _create(path: Path, target: Path, argument: str) -> Path:
    if target.is_dir():
        raise FileError(_message(argument, path, "it is a folder"))
    there = target.exists()
    if there and not os.access(target, os.W_OK):
        raise FileError(_message(argument, path, "it is read-only"))
    folder = None if there and not target.is_file() else target.parent
    try:
        return atomic.create(folder, target.suffix)
    except OSError as error:
        raise FileError(_message(argument, path, error.strerror or str(error))) from None


def _message(argument: str, path: Path, why: str) -> str:
    return (
        f"{argument}={short(str(path), PATH)}: cannot be written ({why}); accepted is a file"
        " name in a folder that exists and can be written"
    )


def _umask() -> int:
    """What files made here lose of their permissions; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, content: Any, argument: str = "--json") -> None:
    """Write plain JSON types, whole or not at all. Raises as `replacing` does."""
    with replacing(path, argument) as temporary:
        temporary.write_text(
            json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
