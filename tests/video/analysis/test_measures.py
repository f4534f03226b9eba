"""Measures of pictures whose truth is known: noise added, blocks of JPEG, blur, combs, haze."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import video
from tilewright.arrays.array import NDArray
from tilewright.video.analysis import measures
from tilewright.video.analysis.cuts import Step, cuts
from tilewright.video.analysis.moving import moved
from tilewright.video.analysis.noise import noise
from tilewright.video.analysis.small import boxed, shrunk, worst_of
from tilewright.video.analysis.survey import surveyed
from tilewright.video.analysis.text import marks, static
from tilewright.video.source import film


def scene(seed: int = 0, rows: int = 240, columns: int = 320) -> Any:
    """Shapes with sharp edges, soft light, and some texture: 20 to 235."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns]
    found = 90 + 40 * np.sin(x / 70.0) + 30 * np.cos(y / 50.0)
    for _ in range(14):
        top, left, radius = rng.integers(rows), rng.integers(columns), rng.integers(8, 40)
        found[(y - top) ** 2 + (x - left) ** 2 < radius**2] += rng.uniform(-70, 70)
    found += 6 * boxed(rng.normal(0, 3, found.shape), 1)
    return found.clip(20, 235).astype(np.float32)


@pytest.mark.parametrize("way", [(0, 0), (0, 3), (-4, 2), (9, -10)])
def test_motion_is_how_far_things_went_whatever_light_and_noise_do(way: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    before = scene(rows=120, columns=200)
    now = 0.9 * np.roll(before, way, (0, 1)) + rng.normal(0, 3, before.shape)
    assert moved(before, now) == pytest.approx(100 * np.hypot(*way) / 120, abs=0.4)


def test_no_motion_is_told_of_what_is_even_or_another_scene() -> None:
    assert moved(np.full((120, 200), 90.0), np.full((120, 200), 90.0)) == 0
    assert moved(scene(1, 120, 200), scene(2, 120, 200)) == 0


def test_a_survey_has_motion_but_not_across_a_cut(tmp_path: Path) -> None:
    """A camera that goes six samples a picture, of 240; the film is cut where it is looked at."""
    av = pytest.importorskip("av")
    scenes = scene(1), 255 - scene(1), scene(1)
    lumas = [np.roll(scenes[number // 12], 6 * number, 1) for number in range(30)]
    with av.open(str(tmp_path / "in.mkv"), "w") as out:
        stream = out.add_stream("ffv1", rate=24)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "gray"
        for luma in lumas:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(luma.astype(np.uint8), "gray")))
        out.mux(stream.encode(None))
    found = surveyed(film(tmp_path / "in.mkv"))
    assert found.cuts == (12, 24)
    assert [one.motion for one in found.samples] == pytest.approx([2.5] * 3, abs=0.3)


def test_noise_is_found_to_an_eighth_where_it_is_noise_that_one_sees() -> None:
    plain = boxed(scene(), 2).astype(np.float32)
    rng = np.random.default_rng(1)
    for deviation in (2.0, 5.0, 10.0, 20.0):
        noisy = (plain + rng.normal(0, deviation, plain.shape)).clip(0, 255).astype(np.float32)
        assert noise(noisy) == pytest.approx(deviation, rel=1 / 8)


def test_blocks_grow_with_the_quantisation_and_are_none_without() -> None:
    image = pytest.importorskip("PIL.Image")
    luma = scene().astype(np.uint8)
    found = [measures.blocks(luma.astype(np.float32))]
    for quality in (80, 40, 20, 10):
        file = io.BytesIO()
        image.fromarray(luma).save(file, "JPEG", quality=quality)
        found.append(measures.blocks(np.asarray(image.open(file), np.float32)))
    assert found == sorted(found)
    assert found[0] < 0.05
    assert found[3] > 0.2
    moved = np.asarray(image.open(file), np.float32)[3:, 5:]
    assert measures.blocks(moved) == pytest.approx(found[-1], rel=0.1)


def blurred(luma: Any, deviation: float) -> Any:
    along = np.arange(-12.0, 13)
    taps = np.exp(-(along**2) / (2 * deviation**2))
    taps /= taps.sum()
    for axis in (0, 1):
        padded = np.pad(luma, [(12, 12) if one == axis else (0, 0) for one in (0, 1)], mode="edge")
        luma = np.apply_along_axis(np.convolve, axis, padded, taps, "valid")
    return luma.astype(np.float32)


def test_blur_is_found_to_a_fifth() -> None:
    sharp = scene(2, 120, 160)
    found = [measures.blur(blurred(sharp, deviation)) for deviation in (1.0, 1.5, 2.0, 3.0)]
    np.testing.assert_allclose(found, [1.0, 1.5, 2.0, 3.0], rtol=0.2)
    assert measures.blur(sharp) < 0.8


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 40), (40, 2), (3, 3), (7, 9)])
@pytest.mark.filterwarnings("error")
def test_pictures_too_small_to_be_measured_are_neither_good_nor_bad(
    shape: tuple[int, int],
) -> None:
    luma = scene(rows=shape[0], columns=shape[1])
    codes = luma.astype(np.uint8)
    found = [one(luma) for one in (noise, measures.blocks, measures.blur, measures.combing)]
    found += [measures.banding(codes), measures.screen(codes)]
    assert np.isfinite(found).all()
    assert found[2] == 0


def test_bands_are_counted_and_noise_hides_them() -> None:
    ramp = np.broadcast_to(np.arange(320) / 12 + 60, (240, 320))
    bands = measures.banding(np.rint(ramp).astype(np.uint8))
    rng = np.random.default_rng(0)
    noisy = np.rint(ramp + rng.normal(0, 1, ramp.shape)).astype(np.uint8)
    assert bands > 3 > 0.05 > measures.banding(noisy)
    assert measures.banding(np.full((64, 64), 9, np.uint8)) == 0


def test_lines_of_two_moments_are_counted_and_those_of_one_not() -> None:
    whole = scene(3)
    woven = whole.copy()
    woven[1::2] = np.roll(whole, 9, axis=1)[1::2]
    assert measures.combing(whole) < 0.2
    assert measures.combing(woven) > 3


def frame_of(red: Any, green: Any, blue: Any) -> video.Frame:
    """Full-range BT.601 in 4:4:4."""
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    planes = (luma, 128 + (blue - luma) / 1.772, 128 + (red - luma) / 1.402)
    look = video.Look(red.shape[1], red.shape[0], "yuv444p", 8, "yuv", range=2)
    whole = tuple(np.rint(plane).clip(0, 255).astype(np.uint8) for plane in planes)
    return video.Frame(whole, 0, 1, Fraction(1, 25), look)


def hazy(share: float) -> video.Frame:
    """Leaves and earth with a share of white light, 0.9, before them, and a strip of it alone."""
    base = scene(4)
    through = np.full_like(base, 1 - share)
    through[:30] = 0 if share else 1
    colours = (base * 0.9, base * 0.6, np.zeros_like(base) + 6)
    return frame_of(*(one * through + 255 * 0.9 * (1 - through) for one in colours))


def test_haze_is_found_to_a_twentieth_of_the_light_where_some_of_the_air_is_seen() -> None:
    found = [measures.dark_channel(hazy(share)) for share in (0.0, 0.2, 0.4, 0.6, 0.8)]
    np.testing.assert_allclose([one.share for one in found[1:]], (0.2, 0.4, 0.6, 0.8), atol=0.05)
    assert found[0].share < 0.1
    assert [one.share for one in found] == sorted(one.share for one in found)


def test_taking_known_haze_out_gives_the_picture_back() -> None:
    from tilewright.video.stages.contract import Window
    from tilewright.video.stages.dehaze import table_of
    from tilewright.video.tables import Toned

    clear, seen = hazy(0.0), hazy(0.5)
    (made,) = Toned(seen.look, lambda _: table_of(np.full(measures.VEILS, 0.5), 0.9))(Window(seen))
    for plane, wanted in zip(made.planes, clear.planes, strict=True):
        apart = np.abs(plane.astype(float) - wanted)[30:]
        assert apart.mean() < 3


def test_drawn_screens_have_even_neighbours_and_photographs_not() -> None:
    drawn = np.full((240, 320), 240, np.uint8)
    drawn[40:60, 30:200], drawn[100:104, :] = 30, 90
    assert measures.screen(drawn) > 0.95
    assert measures.screen(scene().astype(np.uint8)) < 0.5


def titled(picture: NDArray) -> NDArray:
    """With three words across its lower part."""
    image = pytest.importorskip("PIL.Image")
    draw, font = pytest.importorskip("PIL.ImageDraw"), pytest.importorskip("PIL.ImageFont")
    made = image.fromarray(picture.astype(np.uint8))
    draw.Draw(made).text((60, 200), "Three drawn words", fill=235, font=font.load_default(22))
    return np.asarray(made, np.float32)


def test_text_is_seen_that_stays_while_the_picture_moves_or_comes_while_it_stands_still() -> None:
    first, second = scene(5) * 0.6, np.roll(scene(5) * 0.6, 20, axis=1)
    cells = 15 * 20
    stays = static(marks(titled(first)), marks(titled(second)))
    comes = static(marks(first), marks(titled(first)))
    assert 6 / cells < stays < 40 / cells
    assert 6 / cells < comes < 40 / cells
    large = [np.kron(titled(one), np.ones((4, 4), np.float32)) for one in (first, second)]
    assert static(marks(large[0]), marks(large[1])) == pytest.approx(stays, rel=0.5)


def test_what_stays_together_or_goes_together_is_no_text() -> None:
    first, second = scene(5), np.roll(scene(5), 20, axis=1)
    assert static(marks(first), marks(second)) == 0
    assert static(marks(titled(first)), marks(titled(first))) == 0
    assert static(None, marks(titled(first))) == 0
    half = first.copy()
    half[:, :160] = second[:, :160]  # of a still picture a half that moves
    assert static(marks(first), marks(half)) == 0


def test_a_cut_is_unlike_before_and_its_neighbours_are_not() -> None:
    calm, jump = Step(2.0, 0.99), Step(60.0, 0.1)
    swing = [Step(30.0, 0.3)] * 8
    assert cuts([calm] * 9 + [jump] + [calm] * 9) == (10,)
    assert cuts([calm] * 9 + [jump, jump] + [calm] * 9) == ()  # a flash
    assert cuts([calm] * 9 + swing + [calm] * 9) == ()
    assert cuts([Step(40.0, 0.9)]) == ()  # a light goes on


def test_means_and_least_values_of_neighbourhoods_are_those() -> None:
    luma = np.random.default_rng(0).random((9, 11))
    padded = np.pad(luma, 2, mode="edge")
    near = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
    np.testing.assert_allclose(boxed(luma, 2), near.mean((2, 3)))
    np.testing.assert_array_equal(worst_of(luma, 2), near.min((2, 3)))
    np.testing.assert_allclose(shrunk(luma, 3)[1, 2], luma[3:6, 6:9].mean(), rtol=1e-6)
