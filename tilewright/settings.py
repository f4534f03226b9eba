"""Every environment variable Tilewright reads, in one place, read when asked and never at import.

TILEWRIGHT_DEVICE   the default device: "host", "opencl", "opencl:0", "opencl:intel"
TILEWRIGHT_CACHE    folder for compiled programs and measurements, or "off" to keep none
TILEWRIGHT_MEMORY   how `empty` and `asarray` allocate: "allocate", "copy" or "use"
NUMBA_DISABLE_JIT   of Numba: any number but 0, and none of our kernels that it compiles is used

docs/environment.md says more of each. A cache that others may write is not used: see trust.py.
`held` tells of variables of others, by which compilers and libraries are held to a set of
instructions: what is measured under one says nothing of another.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from tilewright.errors import ArgumentError, CacheError, CacheWarning
from tilewright.files import trust
from tilewright.remember import Shelf
from tilewright.wording import PATH, short

MEMORY_WAYS = ("allocate", "copy", "use")
OFF = "off"
_DEFAULT = ""  # what stands for a variable that is not set
_DEFAULT_DEPENDS_ON = ("XDG_CACHE_HOME", "HOME")


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path("/")


# A relative TILEWRIGHT_CACHE counts from here, so that the cache stays where it is after `chdir`.
_STARTED_IN = _current_folder()
# VARIABLES.get(DEVICE) asks the dictionary under os.environ, which every change of that reaches:
# os.environ.get encodes names and raises inside, which takes 0.6 µs of a plain product's 1.4.
VARIABLES: Any = getattr(os.environ, "_data", os.environ)
DEVICE: Any = "TILEWRIGHT_DEVICE"
if VARIABLES is not os.environ:
    DEVICE = os.environ.encodekey(DEVICE)


@dataclass(frozen=True, slots=True)
class _Cache:
    """A cache folder that was looked at: where it is, or why there is none."""

    folder: Path | None
    why_none: str = ""


_folders: Shelf[tuple[str, ...], _Cache] = Shelf("cache folders", most=1 << 16)
_trusted_parts: Shelf[Path, bool] = Shelf("parts of the cache that are trusted", most=1 << 16)

_HELD = (
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "CL_CONFIG_CPU_TARGET_ARCH",
)


def held() -> dict[str, str]:
    """What holds this process's code to instructions of another processor; mostly nothing."""
    return {name: value for name in _HELD if (value := os.environ.get(name))}


def as_held() -> str:
    """`held` in words, to go behind a driver's name; empty where nothing is held."""
    found = held()
    words = ", ".join(f"{name}={value}" for name, value in found.items())
    return f", held by {words}" if found else ""


def compiles() -> bool:
    """Whether Numba compiles at all: it does not where NUMBA_DISABLE_JIT is a number but 0."""
    told = os.environ.get("NUMBA_DISABLE_JIT", "0").strip()
    return not (told.isdecimal() and int(told))


def device() -> str | None:
    """The device named by TILEWRIGHT_DEVICE, or None."""
    found = VARIABLES.get(DEVICE)
    return os.fsdecode(found) if found else None


def memory(way: str | None = None) -> str:
    """`way`, else TILEWRIGHT_MEMORY, else "allocate".

    Raises ArgumentError for anything but "allocate", "copy" and "use".
    """
    chosen = way or os.environ.get("TILEWRIGHT_MEMORY") or "allocate"
    if chosen not in MEMORY_WAYS:
        name = "memory" if way else "TILEWRIGHT_MEMORY"
        raise ArgumentError(
            f"{name}={short(chosen)}: accepted are {', '.join(map(repr, MEMORY_WAYS))}"
        )
    return chosen


def cache_folder() -> Path | None:
    """The folder for compiled programs and measurements, made if absent; None when there is none.

    A folder named by TILEWRIGHT_CACHE that cannot be used raises CacheError; the default one only
    warns once, since nobody asked for it, and everything is then built anew in each process. So it
    is, with one warning, where somebody else may write the folder.
    """
    return _cache().folder


def absent_cache() -> Path | None:
    """The cache folder where it is still to be made, for who only looks; else None."""
    named = os.environ.get("TILEWRIGHT_CACHE", _DEFAULT)
    if named == OFF:
        return None
    folder = _folder_of(named)
    return None if os.path.lexists(folder) else folder


def why_no_cache() -> str:
    """Why `cache_folder` gives None, for errors of what cannot do without."""
    return _cache().why_none


def for_children() -> dict[str, str]:
    """The environment for a process that we start: its cache is this one, wherever it starts."""
    folder = cache_folder()
    return {**os.environ, "TILEWRIGHT_CACHE": OFF if folder is None else str(folder)}


def cache_part(name: str) -> Path | None:
    """The folder `name` of the cache, which may not be there yet; None where nothing may be kept.

    That is also so, with a warning, for a part that others may write, as one made under umask 0.
    """
    home = cache_folder()
    if home is None:
        return None
    part = home / name
    if part not in _trusted_parts and part.is_dir():
        problem = _why_untrusted(part)
        if problem:
            warnings.warn(_not_used(part, problem), CacheWarning, stacklevel=3)
            return None
        _trusted_parts.keep(part, True)
    return part


def code_folder(name: str) -> Path | None:
    """A folder for code that somebody else's loader reads (OpenCL's, Numba's), made if absent.

    In the cache, if nobody else can have written any file of it; else this process's own; None,
    with one warning, where that cannot be made either or others could replace it.
    """
    part = cache_part(name)
    try:
        if part is not None:
            part.mkdir(mode=0o700, exist_ok=True)
            problem = trust.why_untrusted_tree(part)
            if problem is None:
                return part
            warnings.warn(_not_used(part, problem), CacheWarning, stacklevel=3)
    except OSError as error:
        warnings.warn(_not_used(part or Path(name), str(error)), CacheWarning, stacklevel=3)
    try:
        own = private_folder() / name
        own.mkdir(mode=0o700, exist_ok=True)
    except (CacheError, OSError) as error:
        _tell_of_none(str(error))
        return None
    return own


@cache
def _tell_of_none(why: str) -> None:
    warnings.warn(
        f"no folder for code ({why}): none is kept in files, and of OpenCL's drivers those that pip"
        " installed are not found",
        CacheWarning,
        stacklevel=4,
    )


@cache
def private_folder() -> Path:
    """A folder of this process alone, removed when it ends: for what needs one without a cache.

    Raises CacheError where there is no folder for temporary files, or others could replace this.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
    except OSError as error:
        raise CacheError(f"TMPDIR: {error.strerror}; name a folder of your own") from None
    problem = trust.why_untrusted(folder)
    if problem:
        folder.rmdir()
        raise CacheError(f"TMPDIR={tempfile.gettempdir()!r}: {problem}; name a folder of your own")
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    """A child of `fork` runs what its parent registered, but the folder is not its own."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def _cache() -> _Cache:
    named = os.environ.get("TILEWRIGHT_CACHE", _DEFAULT)
    key = (named, *(os.environ.get(name, "") for name in _DEFAULT_DEPENDS_ON))
    known = _folders.get(key)
    if known is None:
        known = _folders.keep(key, _looked_up(named))
        if known.folder is None and named != OFF:
            warnings.warn(known.why_none, CacheWarning, stacklevel=4)
    return known


def _looked_up(named: str) -> _Cache:
    if named == OFF:
        return _Cache(
            None, "TILEWRIGHT_CACHE='off': there is no cache; accepted is a folder's name"
        )
    folder = _folder_of(named)
    problem = _why_unusable(folder)
    if problem and named:
        raise CacheError(
            f"TILEWRIGHT_CACHE={short(named, PATH)}: {problem}; name a folder that"
            " you can write, or 'off'"
        )
    problem = problem or _why_untrusted(folder)
    return _Cache(None, _not_used(folder, problem)) if problem else _Cache(folder)


def _folder_of(named: str) -> Path:
    try:
        return _STARTED_IN / (
            Path(named).expanduser()
            if named
            else platformdirs.user_cache_dir("tilewright", appauthor=False)
        )
    except RuntimeError as error:  # there is no such user
        raise CacheError(
            f"TILEWRIGHT_CACHE={short(named, PATH)}: {error}; name a folder that"
            " you can write, or 'off'"
        ) from None


def _why_untrusted(folder: Path) -> str | None:
    try:
        return trust.why_untrusted(folder)
    except OSError as error:
        return f"cannot be looked at ({error.strerror})"


def _not_used(folder: Path, why: str) -> str:
    return (
        f"cache folder {folder}: {why}; it is not used, and kernels are compiled anew in every"
        " process (set TILEWRIGHT_CACHE to a folder that you alone can write, or to 'off')"
    )


def _why_unusable(folder: Path) -> str | None:
    """Why a folder is not there and cannot be written; it is made, for its user alone."""
    try:
        for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            return "cannot be made (it is a file)"
    except OSError as error:
        return f"cannot be made ({error.strerror})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "cannot be written"
    return None
