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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
from numba.core import caching, ccallback, dispatcher, serialize

from tilewright.errors import CacheWarning
from tilewright.files import cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def _cache_of(function: Any) -> Any:
    """Numba's own for functions of others that are decorated meanwhile, in other threads."""
    ours = str(function.__module__).startswith(_OURS)
    kind: Callable[[Any], Any] = _Kept if ours else caching.FunctionCache
    return kind(function)


@contextmanager
def in_files_of_ours() -> Iterator[None]:
    """Functions of ours that are decorated meanwhile are kept so. Enter it with a lock held."""
    makers: Any = (ccallback, dispatcher)
    for module in makers:
        module.FunctionCache = _cache_of
    try:
        yield
    finally:
        for module in makers:
            module.FunctionCache = caching.FunctionCache
