"""Boxes of an earlier run, drawn with the numbers of their tracks; lines of other films refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("PIL")

from tests.support.films import Making, film, samples
from tilewright import video
from tilewright.errors import ArgumentError
from tilewright.video import making
from tilewright.video.detection.drawn import draw
from tilewright.video.detection.lines import written
from tilewright.video.detection.things import Thing
from tilewright.video.planes import blank
from tilewright.video.source import film as read

MAKING = Making(width=160, height=120, format="gray", noise=0, times=range(0, 16 * 512, 512))


def things(number: int) -> list[list[Any]]:
    """Two balls that pass each other, as chunks have them; one comes late."""
    found = [["ball", 0.9, 10.0 + 6 * number, 30.0, 12.0, 12.0]]
    return found + ([["ball", 0.8, 140.0 - 6 * number, 80.0, 12.0, 12.0]] if number > 5 else [])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A film, and lines about it."""
    made = film(tmp_path / "in.mkv", MAKING)
    found = read(made)
    rows = [(time, things(number)) for number, time in enumerate(found.times)]
    written(rows, found.time_base, tmp_path / "seen.jsonl")
    return made


def test_boxes_have_the_numbers_of_their_tracks_wherever_chunks_begin(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for chunk in (16, 5):
        monkeypatch.setattr(making, "CHUNK", chunk)
        out = source.with_name(f"{chunk}.mkv")
        stages = [video.Listed(str(source.with_name("seen.jsonl"))), video.Draw()]
        video.enhance(source, out, stages, codec="ffv1")
        made.append([planes[0] for _, planes in samples(out)])
    for number, frame in enumerate(video.frames(source)):
        wanted = blank(frame, frame.look)
        wanted.planes[0][...] = frame.planes[0]
        shown = [Thing(*one, track=track) for track, one in enumerate(things(number), 1)]
        draw(wanted, shown)
        for one in made:
            np.testing.assert_array_equal(one[number], wanted.planes[0])


def test_a_label_with_a_number_is_another_than_without(source: Path) -> None:
    frame = next(iter(video.frames(source)))
    drawn = []
    for track in (0, 1, 2):
        to = blank(frame, frame.look)
        to.planes[0][...] = 90
        draw(to, [Thing("ball", 0.9, 40.0, 60.0, 12.0, 12.0, track=track)])
        drawn.append(to.planes[0].copy())
    assert (drawn[0] != drawn[1]).any()
    assert (drawn[1] != drawn[2]).any()


def test_lines_of_another_film_are_refused_before_anything_is_written(source: Path) -> None:
    folder = source.parent
    line = json.loads((folder / "seen.jsonl").read_text(encoding="utf-8").splitlines()[2])
    for name, text in {
        "none.jsonl": "{",
        "boxes.jsonl": json.dumps({"time": 0.04, "things": [{"class": "ball"}]}),
        "nan.jsonl": json.dumps({**line, "time": float("nan")}),
        "huge.jsonl": json.dumps({**line, "time": 10**400}),
        "track.jsonl": json.dumps(
            {**line, "things": [{**line["things"][0], "track": float("inf")}]}
        ),
        "late.jsonl": json.dumps({**line, "time": 0.05}),
        "large.jsonl": json.dumps({**line, "things": [{**line["things"][0], "x": 400.0}]}),
    }.items():
        (folder / name).write_text(text)
    before = set(folder.iterdir())
    for name, words in {
        "none.jsonl": r"none.jsonl': line 1 is none; accepted are lines that --detections wrote",
        "nan.jsonl": r"nan.jsonl': line 1 is none",
        "huge.jsonl": r"huge.jsonl': line 1 is none",
        "track.jsonl": r"track.jsonl': line 1 is none",
        "boxes.jsonl": r"boxes.jsonl': line 1 is none",
        "late.jsonl": r"late.jsonl': lists a picture at 0.050 s, where the film has none",
        "large.jsonl": r"large.jsonl': lists things outside of 160x120 at 0.080 s",
        "absent.jsonl": r"detect='.*absent.jsonl': cannot be read .*accepted are lines that",
    }.items():
        stages = [video.Listed(str(folder / name)), video.Draw()]
        with pytest.raises(ArgumentError, match=words):
            video.enhance(source, folder / "out.mkv", stages)
    assert set(folder.iterdir()) == before
