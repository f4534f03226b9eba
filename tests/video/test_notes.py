"""What stages tell of pictures reaches the end of the run, of chunks made by an earlier run too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("av")

from tests.support.films import Making, film
from tilewright import video
from tilewright.cli.enhance_said import told
from tilewright.video import making
from tilewright.video.stages.contract import Window, Work


@dataclass(frozen=True, slots=True)
class Telling:
    """Pictures as they are, every third with a note."""

    name: ClassVar[str] = "telling"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0
    workers: ClassVar[int] = 1

    def turned(self, look: video.Look) -> video.Look:
        return look

    def bound(self, look: video.Look) -> Work:
        return _noted


def _noted(window: Window) -> Iterable[video.Frame]:
    frame = window.frame
    return (replace(frame, notes=("third",)) if round(frame.time * 25) % 3 == 0 else frame,)


def test_notes_of_a_run_that_was_stopped_and_went_on_are_those_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "CHUNK", 8)
    source = film(tmp_path / "in.mkv", Making(times=tuple(range(0, 40 * 512, 512))))
    out = tmp_path / "out.mkv"

    def stop(now: video.Progress) -> None:
        if now.done > 20:
            raise KeyboardInterrupt

    stages = [Telling(), video.Sharpen()]
    with pytest.raises(KeyboardInterrupt):
        video.enhance(source, out, stages, progress=stop)
    done = video.enhance(source, out, stages)
    assert done.kept
    assert done.notes == {"third": tuple(n / 25 for n in range(0, 40, 3))}
    assert list(told(done))[-1] == (
        "third: 14 pictures, at 0.00, 0.12, 0.24, 0.36, 0.48, 0.60, 0.72, 0.84, 0.96, 1.08, 1.20,"
        " 1.32 and 2 more, to 1.56 s"
    )
