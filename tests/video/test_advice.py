"""What a film is like and what would help it: clips whose cuts are known, and films made here."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.films import CAME, CLIPS, Making, film
from tilewright import video
from tilewright.cli import app
from tilewright.errors import ArgumentError
from tilewright.video import making
from tilewright.video.advice import TEXT, advised, spans, with_advised
from tilewright.video.analysis.record import Sample, Survey
from tilewright.video.stages.contract import Window
from tilewright.video.stages.contrast import Contrast, curve_of
from tilewright.video.stages.dehaze import Dehaze
from tilewright.video.stages.during import During
from tilewright.video.stages.low_light import LowLight
from tilewright.video.tables import PLACES

GOOD = Sample(
    time=0.0, scene=0, mean=0.5, noise=0.5, blocks=0.0, blur=0.8, banding=0.0, combing=0.0,
    haze=0.1, air=0.9, screen=0.1, text=0.0, veil=(0.1,) * 9,
    tones=tuple(np.linspace(0, 1, 15)), light=(0.0,) * 32,
)  # fmt: skip
LOOK = video.Look(1280, 720, "yuv420p", 8, "yuv", (1, 1))


def survey(*samples: dict[str, Any]) -> Survey:
    """A scene a sample, of two seconds each."""
    found = tuple(replace(GOOD, scene=n, time=2.0 * n, **one) for n, one in enumerate(samples))
    starts = tuple(2.0 * n for n in range(len(samples)))
    return Survey(50 * len(samples), tuple(50 * n for n in range(1, len(samples))), starts, found)


def test_what_is_advised_finds_its_place_among_what_was_asked_for() -> None:
    """What hides comes first, in the order it was given in, and boxes are drawn at the end."""
    asked = [
        *(video.PlateMatte(), video.Blur("person"), video.MaskMatte("a.mkv"), video.Blur()),
        *(video.Detect(), video.Follow(), video.Interpolate("2"), video.Upscale(), video.Draw()),
    ]
    names = [one.name for one in with_advised(asked, survey({"noise": 6.0, "banding": 4.0}), LOOK)]
    assert names[:5] == ["matte", "blur", "mask", "blur", "denoise"]
    assert names[5:] == ["detect", "follow", "interpolate", "upscale", "ten-bit", "draw"]


def test_a_good_film_needs_nothing() -> None:
    assert advised(survey({}), LOOK) == ()


@pytest.mark.parametrize(
    ("stage", "measured"),
    [
        ("deblock", {"blocks": 0.2}),
        ("denoise", {"noise": 6.0}),
        ("low-light", {"mean": 0.1}),
        ("dehaze", {"haze": 0.6, "tones": tuple(np.linspace(0.3, 0.95, 15))}),
        ("contrast", {"tones": tuple(np.linspace(0.3, 0.7, 15))}),
        ("sharpen", {"blur": 2.5}),
        ("ten-bit", {"banding": 4.0}),
        ("interpolate", {"motion": 4.0}),
    ],
)
def test_a_fault_is_met_by_its_stage_in_its_scenes_with_the_reason(
    stage: str, measured: dict[str, Any]
) -> None:
    (one,) = advised(survey({}, measured, measured, {}), LOOK)
    assert (one.stage, one.scenes) == (stage, (1, 2))
    assert "limit" in one.reason
    assert advised(survey(measured), replace(LOOK, interlaced=True)) == ()


def test_jerky_films_are_to_have_more_pictures_but_not_unasked() -> None:
    assert with_advised([], survey({"motion": 4.0}), LOOK) == ()


def test_small_films_are_to_be_enlarged_but_not_unasked() -> None:
    small = replace(LOOK, width=640, height=480)
    (one,) = advised(survey({}), small)
    assert one.stage == "upscale"
    assert with_advised([], survey({}), small) == ()


def test_stages_are_switched_by_scene_and_what_is_asked_for_is_done_all_through() -> None:
    seen = survey({}, {"mean": 0.1}, {"mean": 0.1}, {"blur": 2.5})
    assert spans(seen, (1, 2)) == ((2.0, 6.0),)
    light, sharp = with_advised([video.Sharpen(1.0)], seen, LOOK)
    assert light == During(LowLight(0.5), ((2.0, 6.0),))
    assert sharp == video.Sharpen(1.0)
    with pytest.raises(ArgumentError, match="stage='ten-bit': changes what pictures are"):
        During(video.TenBit(), ((0.0, 1.0),)).turned(LOOK)


def film_of_two_scenes(path: Path) -> Path:
    """Ten light pictures, then twenty dark ones of something else."""
    import av

    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "gray"
        bases = [np.kron(rng.random((8, 12)), np.ones((8, 8))) for _ in range(2)]
        for number in range(30):
            base, top = (bases[0], 225) if number < 10 else (bases[1] ** 3, 90)
            luma = (16 + top * np.roll(base, number // 3, axis=1)).astype(np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(luma, "gray")))
        out.mux(stream.encode(None))
    return path


def test_a_dark_scene_becomes_light_and_the_light_one_stays(tmp_path: Path) -> None:
    source = film_of_two_scenes(tmp_path / "in.mkv")
    found = video.analyse(source)
    assert found.survey.cuts == (10,)
    light = next(one for one in found.advice if one.stage == "low-light")
    assert light.scenes == (1,)
    job = making.planned(source, tmp_path / "out.mkv", auto=True, codec="ffv1")
    times = {stage.name: stage.spans for stage in job.stages if isinstance(stage, During)}
    assert times["low-light"] == ((found.survey.starts[1], 1e9),)
    making.made(job)
    before, after = (
        [frame.planes[0].mean() / (1 << (frame.look.bits - 8)) for frame in video.frames(one)]
        for one in (source, tmp_path / "out.mkv")
    )
    assert after[20] / after[5] > 1.2 * before[20] / before[5]
    again = making.planned(source, tmp_path / "again.mkv", auto=True, codec="ffv1")
    assert again.stages == job.stages


def test_contrast_spreads_narrow_light_and_rises() -> None:
    narrow = tuple(np.linspace(0.4, 0.6, 15))
    curve = curve_of(narrow, 1.0)
    assert (np.diff(curve) >= 0).all()
    low, high = np.interp([0.4 * 255, 0.6 * 255], PLACES, curve)
    assert high - low > 1.6 * 0.2 * 255
    even = curve_of(tuple(np.linspace(0, 1, 15)), 0.0)
    np.testing.assert_allclose(even, PLACES, atol=1e-9)


def test_shares_outside_of_0_to_1_are_refused() -> None:
    for stage in (Dehaze(2), Contrast(-1)):
        with pytest.raises(ArgumentError, match="accepted are 0 to 1"):
            stage.turned(LOOK)


def test_pictures_alone_are_read_each_by_itself() -> None:
    flat = np.linspace(110, 140, 64 * 64).reshape(64, 64).astype(np.uint8)
    look = video.Look(64, 64, "gray", 8, "grey", range=2)
    frame = video.Frame((flat,), 0, 1, Fraction(1, 25), look)
    (made,) = Contrast(1.0).bound(look)(Window(frame))
    assert np.ptp(made.planes[0]) > 1.5 * np.ptp(flat)


@pytest.mark.skipif(not CLIPS.exists(), reason=CAME)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bunny-titles.mp4", (73,)),
        ("steel-cuts-dark.webm", (31, 43, 81)),
        ("person-green-wall.mp4", ()),
        ("stream-of-water.mp4", ()),
    ],
)
def test_cuts_of_clips_are_found_and_no_others(name: str, wanted: tuple[int, ...]) -> None:
    survey = video.analyse(CLIPS / name).survey
    assert survey.cuts == wanted
    assert (
        max(one.text for one in survey.samples) < TEXT
    )  # and one title is missed, which comes as a bird goes


def test_the_command_shows_draws_and_writes(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("matplotlib")
    source = film(tmp_path / "in.mkv", Making(noise=0.05))
    picture, figures = tmp_path / "in.svg", tmp_path / "in.json"
    with pytest.raises(SystemExit) as ended:
        app(["analyse", str(source), "-o", str(picture), "--json", str(figures)])
    assert not ended.value.code
    shown = capsys.readouterr().out
    assert "denoise" in shown
    assert "0 cuts" in shown
    document = json.loads(figures.read_text(encoding="utf-8"))
    assert document["survey"]["frames"] == 12
    assert "noise" in picture.read_text(encoding="utf-8")
