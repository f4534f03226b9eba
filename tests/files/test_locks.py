"""A file is one process's at a time, on systems that wait for a lock and on those that only try."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.support import house_copy
from tilewright.files import locks

HOLDS = (
    "import os, sys\nfrom tilewright.files import locks\n"
    "held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
    "print(locks.try_hold(held), flush=True)\nsys.stdin.read()\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_a_lock_is_its_process_s_until_it_ends_however(file: int, tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=house_copy.ROOT,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    assert not locks.try_hold(file)
    other.kill()
    other.wait()
    locks.hold(file)  # waits no longer
    assert locks.try_hold(file)  # one's own is held already
    other.stdin.close()
    other.stdout.close()


def test_windows_is_asked_again_until_it_grants_the_lock(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its waiting call gives up after ten seconds; made up here, as no such system is at hand."""
    refused = iter([True, True, False])
    asked: list[tuple[int, int, int]] = []

    def locking(descriptor: int, mode: int, size: int) -> None:
        asked.append((descriptor, mode, size))
        if next(refused):
            raise PermissionError(13, "held")

    windows = ModuleType("msvcrt")
    vars(windows).update(LK_NBLCK=2, locking=locking)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    monkeypatch.setattr(locks, "sys", SimpleNamespace(platform="win32"))
    monkeypatch.setattr(locks, "_AGAIN", 0.0)
    locks.hold(file)
    assert asked == [(file, 2, 1)] * 3
