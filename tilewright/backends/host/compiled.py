"""Loads the modules of `kernels/`, which Numba compiles, and says where machine code is kept.

    kernels("conv")  ->  tilewright.backends.host.kernels.conv, compiled on first use of a function

Machine code goes to the folder `numba-HASH` of Tilewright's cache (`kept_code.py`), one for each
state of the sources: Numba itself compares only the file that a function stands in, not those it
calls. What is kept there are pickles, so that a folder that others may write is not read: without a
cache it is a folder of this process alone, which goes when it ends.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType

from tilewright import settings

_MISSING = "Numba is not installed; 'pip install tilewright[onebit]' brings it"
# Numba's pools of threads are not all safe to enter from two threads at once.
LOCK = RLock()
_FORK_SAFE = ("tbb", "workqueue")  # Numba's pools that a forked child may enter again
_lost = False  # whether this process was forked from one whose pool it may not enter


@cache
def available() -> bool:
    """Whether the kernels can run: Numba is there and compiles, a word's first byte is its lowest.

    Numba leaves functions to the interpreter where it was told so (NUMBA_DISABLE_JIT), to debug
    them: ours, which know addresses, cannot run there.
    """
    return sys.byteorder == "little" and find_spec("numba") is not None and settings.compiles()


def why_none() -> str:
    """Why the kernels cannot run, where `available` says so."""
    if sys.byteorder != "little":
        return "a word's first byte is its highest here; Numba's kernels take the other order"
    if find_spec("numba") is not None and not settings.compiles():
        return "NUMBA_DISABLE_JIT is set, so that Numba compiles nothing; accepted is 0"
    return _MISSING


@cache
def kernels(name: str) -> ModuleType:
    """A module of `kernels/`. Raises ImportError where Numba is absent: ask `available()` first."""
    with _kept():
        return importlib.import_module(f"tilewright.backends.host.kernels.{name}")


@cache
def code_of_step(kind: int) -> int:
    """Address of the machine code of a kind of steps' tasks, compiled now if need be."""
    steps = kernels("conv_steps")
    with _kept():
        return int(steps.code_of(kind).address)


@cache
def code_of_products(module: str, item: int) -> int:
    """Address of what a batch's tiles of elements of so many bytes are multiplied by."""
    tasks = kernels(module)
    with _kept():
        return int(tasks.multiply_code(item).address)


def compile_tile(module: str, item: int, number: int) -> None:
    """Compile one of the parts of a batch's tiles."""
    tasks = kernels(module)
    with _kept():
        tasks.pieces(item)[number]()


@cache
def code_of_groups(dtype: str) -> int:
    """Address of what one thread does of a ragged product of a dtype, compiled now if need be."""
    ragged = kernels("ragged")
    with _kept():
        return int(ragged.code_of(dtype).address)


@cache
def code_of_tensors() -> int:
    """Address of what multiplies lists of torch's tensors, compiled now if need be."""
    tensors = kernels("tensors")
    with _kept():
        return int(tensors.code().address)


def compile_lists() -> None:
    """Compile what reads lists of matrices and cuts their products."""
    read, cut = kernels("lists_read"), kernels("lists")
    with _kept():
        read.compile_read()
        cut.compile_cut()
    code_of_tensors()


def compile_groups() -> None:
    """Compile what plans a ragged product."""
    ragged = kernels("ragged")
    with _kept():
        ragged.compile_run()


def compile_routes() -> None:
    """Compile what finds the rows of a layer's experts."""
    routes = kernels("routes")
    with _kept():
        routes.compile_route()


@contextmanager
def _kept() -> Iterator[None]:
    """Functions that are decorated meanwhile are kept on disk in our folder, where we have one."""
    from tilewright.backends.host.kept_code import kept_in

    folder = settings.code_folder(f"numba-{_sources()}")
    with LOCK, kept_in(folder):
        yield


def is_kept(name: str) -> bool:
    """Whether some function of a module of `kernels/` was compiled before, for these sources."""
    folder = settings.cache_part(f"numba-{_sources()}")
    return folder is not None and next(folder.rglob(f"{name}.*.nbc"), None) is not None


def pool_is_lost() -> bool:
    """Whether Numba's threads were its parent's: OpenMP ends a forked child that asks for them."""
    return _lost


def _after_fork() -> None:
    """Make anew what a child cannot use, and see which pool of threads its parent had."""
    global LOCK, _lost
    LOCK = RLock()  # another thread of the parent may have held it
    numba = sys.modules.get("numba")
    if numba is None:
        return
    try:
        _lost = _lost or numba.threading_layer() not in _FORK_SAFE
    except (AttributeError, ValueError):  # no pool was started, or Numba is half imported
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted((Path(__file__).parent / "kernels").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
