"""Files that a caller names: written whole or not at all, and what reading a damaged one raises.

A file is written beside its final name and renamed when complete. The cache's own files, which must
never be fatal, are in cache_files.py.
"""

from __future__ import annotations

import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright.errors import FileError, TilewrightError

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
    struct.error,
)


@contextmanager
def replacing(path: Path, argument: str) -> Iterator[Path]:
    """A temporary file in the folder of `path`, renamed to `path` if the block ends well.

    Whatever else happens it is removed, and what was at `path` before stays. Raises FileError,
    naming `argument`, where the folder is absent or cannot be written; that is before the block.
    """
    target = path.resolve()
    temporary = _create(path, target, argument)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except TilewrightError:
        raise
    except OSError as error:
        raise FileError(_message(argument, path, error.strerror or str(error))) from None
    finally:
        temporary.unlink(missing_ok=True)


def _create(path: Path, target: Path, argument: str) -> Path:
    if target.is_dir():
        raise FileError(_message(argument, path, "it is a folder"))
    try:
        handle, name = tempfile.mkstemp(
            prefix=".tilewright-", suffix=target.suffix, dir=target.parent
        )
    except OSError as error:
        raise FileError(_message(argument, path, error.strerror or str(error))) from None
    os.close(handle)
    return Path(name)


def _message(argument: str, path: Path, why: str) -> str:
    return (
        f"{argument}={str(path)!r}: cannot be written ({why}); accepted is a file name in a folder"
        " that exists and can be written"
    )


def _umask() -> int:
    """What files made here lose of their permissions; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
