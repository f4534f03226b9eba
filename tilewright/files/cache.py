"""Files of the cache that processes share: written whole or not at all, set aside when damaged.

A file is written under a temporary name and renamed, so that a reader sees all of it or none. What
is not what it should be is renamed to *.damaged with a warning: never fatal, never read again. A
file that cannot be read at the moment (too many open files, a network folder that is away) stays.
Files are their user's alone (0600), as is every folder made here: a cache has one user.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import warnings
from pathlib import Path

from tilewright.errors import CacheWarning
from tilewright.files import atomic, trust

MOST = 256 << 20  # bytes of one file; the largest program known takes 3 MB
# A pipe or a link that somebody put there is opened without waiting, and then refused.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


def read(path: Path, most: int = MOST) -> bytes | None:
    """What a file holds; None where there is none, or none to be trusted.

    Raises OSError where it is there and cannot be read now: it may be sound, so that nobody should
    write over it.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        problem = _why_refused(path, status, most)
        content = b"" if problem else file.read(status.st_size)
    if problem:
        set_aside(path, problem)
        return None
    return content


def read_or_warn(path: Path, most: int = MOST) -> bytes | None:
    """The same, for what can be made again: a file that cannot be read now is passed over."""
    try:
        return read(path, most)
    except OSError as error:
        warn_unreadable(path, error)
        return None


def warn_unreadable(path: Path, error: OSError) -> None:
    """Say that a file is passed over this time."""
    why = f"cannot be read now ({error.strerror}); it stays, and its content is"
    _say(path, f"{why} made again in this process")


def _why_refused(path: Path, status: os.stat_result, most: int) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is no file"
    if status.st_size > most:
        return f"it has {status.st_size} bytes, more than {most}"
    return trust.why_untrusted_entry(path, status)


def write(path: Path, content: bytes) -> None:
    """Replace `path`. Warns where that is not possible; the content is then made anew next time."""
    try:
        replace(path, content)
    except OSError as error:
        why = f"cannot be written ({error.strerror}); its content will be made"
        _say(path, f"{why} again in the next process")


def replace(path: Path, content: bytes) -> None:
    """Replace `path`; its folder is made where it is not there. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with atomic.replacing(path) as temporary:
        temporary.write_bytes(content)


def read_sealed(path: Path, magic: bytes) -> bytes | None:
    """What `write_sealed` wrote there; one that is not whole any more is set aside."""
    content = read_or_warn(path)
    if content is None:
        return None
    body = content[len(magic) + 32 :]
    if not content.startswith(magic + digest(body)):
        set_aside(path, "it is damaged")
        return None
    return body


def write_sealed(path: Path, magic: bytes, body: bytes) -> None:
    """As `write`: what it is, 32 bytes by which damage is seen, and the content."""
    write(path, sealed(magic, body))


def sealed(magic: bytes, body: bytes) -> bytes:
    """What `read_sealed` gives `body` of."""
    return magic + digest(body) + body


def digest(content: bytes) -> bytes:
    """32 bytes that change with any byte."""
    return hashlib.blake2b(content, digest_size=32).digest()


def set_aside(path: Path, why: str) -> None:
    """Take a file out of use, with a warning that says why."""
    aside = path.with_suffix(".damaged")
    with contextlib.suppress(OSError):  # another process was first, or the folder is read-only
        path.replace(aside)
    _say(path, f"{why}; set aside as {aside.name} and made again")


def _say(path: Path, what: str) -> None:
    warnings.warn(f"cache file {path}: {what}", CacheWarning, stacklevel=4)
