"""Machine code in the cache is what its file's name says, or made again; failures are told."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

numba = pytest.importorskip("numba")
from numba.core import caching, dispatcher  # noqa: E402

from tilewright.backends.host import kept_code  # noqa: E402
from tilewright.errors import CacheWarning  # noqa: E402
from tilewright.files import cache  # noqa: E402


def twice(x: Any) -> Any:
    return x + x


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Gives the function as a process that begins would have it."""
    monkeypatch.setattr(twice, "__module__", "tilewright.made_up")
    kept_code._tell.cache_clear()

    def decorated(folder: Path | None = tmp_path) -> Any:
        with kept_code.kept_in(folder):
            return numba.njit(cache=True)(twice)

    yield decorated
    kept_code._tell.cache_clear()


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbc"))


def test_each_kind_of_arguments_has_a_file_that_is_found_again(made: Any, tmp_path: Path) -> None:
    first, beside = made(), made()  # the second knows nothing of what the first will keep
    assert (first(3), beside(2.5)) == (6, 5.0)
    assert len(files(tmp_path)) == 2
    assert {path.stat().st_mode & 0o777 for path in files(tmp_path)} == {0o600}
    again = made()
    assert (again(3), again(2.5)) == (6, 5.0)
    assert sum(again.stats.cache_hits.values()) == 2
    assert not again.stats.cache_misses


def test_code_for_unlike_processors_lies_in_unlike_files(tmp_path: Path) -> None:
    file = kept_code._Files(str(tmp_path), "one")
    processors = [("x86_64", "haswell", "+avx2"), ("x86_64", "znver4", "+avx512f")]
    keys = [((kind,), processor, "code") for kind in ("int64", "f8") for processor in processors]
    for key in keys:
        file.save(key, key)
    assert len(files(tmp_path)) == len(keys)
    for key in keys:
        assert file.load(key) == key


@pytest.mark.parametrize("harm", ["cut", "emptied", "another's", "changed"])
def test_a_damaged_file_is_told_of_and_made_again(made: Any, tmp_path: Path, harm: str) -> None:
    assert made()(3) == 6
    (path,) = files(tmp_path)
    content = path.read_bytes()
    spoilt = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    harmed = {"cut": content[:99], "emptied": b"", "another's": b"\x80\x04N.", "changed": spoilt}
    path.write_bytes(harmed[harm])
    with pytest.warns(CacheWarning, match="damaged"):
        assert made()(3) == 6
    assert len(files(tmp_path)) == 1
    again = made()
    assert again(3) == 6
    assert sum(again.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_folder_that_takes_no_more_is_told_of_once_and_changes_no_result(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    function = made()

    def refuse(path: Path, content: bytes) -> None:
        raise OSError(error, os.strerror(error), str(path))

    monkeypatch.setattr(cache, "replace", refuse)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert (function(3), function(2.5)) == (6, 5.0)
    assert [one.category for one in told] == [CacheWarning]
    assert os.strerror(error) in str(told[0].message)
    assert not files(tmp_path)


def test_without_a_folder_nothing_is_kept_and_results_are_the_same(made: Any) -> None:
    function = made(None)
    assert (function(3), function(2.5)) == (6, 5.0)
    assert type(function._cache) is caching.NullCache


def test_functions_of_others_are_kept_as_numba_keeps_them(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(made()._cache) is not caching.FunctionCache
    monkeypatch.setattr(twice, "__module__", "somebody.elses")
    assert type(made()._cache) is caching.FunctionCache
    assert vars(dispatcher)["FunctionCache"] is caching.FunctionCache


COLORAMA = """
import sys

class Fore: BLACK = BLUE = GREEN = CYAN = MAGENTA = RED = WHITE = YELLOW = ""
class Style: BRIGHT = RESET_ALL = ""
class Other:
    def __init__(self, stream): self.stream = stream
    def __getattr__(self, name): return getattr(self.stream, name)

def init():
    global before, seen
    before, seen = sys.stdout, seen + 1
    sys.stdout = Other(before)

def reinit(): sys.stdout = Other(before)
def deinit(): sys.stdout = before

__version__, seen = "0.4.6", 0
"""
COMPILES = """
import contextlib, io, sys
import colorama, numba
from numba.core import errors
from tilewright.backends.host import kept_code

def product(x, y): return len((x, y)) * x.dot(y)

assert errors.termcolor().errmsg("as Numba does by itself") and colorama.seen
with kept_code.kept_in(None):
    product.__module__ = "tilewright.made_up"
    ours = numba.njit(product)
colorama.seen = 0
ours.compile("float64(float64[::1], float64[::1])")
try:
    ours.compile("float64(unicode_type, float64[::1])")
except errors.TypingError as error:
    assert "Unknown attribute 'dot'" in str(error), error
print(colorama.seen, type(sys.stdout).__name__)
"""


def test_compiling_leaves_the_programs_streams_alone_where_colorama_is_installed(
    tmp_path: Path,
) -> None:
    """A thread of ours compiles beside a program that may redirect its output meanwhile."""
    (tmp_path / "colorama.py").write_text(COLORAMA)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])}
    told = subprocess.run(
        [sys.executable, "-c", COMPILES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.stdout, told.returncode) == ("0 TextIOWrapper\n", 0), told.stderr
