"""Whoever reads a file sees the old one or the new one, and nothing is left of what broke off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.files import atomic


def test_a_file_is_renamed_when_its_block_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    path.write_text("old")
    with atomic.replacing(path, ".part") as temporary:
        temporary.write_text("new")
        assert path.read_text(encoding="utf-8") == "old"
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".part"
    assert path.read_text(encoding="utf-8") == "new"
    assert [one.name for one in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(28, "full")])
def test_what_breaks_off_leaves_the_old_file_and_nothing_else(
    error: BaseException, tmp_path: Path
) -> None:
    path = tmp_path / "found.json"
    path.write_text("old")

    def break_off() -> None:
        with atomic.replacing(path) as temporary:
            temporary.write_text("ne")
            raise error

    with pytest.raises(type(error)):
        break_off()
    assert path.read_text(encoding="utf-8") == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["found.json"]


def test_a_process_that_ends_where_it_stands_takes_its_unfinished_files_along(
    tmp_path: Path,
) -> None:
    kept = atomic.create(tmp_path)
    with atomic.replacing(tmp_path / "a") as one, atomic.replacing(tmp_path / "b") as two:
        for path in (one, two):
            path.write_text("half")
        atomic.remove_unfinished()
        assert list(tmp_path.iterdir()) == [kept]
        for path in (one, two):
            path.write_text("whole")


def test_no_other_user_reads_what_is_not_finished(tmp_path: Path) -> None:
    with atomic.replacing(tmp_path / "a") as temporary:
        assert temporary.stat().st_mode & 0o077 == 0


def test_a_folder_that_is_not_there_is_the_system_s_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic.replacing(tmp_path / "none" / "a"):
        pytest.fail("the block ran")
