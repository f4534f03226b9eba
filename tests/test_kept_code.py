"""What a run of the suite leaves to the next: machine code of the very same sources, or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import compiled_once


def caches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Those of two runs, with pytest's own at `kept`."""
    (folder / "kept").mkdir(exist_ok=True)
    made = folder / "first", folder / "second"
    for cache in made:
        cache.mkdir()
        monkeypatch.delenv(compiled_once.KEPT)
        compiled_once.keep(cache, SimpleNamespace(mkdir=lambda name: folder / "kept"))
    return made


def test_machine_code_is_found_by_the_next_run_and_nothing_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = caches(tmp_path, monkeypatch)
    for name in ("programs", "nvrtc", compiled_once.machine_code(), "measured"):
        (first / name).mkdir(exist_ok=True)
        (first / name / "one").touch()
        assert (second / name / "one").exists() == (name != "measured")


def test_code_of_sources_that_are_no_more_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    (kept / "numba-0").mkdir(parents=True)
    (kept / "programs").mkdir()
    (kept / "programs" / "old").touch()
    (kept / "programs" / "new").touch()
    before = kept.stat().st_mtime - compiled_once.MONTH - 60
    os.utime(kept / "programs" / "old", (before, before))
    caches(tmp_path, monkeypatch)
    assert not (kept / "numba-0").exists()
    assert [path.name for path in (kept / "programs").iterdir()] == ["new"]


def test_a_folder_that_others_may_write_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    first, second = caches(tmp_path, monkeypatch)
    (first / "programs" / "one").touch()
    assert not (second / "programs" / "one").exists()
    assert list((tmp_path / "kept").iterdir()) == []
