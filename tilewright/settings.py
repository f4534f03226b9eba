"""Every environment variable Tilewright reads, in one place, read when asked and never at import.

TILEWRIGHT_DEVICE   the default device: "host", "opencl", "opencl:0", "opencl:intel"
TILEWRIGHT_CACHE    folder for compiled programs and measurements, or "off" to keep none
TILEWRIGHT_MEMORY   how `empty` and `asarray` allocate: "allocate", "copy" or "use"
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from pathlib import Path

import platformdirs

from tilewright.errors import ArgumentError, CacheError, CacheWarning

MEMORY_WAYS = ("allocate", "copy", "use")


def device() -> str | None:
    """The device named by TILEWRIGHT_DEVICE, or None."""
    return os.environ.get("TILEWRIGHT_DEVICE") or None


def memory(way: str | None = None) -> str:
    """`way`, else TILEWRIGHT_MEMORY, else "allocate".

    Raises ArgumentError for anything but "allocate", "copy" and "use".
    """
    chosen = way or os.environ.get("TILEWRIGHT_MEMORY") or "allocate"
    if chosen not in MEMORY_WAYS:
        name = "memory" if way else "TILEWRIGHT_MEMORY"
        raise ArgumentError(f"{name}={chosen!r}: accepted are {', '.join(map(repr, MEMORY_WAYS))}")
    return chosen


def cache_folder() -> Path | None:
    """The folder for compiled programs and measurements, made if absent; None when there is none.

    A folder named by TILEWRIGHT_CACHE that cannot be used raises CacheError; the default one only
    warns once, since nobody asked for it, and everything is then built anew in each process.
    """
    named = os.environ.get("TILEWRIGHT_CACHE")
    if named == "off":
        return None
    return _usable_folder(named) if named else _default_folder()


@cache
def _usable_folder(named: str) -> Path:
    folder = Path(named).expanduser()
    problem = _why_unusable(folder)
    if problem:
        raise CacheError(
            f"TILEWRIGHT_CACHE={named!r}: {problem}; name a folder that you can write, or 'off'"
        )
    return folder


@cache
def _default_folder() -> Path | None:
    folder = Path(platformdirs.user_cache_dir("tilewright", appauthor=False))
    problem = _why_unusable(folder)
    if problem:
        warnings.warn(
            f"cache folder {folder}: {problem}; kernels are compiled anew in every process"
            " (set TILEWRIGHT_CACHE to a folder that you can write)",
            CacheWarning,
            stacklevel=3,
        )
        return None
    return folder


def _why_unusable(folder: Path) -> str | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"cannot be made ({error.strerror})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "cannot be written"
    return None
