"""The one way files are written here: under a name of their own, then renamed when complete.

A reader sees the old file or the new one, never a part. Files that a caller names are in whole.py,
those of the cache in cache.py, chunks of films in video/chunk.py; all three come here.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_unfinished: set[Path] = set()


def create(folder: Path | None, suffix: str = "") -> Path:
    """An empty file that only its user reads (0600), in `folder` or where the system keeps such.

    Raises OSError where none can be made there. Give it to `kept`, or remove it.
    """
    handle, name = tempfile.mkstemp(prefix=".tilewright-", suffix=suffix, dir=folder)
    os.close(handle)
    return Path(name)


@contextmanager
def kept(temporary: Path) -> Iterator[Path]:
    """For a block that writes and renames a file of `create`: what is left of it is removed."""
    _unfinished.add(temporary)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


@contextmanager
def replacing(path: Path, suffix: str = "") -> Iterator[Path]:
    """A temporary file beside `path`, renamed to it if the block ends well, else removed.

    Raises OSError where the folder cannot be written; what was at `path` before then stays.
    """
    with kept(create(path.parent, suffix)) as temporary:
        yield temporary
        temporary.replace(path)


def remove_unfinished() -> None:
    """Remove temporary files under way, for a process that ends without unwinding."""
    for temporary in tuple(_unfinished):
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
