"""Stages that give more pictures than they get: exact times, any chunks, notes that are counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")

from tests.support.films import Making, film, samples
from tilewright import video
from tilewright.video import making
from tilewright.video.forecast import forecast
from tilewright.video.journal import folder_of
from tilewright.video.stages.contract import Pace, Stage, Window, Work

TIMES = (0, 40, 85, 120, 160, 230, 240, 280, 330, 360, 401, 440, 480)


@dataclass(frozen=True)
class Twice:
    """Every picture but the last again, in the middle of the time to the next."""

    name = "twice"
    before = 0
    after = 1
    workers = 2

    def turned(self, look: video.Look) -> video.Look:
        return look

    def retimed(self, pace: Pace) -> tuple[Stage, Pace]:
        pairs = zip(pace.times, pace.times[1:], strict=False)
        times = [one for a, b in pairs for one in (2 * a, a + b)]
        base = pace.time_base / 2
        return self, Pace((*times, 2 * pace.times[-1]), 2 * pace.length, base, 2 * pace.rate)

    def bound(self, look: video.Look) -> Work:
        return self._work

    def _work(self, window: Window) -> Iterable[video.Frame]:
        frame = window.frame
        yield frame
        for later in window.after:
            pts = frame.pts + later.pts
            yield replace(frame, pts=pts, time_base=frame.time_base / 2, notes=("again",))


def test_times_are_exact_and_notes_counted_whatever_the_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Making(times=TIMES, time_base=Fraction(1, 1000))
    source = film(tmp_path / "in.mp4", replace(make, codec="libx264"))
    middles = [(a + b) / 2 for a, b in itertools.pairwise(TIMES)]
    wanted = sorted([*map(float, TIMES), *middles])
    for number, chunk in enumerate((120, 4, 1)):
        monkeypatch.setattr(making, "CHUNK", chunk)
        out = tmp_path / f"{number}.mp4"
        seen: list[video.Progress] = []
        made = video.enhance(source, out, [Twice()], progress=seen.append)
        assert len(made.notes["again"]) == 12
        assert (made.frames, seen[-1].done, seen[-1].total) == (25, 25, 25)
        found = samples(out)
        assert [1000 * time for time, _ in found] == wanted
        for (_, one), (_, again) in zip(found[::2], found[1::2], strict=False):
            assert np.abs(one[0].astype(int) - again[0]).mean() < 8


def test_notes_outlive_a_run_that_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "CHUNK", 4)
    source = film(tmp_path / "in.mkv", Making(times=TIMES, time_base=Fraction(1, 1000)))
    job = making.planned(source, tmp_path / "out.mkv", [Twice()])
    assert [job.pictures(number) for number in range(len(job.bounds))] == [8, 8, 8, 1]
    assert "out.mkv: 64x48 yuv420p, 25 pictures, h264" in job.lines()[-1]

    def stop(now: video.Progress) -> None:
        if now.done == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        making.made(job, stop)
    assert folder_of(job.out).is_dir()
    done = making.made(job)
    assert (done.kept, done.frames, len(done.notes["again"])) == (16, 25, 12)


def test_a_forecast_counts_the_pictures_of_the_new_film(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", Making(times=TIMES, time_base=Fraction(1, 1000)))
    plain = forecast(making.planned(source, tmp_path / "out.mkv", codec="ffv1"))
    twice = forecast(making.planned(source, tmp_path / "out.mkv", [Twice()], codec="ffv1"))
    assert twice.bytes > 1.6 * plain.bytes
