"""What is compiled and kept on disk is made by one worker of pytest-xdist; others wait and read it.

It stays in pytest's own cache, for the next run and for tests that run pytest themselves: machine
code alone, each under a hash of its sources, options, compiler and processor, and what was measured
never. A quarter of a run's work was to compile the same again. `pytest --cache-clear` does it anew.

All of the host's convolutions take 25 s to compile by Numba, and tests of a new checkout 10 s to be
read by pytest, which writes their asserts anew; workers that begin together would each do it. A
lock for each function or file, taken in the order in which they call or import each other, so that
no two workers wait for one another; Numba's under its own lock, so that no two threads do.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import AssertionRewritingHook

from tilewright.backends.host.compiled import _sources
from tilewright.files import trust

KEPT = "TESTS_MACHINE_CODE"  # names the folder to processes of tests that run pytest
PROGRAMS = ("programs", "nvrtc")  # of OpenCL and CUDA
MONTH = 30 * 24 * 3600
TESTS = Path(__file__).parents[1]


def share(folder: Path) -> None:
    """From now on this process compiles alone what is kept on disk, or reads it."""
    try:
        import fcntl  # noqa: F401 - not on Windows
    except ImportError:
        return
    _share_tests(folder)
    _share_functions(folder)


def machine_code() -> str:
    """The folder of a cache for what Numba compiles of today's sources."""
    return f"numba-{_sources()}"


def keep(cache: Path, pytests: Any) -> None:
    """Folders for machine code in a new cache: pytest's own, or those of who started this."""
    given = os.environ.get(KEPT)
    kept = Path(given) if given else pytests.mkdir("machine-code") if pytests else None
    if kept is None or trust.why_untrusted(kept) is not None:
        kept = cache / "machine-code"
    os.environ[KEPT] = str(kept)
    for name in (*PROGRAMS, machine_code()):
        (kept / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    link(cache)
    if not given:
        _take_out_the_old(kept, cache.stat().st_mtime)


def link(cache: Path) -> None:
    """Into a cache, of a test's own perhaps, the folders where all tests' machine code is."""
    for name in (*PROGRAMS, machine_code()):
        try:
            (cache / name).symlink_to(Path(os.environ[KEPT], name))
        except OSError:  # Windows lets few users make links
            (cache / name).mkdir()


def _take_out_the_old(kept: Path, now: float) -> None:
    """Of sources that are no more: Numba's at once, the rest a month after it was made."""
    for folder in kept.glob("numba-*"):
        if folder.name != machine_code():
            shutil.rmtree(folder, ignore_errors=True)
    for path in (path for name in PROGRAMS for path in (kept / name).iterdir()):
        if now - path.stat().st_mtime > MONTH:
            path.unlink(missing_ok=True)


def _share_tests(folder: Path) -> None:
    """Files of tests, with their asserts written anew by pytest."""
    plain = AssertionRewritingHook.exec_module

    def load_once(self: Any, module: Any) -> None:
        with _alone(_lock(folder, module.__name__)):
            plain(self, module)

    AssertionRewritingHook.exec_module = load_once  # type: ignore[method-assign]


def write_tests(folder: Path, config: Any, number: int, count: int) -> None:
    """Every `count`-th file of those asked for is written anew now, before workers import them.

    In one order they would come to the same file at once, where one writes and the others wait:
    13 s of a new checkout, on one core.
    """
    try:
        import fcntl  # noqa: F401 - not on Windows

        read, write, anew = rewrite._read_pyc, rewrite._write_pyc, rewrite._rewrite_test
        state = config.stash[rewrite.assertstate_key]
    except (ImportError, AttributeError, KeyError):  # KeyError: asserts are left as they are
        return
    if sys.dont_write_bytecode:
        return
    here = config.invocation_params.dir
    asked = [(here / arg.partition("::")[0]).resolve() for arg in config.args]
    files = sorted(TESTS.rglob("test_*.py"))
    files = [path for path in files if any(path.is_relative_to(one) for one in asked)]
    for path in files[number::count]:
        name = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        with _alone(_lock(folder, name)):
            if rewrite.try_makedirs(kept.parent) and read(path, kept) is None:
                source, code = anew(path, config)
                write(state, code, source, kept)


def _share_functions(folder: Path) -> None:
    """Functions that Numba compiles."""
    try:
        from numba.core.caching import FunctionCache
        from numba.core.ccallback import CFunc
        from numba.core.compiler_lock import global_compiler_lock
        from numba.core.dispatcher import Dispatcher
    except ImportError:
        return
    for kind, source in ((Dispatcher, "py_func"), (CFunc, "_pyfunc")):
        kind.compile = _once(
            folder, kind.compile, attrgetter(source), FunctionCache, global_compiler_lock
        )


def _once(folder: Path, plain: Any, function_of: Any, kept: type, numbas_lock: Any) -> Any:
    """`plain`, a method that compiles, in one process at a time where its result is kept."""

    def compile_once(self: Any, *signature: Any) -> Any:
        if not isinstance(self._cache, kept):
            return plain(self, *signature)
        function = function_of(self)
        name = f"{function.__module__}.{function.__qualname__}"
        path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock"
        with numbas_lock, _alone(path):
            return plain(self, *signature)

    return compile_once


def _lock(folder: Path, name: str) -> Path:
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Held by one process; a forked child does not have it."""
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
