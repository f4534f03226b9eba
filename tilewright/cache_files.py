"""Files of the cache that processes share: written whole or not at all, set aside when damaged.

A file is written under a temporary name and renamed, so that a reader sees all of it or none. What
cannot be trusted is renamed to *.damaged with a warning: never fatal, never read again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from pathlib import Path

from tilewright.errors import CacheWarning


def write(path: Path, content: bytes) -> None:
    """Replace `path`. Warns where that is not possible; the content is then made anew next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(name).replace(path)
        except BaseException:  # a full disk, Ctrl-C
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        warnings.warn(
            f"cache file {path}: cannot be written ({error.strerror}); its content will be made"
            " again in the next process",
            CacheWarning,
            stacklevel=3,
        )


def set_aside(path: Path, why: str) -> None:
    """Take a file out of use, with a warning that says why."""
    aside = path.with_suffix(".damaged")
    with contextlib.suppress(OSError):  # another process was first, or the folder is read-only
        path.replace(aside)
    warnings.warn(
        f"cache file {path}: {why}; set aside as {aside.name} and made again",
        CacheWarning,
        stacklevel=3,
    )
