"""Low light: tables that rise, loops that do what they say, curves that hold still over time."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.films import Making, film
from tilewright import video
from tilewright.errors import ArgumentError
from tilewright.video import making, tables
from tilewright.video.analysis.record import of_plain
from tilewright.video.analysis.small import boxed
from tilewright.video.journal import folder_of
from tilewright.video.stages.contract import Window, recipe
from tilewright.video.stages.low_light import LowLight, seen_in, table_of
from tilewright.video.tables import Key, Table, Toned, between


def frame_of(luma: Any, bits: int = 8, **other: Any) -> video.Frame:
    name = {8: "gray", 10: "gray10le", 16: "gray16le"}[bits]
    look = video.Look(luma.shape[1], luma.shape[0], name, bits, "grey", **other)
    return video.Frame((luma.astype(look.dtype),), 0, 1, Fraction(1, 25), look)


def through(frame: video.Frame, work: Any) -> Any:
    (made,) = work(Window(frame))
    return made.planes[0]


def exact(table: Table, luma: Any) -> Any:
    """A table by its definition, light of 0 to 255 in and out, mixed one axis after the other."""
    mean = boxed(luma, table.radius)
    apart = luma - mean
    held = apart.clip(-table.apart, table.apart)
    near = (boxed(luma, 1) - mean).clip(-table.near, table.near)
    middles, values, depths = table.values.shape
    places = [
        np.sqrt((mean + apart - held).clip(0, 255) / 255) * (middles - 1),
        (held / table.apart + 1) / 2 * (values - 1),
        (near / table.near + 1) / 2 * (depths - 1),
    ]
    low = [
        np.minimum(place.astype(int), size - 2)
        for place, size in zip(places, table.values.shape, strict=True)
    ]
    total = np.zeros(luma.shape)
    for corner in np.ndindex(2, 2, 2):
        weight = np.ones(luma.shape)
        for at, place, begin in zip(corner, places, low, strict=True):
            weight *= abs(1 - at - (place - begin))
        total += weight * table.values[tuple(n + at for n, at in zip(low, corner, strict=True))]
    return total


@pytest.mark.parametrize(("bits", "full"), [(8, True), (10, False)])
def test_loops_give_what_the_table_says_to_within_the_dither(bits: int, full: bool) -> None:
    rng = np.random.default_rng(3)
    values = tables.rising(255 * np.sort(rng.random((tables.MIDDLES, 25, 9)), axis=0))
    table = Table(values, 12.0, 8.0, 3, np.ones(tables.MIDDLES))
    wide = 255.0 if full else 219.0 * 4
    black = 0.0 if full else 64.0
    luma = np.rint(black + wide * np.clip(rng.normal(0.2, 0.1, (37, 61)), 0, 1))
    frame = frame_of(luma, bits, range=2 if full else 1)
    found = through(frame, Toned(frame.look, lambda _: table))
    wanted = exact(table, (luma - black) * 255 / wide) * wide / 255 + black
    # Steep tables (a cell is 11 codes) magnify what float32 leaves of places.
    assert np.abs(found - wanted).max() < 1.1 + 0.02 * (bits > 8)
    assert abs(float(np.mean(found - wanted))) < 0.05


def test_chroma_is_as_much_further_from_grey_as_the_curve_of_its_mean_says() -> None:
    look = video.Look(32, 24, "yuv420p", 8, "yuv", (1, 1), range=2)
    flat = [
        np.full(shape, value, np.uint8)
        for shape, value in zip(look.shapes, (64, 140, 120), strict=True)
    ]
    gains = np.linspace(1, 5, tables.MIDDLES)
    table = replace_gains(gains)
    frame = video.Frame(tuple(flat), 0, 1, Fraction(1, 25), look)
    (made,) = Toned(look, lambda _: table)(Window(frame))
    gain = 1 + 4 * np.sqrt(64 / 255)
    for plane, given in zip(made.planes[1:], (140, 120), strict=True):
        assert set(plane.ravel()) == {round(128 + gain * (given - 128))}


def replace_gains(gains: Any) -> Table:
    values = np.broadcast_to(tables.PLACES[:, None, None], (tables.MIDDLES, 3, 2))
    return Table(values, 4.0, 4.0, 3, gains)


def test_a_table_that_falls_is_refused() -> None:
    values = np.zeros((tables.MIDDLES, 3, 2))
    values[4] = 1
    with pytest.raises(ValueError, match="rise"):
        Table(values, 4.0, 4.0, 3, np.ones(tables.MIDDLES))


@pytest.mark.parametrize("deviation", [0.3, 2.0, 6.0])
def test_a_ramp_stays_monotone_and_has_no_bands(deviation: float) -> None:
    """Eight bits of a dark ramp: what comes out rises to within a fifth of a code, finely."""
    ramp = np.broadcast_to(np.repeat(np.arange(4, 44), 16)[None], (64, 640)) * 257.0
    knots = np.linspace(0, 1, 16) ** 0.8  # of squares: an exponent of 0.4
    stage = LowLight(keys=(Key(0.0, (deviation, 1.0, *knots), True),))
    frame = frame_of(ramp, 16, range=2)
    found = through(frame, stage.bound(frame.look)).mean(0) / 257
    steps = np.diff(found)
    assert steps.min() > -0.2  # of a code of eight bits
    plain = 255 * (np.arange(4, 44) / 255) ** 0.4
    if deviation >= 2:
        assert steps.max() < 0.5 * np.diff(plain).max()


def dark(seed: int = 0, noise: float = 4.0) -> tuple[Any, Any]:
    """Soft blobs of light and what is left of them: a power of 2.75, 0.8 of it, noise."""
    rng = np.random.default_rng(seed)
    clean = boxed(boxed(rng.random((240, 320)), 9), 9)
    clean = (clean - clean.min()) / np.ptp(clean)
    made = 255 * 0.8 * clean**2.75 + rng.normal(0, noise, clean.shape)
    return clean, np.rint(made).clip(0, 255)


@pytest.mark.parametrize("method", ["2d", "3d"])
def test_told_the_curve_errors_are_half_of_what_the_curve_alone_leaves(method: str) -> None:
    clean, luma = dark()
    frame = frame_of(luma, range=2)
    deviation = seen_in(frame)[0]
    assert deviation == pytest.approx(4, rel=0.15)
    knots = ((np.linspace(0, 1, 16) ** 2 / 0.8) ** (1 / 2.75)).clip(0, 1)
    stage = LowLight(1.0, method, (Key(0.0, (deviation, 1.0, *knots), True),))
    found = through(frame, stage.bound(frame.look)) / 255
    alone = (luma / 255 / 0.8).clip(0, 1) ** (1 / 2.75)
    assert np.square(found - clean).mean() < 0.5 * np.square(alone - clean).mean()


def test_pictures_that_are_light_stay_as_they_are() -> None:
    frame = frame_of(np.random.default_rng(0).uniform(180, 250, (64, 64)), range=2)
    assert LowLight().bound(frame.look)(Window(frame)) == (frame,)


def test_keys_are_mixed_between_times_and_never_across_a_cut() -> None:
    keys = (Key(0.0, (0.0,), True), Key(2.0, (1.0,)), Key(3.0, (5.0,), True))
    wanted = {"-1": 0.0, "0": 0.0, "1/2": 0.25, "2": 1.0, "29/10": 1.0, "3": 5.0, "9": 5.0}
    for time, value in wanted.items():
        assert between(keys, Fraction(time)) == (value,)


def test_a_film_is_looked_at_once_and_its_tables_are_plain_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "CHUNK", 10)
    source = film(tmp_path / "in.mkv", Making(times=range(0, 30 * 512, 512)))
    job = making.planned(source, tmp_path / "out.mkv", [LowLight(), video.Sharpen()])
    assert job.survey is not None
    assert of_plain(json.loads(json.dumps(job.survey.plain()))) == job.survey
    stage = job.stages[0]
    assert isinstance(stage, LowLight)
    assert [key.cut for key in stage.keys] == [True, False, False]
    assert recipe(job.stages)[0][1]["keys"][0]["time"] == 0.0
    _interrupted(job)
    monkeypatch.setattr(
        "tilewright.video.analysis.kept.surveyed", None
    )  # whoever looks again fails
    again = making.planned(source, tmp_path / "out.mkv", [LowLight(), video.Sharpen()])
    assert again == job
    assert making.made(again).frames == 30


def _interrupted(job: Any) -> None:
    def stop(now: making.Progress) -> None:
        if now.done > 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        making.made(job, stop)
    assert folder_of(job.out).is_dir()


def test_what_is_no_share_or_method_is_refused() -> None:
    look = video.Look(64, 48, "yuv420p", 8, "yuv", (1, 1))
    with pytest.raises(ArgumentError, match=r"low-light: amount=2, .* accepted are 0 to 1 and 2d"):
        LowLight(2).turned(look)
    with pytest.raises(ArgumentError, match="low-light: the film is interlaced"):
        LowLight().turned(replace(look, interlaced=True))


def test_tables_of_any_amount_rise() -> None:
    knots = np.linspace(0, 1, 16) ** 0.6
    for amount in (0.0, 0.5, 1.0):
        for method in ("2d", "3d"):
            values = table_of((2.0, 1.0, *knots), amount, method).values
            assert min(np.diff(values, axis=axis).min() for axis in (0, 1)) >= 0
