"""Films in which things are found: lines with times, boxes in pictures, the same after a kill."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

av = pytest.importorskip("av")
pytest.importorskip("numba")
pytest.importorskip("onnx")
pytest.importorskip("PIL")

from tests.support.detectors import saying, written, yolo  # noqa: E402
from tests.support.films import Making, film, samples  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.errors import ArgumentError  # noqa: E402
from tilewright.video import making  # noqa: E402
from tilewright.video.detection.things import Found, Thing  # noqa: E402
from tilewright.video.planes import blank  # noqa: E402
from tilewright.video.stages.contract import Window, Work, windows  # noqa: E402
from tilewright.video.stages.draw import steady  # noqa: E402

# Times of a variable rate.
TIMES = tuple(int(512 * (n + 0.3 * (n % 3))) for n in range(30))
MAKING = Making(width=128, height=96, times=TIMES, codec="libx264")
LOOK = video.Look(128, 96, "yuv420p", 8, "yuv", (1, 1))
THING = (20.0, 28.0, 8.0, 4.0, 0.9, 1)


@dataclass(frozen=True)
class Doubled:
    """Pictures twice as large, each sample four times."""

    name: ClassVar[str] = "doubled"
    before: ClassVar[int] = 0
    after: ClassVar[int] = 0
    workers: ClassVar[int] = 1

    def turned(self, look: video.Look) -> video.Look:
        return replace(look, width=2 * look.width, height=2 * look.height)

    def bound(self, look: video.Look) -> Work:
        def doubled(window: Window) -> tuple[video.Frame, ...]:
            out = blank(window.frame, self.turned(look))
            for plane, to in zip(window.frame.planes, out.planes, strict=True):
                to[...] = plane.repeat(2, 0).repeat(2, 1)
            return (out,)

        return doubled


@pytest.fixture
def detector(tmp_path: Path) -> video.Detect:
    path = written(tmp_path / "d.onnx", saying(yolo([THING], 3), names="['a', 'b', 'c']"))
    return video.Detect.of_file(path)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_a_picture_has_its_time_and_places_of_the_new_film(
    tmp_path: Path, detector: video.Detect
) -> None:
    source = film(tmp_path / "in.mp4", MAKING)
    out, told = tmp_path / "out.mp4", tmp_path / "out.jsonl"
    done = video.enhance(source, out, [detector, Doubled()], detections=told)
    found = lines(told)
    assert [one["frame"] for one in found] == list(range(30))
    times = [float(time) for time, _ in samples(out)]
    assert [one["time"] for one in found] == pytest.approx(times, abs=1e-9)
    for one in found:  # the film is twice as large as what was looked at
        assert one["things"] == [
            {"class": "b", "score": 0.9, "x": 64.0, "y": 72.0, "w": 32.0, "h": 16.0, "track": 1}
        ]
    assert done.found == ("b: seen 30 times, 1 track",)


def test_without_drawing_no_sample_changes(tmp_path: Path, detector: video.Detect) -> None:
    source = film(tmp_path / "in.mp4", replace(MAKING, times=TIMES[:6]))
    out = tmp_path / "out.mkv"
    video.enhance(source, out, [detector], codec="ffv1", detections=tmp_path / "o.jsonl")
    for (_, before), (_, after) in zip(samples(source), samples(out), strict=True):
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)


def test_boxes_are_drawn_round_things_and_nowhere_else(
    tmp_path: Path, detector: video.Detect
) -> None:
    source = film(tmp_path / "in.mp4", replace(MAKING, times=TIMES[:8]))
    out = tmp_path / "out.mkv"
    video.enhance(source, out, [detector, video.Draw()], codec="ffv1")
    for (_, before), (_, after) in zip(samples(source), samples(out), strict=True):
        changed = before[0] != after[0]
        rows, columns = np.nonzero(changed)
        # The thing is at 32 to 48, 36 to 44: its line three samples round it, its name above.
        assert (columns.min(), rows.max()) == (29, 46)
        assert not changed[34:46, 31:49].any()
        assert min(changed[row, 29:51].mean() for row in (33, 46)) > 0.9
        assert rows.min() >= 33 - 16


@pytest.mark.parametrize("stages", [1, 2])
def test_a_stopped_run_goes_on_and_gives_the_same_lines_and_pictures(
    tmp_path: Path, detector: video.Detect, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "CHUNK", 8)
    source = film(tmp_path / "in.mp4", MAKING)
    chain = [detector, video.Follow(), video.Draw()][: stages + 1]
    whole, parts = tmp_path / "whole.mp4", tmp_path / "parts.mp4"
    video.enhance(source, whole, chain, detections=tmp_path / "whole.jsonl")

    def stop(now: video.Progress) -> None:
        if now.done >= 19:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        video.enhance(source, parts, chain, detections=tmp_path / "p.jsonl", progress=stop)
    assert not (tmp_path / "p.jsonl").exists()
    video.enhance(source, parts, chain, detections=tmp_path / "p.jsonl")
    assert lines(tmp_path / "p.jsonl") == lines(tmp_path / "whole.jsonl")
    for (_, one), (_, other) in zip(samples(whole), samples(parts), strict=True):
        for mine, theirs in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def picture(number: int, *things: Thing) -> video.Frame:
    planes = tuple(np.zeros(shape, np.uint8) for shape in LOOK.shapes)
    at = Fraction(number, 25)
    return video.Frame(planes, number, 1, Fraction(1, 25), LOOK, found=Found(at, 128, 96, things))


def ball(x: float) -> Thing:
    return Thing("ball", 0.9, x, 20.0, 10.0, 10.0)


def test_what_is_seen_once_is_not_drawn_and_what_is_missed_once_is() -> None:
    film_of = [picture(n, *([] if n == 7 else [ball(4 * n)])) for n in range(16)]
    film_of[3] = replace(
        film_of[3], found=Found(Fraction(3, 25), 128, 96, (ball(12), ball(100)))
    )  # fmt: skip
    drawn = [steady(window) for window in windows(video.Draw(), iter(film_of))]
    assert [len(one) for one in drawn] == [1] * 16
    assert drawn[7][0].x == pytest.approx(28)
    assert drawn[3][0].x == 12


def test_pictures_made_between_two_have_boxes_between_and_no_line() -> None:
    """As stages make that double the rate: a copy of what its neighbour found goes along."""
    both = []
    for number in range(8):
        first = picture(2 * number, ball(8 * number))
        both += [first, replace(first, pts=2 * number + 1)]
    drawn = [steady(window) for window in windows(video.Draw(), iter(both[:-1]))]
    assert [one[0].x for one in drawn] == pytest.approx([4 * n for n in range(15)])


def test_a_thing_of_another_class_for_a_moment_keeps_its_own() -> None:
    film_of = [picture(n, ball(4 * n)) for n in range(9)]
    other = (Thing("drone", 0.9, 16.0, 20.0, 10.0, 10.0), replace(ball(16), score=0.4))
    film_of[4] = replace(film_of[4], found=Found(Fraction(4, 25), 128, 96, other))
    follow = video.Follow()
    work = follow.bound(LOOK)
    made = [one for window in windows(follow, iter(film_of)) for one in work(window)]
    found = [one.found for one in made]
    assert [one.things[0].kind for one in found if isinstance(one, Found)] == ["ball"] * 9
    # Of the same pictures in parts with their neighbours the same is said.
    again = [one for window in windows(follow, iter(film_of[1:])) for one in work(window)]
    assert [one.found for one in again[3:]] == found[4:]


def test_a_single_picture_shows_what_is_in_it() -> None:
    assert steady(Window(picture(0, ball(5), ball(60)))) == [ball(5), ball(60)]


def test_drawing_and_lines_without_a_detector_are_refused(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mp4", replace(MAKING, times=TIMES[:2]))
    for stages, options, words in (
        ([video.Draw()], {}, "draw: without detect before it"),
        ([], {"detections": tmp_path / "a.jsonl"}, "detections: without detect"),
        ([video.Detect()], {"detections": tmp_path / "a.csv"}, "accepted are .jsonl, .ndjson"),
    ):
        with pytest.raises(ArgumentError, match=words):
            video.enhance(source, tmp_path / "out.mp4", stages, **options)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("out*"))
