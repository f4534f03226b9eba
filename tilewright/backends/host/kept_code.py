"""Keeps machine code of our Numba functions in files of the cache, one for each kind of arguments.

    FUNCTION-LINE.pyXY.HASH.nbc    HASH of the arguments' types, processor and Numba's version

Numba's own cache has an index beside numbered files, and trusts both: of two processes that compile
at once for unlike processors, each may write the index of one and the file of the other, so that
every later process runs instructions that its processor has not. It passes on the system's error
where the disk is full, and that of unpickling where a file is damaged, so that products fail.
Here a file has what its name says or is made again, and what cannot be written is told in a
warning.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core import caching, ccallback, config, dispatcher, errors, serialize

from tilewright.errors import CacheWarning
from tilewright.files import cache

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"tilewright machine code 1\n"
_OURS = "tilewright."


class _Files:
    """What Numba's cache of one function asks of its files."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = Path(folder), name

    def load(self, key: Any) -> Any:
        """What was kept for a kind of arguments, or None."""
        body = cache.read_sealed(self._path(key), MAGIC)
        return None if body is None else pickle.loads(body)

    def save(self, key: Any, made: Any) -> None:
        """Raises OSError where it cannot be written."""
        cache.replace(self._path(key), cache.sealed(MAGIC, serialize.dumps(made)))

    def flush(self) -> None:
        """Of an index, of which there is none."""

    def _path(self, key: Any) -> Path:
        kind = repr((numba.__version__, key))
        kind = hashlib.blake2b(kind.encode(), digest_size=12).hexdigest()
        return self._folder / f"{self._name}.{kind}.nbc"


class _Kept(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, on files of ours."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep machine code, or say why it will be compiled again."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _tell(Path(self._cache_path).parent, error.strerror)


@functools.cache
def _tell(folder: Path, why: str) -> None:
    """Once, and not once a function."""
    warnings.warn(
        f"cache folder {folder}: cannot be written ({why}); machine code that is not in it is"
        " compiled anew in every process",
        CacheWarning,
        stacklevel=4,
    )


def _leave_streams_alone() -> None:
    """Numba's errors are coloured without touching `sys.stdout` and `sys.stderr`.

    Where colorama is installed Numba puts other streams in their place around every word that it
    colours, though it prints nothing there, and does so for errors that it only tries and drops. It
    then puts back what was there before. Our threads compile beside a program, which may redirect
    its output meanwhile: what it prints would go where it should not.
    """
    if hasattr(errors, "ColorShell"):  # with colorama alone
        errors.ColorShell = nullcontext


@contextmanager
def kept_in(folder: Path | None) -> Iterator[None]:
    """Functions of ours that are decorated meanwhile are kept there, or nowhere where it is None.

    Those of others that are decorated in other threads have Numba's own cache. Enter it with a lock
    held.
    """
    _leave_streams_alone()

    def cache_of(function: Any) -> Any:
        if not str(function.__module__).startswith(_OURS):
            return caching.FunctionCache(function)
        return caching.NullCache() if folder is None else _Kept(function)

    makers: Any = (ccallback, dispatcher)
    before = config.CACHE_DIR  # read when a function is decorated
    config.CACHE_DIR = before if folder is None else str(folder)
    for module in makers:
        module.FunctionCache = cache_of
    try:
        yield
    finally:
        config.CACHE_DIR = before
        for module in makers:
            module.FunctionCache = caching.FunctionCache
