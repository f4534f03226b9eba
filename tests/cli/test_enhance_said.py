"""What enhance says without a terminal, and when it is stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("av")

from tilewright.cli import enhance_said
from tilewright.video.journal import folder_of
from tilewright.video.making import Progress


def test_without_a_terminal_a_line_a_minute_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = iter(range(0, 3000, 25))
    monkeypatch.setattr(enhance_said.time, "monotonic", lambda: next(clock))
    job: Any = SimpleNamespace(out=tmp_path / "out.mkv")
    with enhance_said.going(job) as report:
        for done in range(1, 9):
            report(Progress(done, 90, 2.0, 60.0, "encode"))
    said = capsys.readouterr().err.splitlines()
    assert 2 <= len(said) < 8
    assert said[0].endswith("/90, 2.0 a second, 1:00 left, slowest: encode")


@pytest.mark.parametrize("kept", [True, False])
def test_stopped_it_says_that_the_same_line_goes_on_where_chunks_are_kept(
    tmp_path: Path, capsys: Any, *, kept: bool
) -> None:
    job: Any = SimpleNamespace(out=tmp_path / "out.mkv")
    if kept:
        folder_of(job.out).mkdir()
    with pytest.raises(KeyboardInterrupt), enhance_said.going(job):
        raise KeyboardInterrupt
    assert ("the same line goes on" in capsys.readouterr().err) == kept
