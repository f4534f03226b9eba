"""Stages that take damage away: what their networks say is added, plane by plane."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")

from tests.support.films import Making, film
from tilewright import models, video
from tilewright.errors import ArgumentError
from tilewright.video.look import Look
from tilewright.video.stages.contract import Stage, Window
from tilewright.video.stages.denoise import seen, strength

SMALL = Making(width=36, height=28, times=(0, 40), time_base=Fraction(1, 1000))


def first(path: Path) -> video.Frame:
    return next(iter(video.frames(path)))


def wanted(plane: np.ndarray, name: str, told: float, most: int, share: float = 1.0) -> np.ndarray:
    """The definition: edges repeated to even sides, four planes and one, and the sum."""
    rows, columns = plane.shape
    even = np.pad(plane, ((0, rows % 2), (0, columns % 2)), mode="edge") / np.float32(most)
    parts = [even[down::2, right::2] for down in range(2) for right in range(2)]
    x = np.stack([*parts, np.full_like(parts[0], told)])[None].astype(np.float32)
    said = models.load(name).run(x)[0]
    for place, part in enumerate(said):
        even[place // 2 :: 2, place % 2 :: 2] += share * part
    return (even[:rows, :columns] * most).clip(0, most)


@pytest.mark.parametrize(
    ("stage", "name", "format", "told"),
    [
        (video.Deblock(), "deblock-s", "yuv420p", 1.0),
        (video.Deblock(), "deblock-s", "yuv422p10le", 1.0),
        (video.Denoise(20.0), "denoise-s", "yuv444p", 20 / 255),
        (video.Deblock(dtype="int8"), "deblock-s-int8", "yuv420p", 1.0),
    ],
)
def test_planes_are_corrected_by_what_the_network_says(
    tmp_path: Path, stage: Stage, name: str, format: str, told: float
) -> None:
    odd = replace(SMALL, format=format, width=38, height=26)  # of 4:2:0 chroma is 19 x 13
    frame = first(film(tmp_path / "in.mkv", odd))
    assert stage.turned(frame.look) == frame.look
    (made,) = stage.bound(frame.look)(Window(frame))
    assert (made.look, made.pts) == (frame.look, frame.pts)
    most = (1 << frame.look.bits) - 1
    noise = "denoise" in name
    for number, (plane, given) in enumerate(zip(made.planes, frame.planes, strict=True)):
        here = min(told, seen(frame, number) / 255) if noise and number else told
        exact = wanted(given, name, here, most, 1.0 if noise else 0.85)
        assert np.abs(plane - exact).max() < 0.51 + 0.002 * most * name.endswith("int8")


def test_pictures_of_sixteen_bits_are_told_apart_from_films(tmp_path: Path) -> None:
    frame = first(film(tmp_path / "in.mkv", replace(SMALL, format="gray")))
    look = replace(frame.look, bits=16, format="gray16le")
    still = replace(frame, planes=(frame.planes[0].astype(np.uint16) * 257,), look=look)
    (made,) = video.Deblock().bound(look)(Window(still))
    exact = wanted(still.planes[0], "deblock-s", 0.0, 65535)
    assert np.abs(made.planes[0] - exact).max() < 1


def test_the_strength_of_noise_is_found_where_there_is_room_to_see_it() -> None:
    chance = np.random.default_rng(0)
    ramp = np.add.outer(np.arange(200) / 3, np.arange(300) / 4) + 60
    for sigma in (5, 25):
        noisy = (ramp + chance.normal(0, sigma, ramp.shape)).round().clip(0, 255).astype(np.uint8)
        assert strength(noisy) == pytest.approx(sigma, rel=0.05)
    assert strength(ramp.astype(np.uint8)) < 1
    assert strength(np.zeros((1, 7), np.uint8)) == 0


def test_chroma_is_told_its_own_noise_where_luma_has_more() -> None:
    chance = np.random.default_rng(0)
    look = Look(128, 96, "yuv420p", 8, "yuv", halved=(1, 1))
    waves = [
        np.add.outer(np.sin(np.arange(r) / 9), np.cos(np.arange(c) / 7)) for r, c in look.shapes
    ]
    clean = [128 + 40 * wave for wave in waves]
    noisy = [one + chance.normal(0, s, one.shape) for one, s in zip(clean, (25, 8, 8), strict=True)]
    planes = tuple(one.round().clip(0, 255).astype(np.uint8) for one in noisy)
    frame = video.Frame(planes, 0, 1, Fraction(1, 25), look)
    (made,) = video.Denoise(25.0).bound(look)(Window(frame))
    for number in (1, 2):
        left = np.abs(made.planes[number] - clean[number]).mean()
        assert left < 0.4 * np.abs(planes[number] - clean[number]).mean()
        told = wanted(planes[number], "denoise-s", 25 / 255, 255)
        assert left < 0.8 * np.abs(told - clean[number]).mean()


@pytest.mark.parametrize("stage", [video.Deblock(), video.Denoise(25.0)])
def test_float16_gives_the_same_to_a_fiftieth_of_a_decibel(stage: Any) -> None:
    look = Look(160, 128, "gray", 8, "grey")
    clean = 128 + 50 * np.add.outer(np.sin(np.arange(128) / 9), np.cos(np.arange(160) / 5))
    noisy = clean + np.random.default_rng(0).normal(0, 12, clean.shape)
    plane = noisy.round().clip(0, 255).astype(np.uint8)
    frame = video.Frame((plane,), 0, 1, Fraction(1, 25), look)
    found = []
    for dtype in ("float32", "float16"):
        (made,) = replace(stage, dtype=dtype, device="host").bound(look)(Window(frame))
        found.append(10 * np.log10(np.mean((made.planes[0] - clean) ** 2)))
    assert found[1] == pytest.approx(found[0], abs=0.02)


def test_of_a_film_the_strength_is_the_median_of_what_its_samples_have() -> None:
    survey: Any = SimpleNamespace(samples=[SimpleNamespace(noise=one) for one in (3.0, 9.0, 4.0)])
    stage = video.Denoise(size="m")
    assert stage.unfitted
    assert stage.fitted(survey) == video.Denoise(4.0, size="m")
    assert video.Denoise(2.0).fitted(survey) == video.Denoise(2.0)


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (video.Denoise(-1.0), "sigma=-1.0; accepted are 0 to 75"),
        (video.Denoise(size="l"), "size='l', dtype='float32'; accepted are s, m"),
        (video.Denoise(dtype="int8"), "accepted are s, m and float32, float16$"),
        (video.Deblock(dtype="bits"), "accepted are s, m and float32, float16, int8"),
    ],
)
def test_what_a_stage_does_not_take_is_said_before_anything_is_done(
    tmp_path: Path, stage: Stage, said: str
) -> None:
    look = first(film(tmp_path / "in.mkv", SMALL)).look
    with pytest.raises(ArgumentError, match=said):
        stage.turned(look)
    with pytest.raises(ArgumentError, match="interlaced"):
        video.Deblock().turned(replace(look, interlaced=True))
