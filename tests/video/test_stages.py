"""Stages: what they do to planes, in every layout of samples, and where they do not belong."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")

from tests.support.films import Making, film
from tilewright import models, nn, video
from tilewright.errors import ArgumentError
from tilewright.video import planes
from tilewright.video.stages.contract import Window, windows
from tilewright.video.stages.sharpen import Sharpen
from tilewright.video.stages.ten_bit import TenBit
from tilewright.video.stages.upscale import Upscale

SMALL = Making(width=36, height=28, times=(0, 40), time_base=Fraction(1, 1000))
# `cubic` of the four samples round a place an eighth and a quarter before a sample's.
EIGHTH, QUARTER = 0.125, 0.25


def first(path: Path) -> video.Frame:
    return next(iter(video.frames(path)))


def cubic(x: np.ndarray) -> np.ndarray:
    a, x = -0.5, np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    return np.where(x <= 1, near, np.where(x < 2, a * (x**3 - 5 * x**2 + 8 * x - 4), 0))


def resampled(plane: np.ndarray, shape: tuple[int, int], at: tuple[float, float]) -> np.ndarray:
    """The definition: each new sample is a sum over all old ones, edges repeated."""
    made = plane.astype(float)
    for axis in range(2):
        size = plane.shape[axis]
        places = np.arange(shape[axis]) / 2 - at[axis]
        taps = np.arange(-4, size + 4)
        weights = cubic(places[:, None] - taps)
        folded = np.zeros((shape[axis], size))
        np.add.at(folded.T, taps.clip(0, size - 1), weights.T)
        made = np.moveaxis(np.tensordot(folded, made, (1, axis)), 0, axis)
    return made


@pytest.mark.parametrize(
    ("format", "across", "down"),
    [
        ("yuv420p", EIGHTH, QUARTER),
        ("yuv422p10le", EIGHTH, QUARTER),
        ("yuv444p", QUARTER, QUARTER),
        ("gray10le", None, None),
    ],
)
def test_luma_is_the_networks_and_chroma_lies_where_it_did(
    tmp_path: Path, format: str, across: float | None, down: float | None
) -> None:
    frame = first(film(tmp_path / "in.mkv", replace(SMALL, format=format)))
    stage = Upscale("s")
    turned = stage.turned(frame.look)
    (made,) = stage.bound(frame.look)(Window(frame))
    assert (made.look, made.pts) == (turned, frame.pts)
    assert [plane.shape for plane in made.planes] == list(turned.shapes)
    deep, most = 1 << (frame.look.bits - 8), (1 << frame.look.bits) - 1
    luma = (frame.planes[0] / (255 * deep)).astype(np.float32)[None, None]
    wanted = (models.load("superres-s").run(luma)[0, 0] * 255 * deep).clip(0, most)
    assert np.abs(made.planes[0] - wanted).max() < 0.6 + 0.01 * deep
    for plane, given in zip(made.planes[1:], frame.planes[1:], strict=True):
        assert down is not None
        assert across is not None
        exact = resampled(given, plane.shape, (down, across)).clip(0, most)
        assert np.abs(plane - exact).max() < 0.51


def test_full_range_goes_through_the_range_that_networks_know(tmp_path: Path) -> None:
    frame = first(film(tmp_path / "in.mkv", replace(SMALL, format="gray")))
    full = replace(frame, look=replace(frame.look, range=2))
    (made,) = Upscale("s").bound(full.look)(Window(full))
    luma = ((frame.planes[0] * 219.0 / 255 + 16) / 255).astype(np.float32)[None, None]
    wanted = (models.load("superres-s").run(luma)[0, 0] * 255 - 16) * 255 / 219
    assert np.abs(made.planes[0] - wanted.clip(0, 255)).max() < 0.6


@pytest.mark.parametrize("siting", ["left", "topleft", "center", "bottomleft"])
def test_a_ramp_of_chroma_stays_where_it_was(siting: str) -> None:
    """Chroma that follows its place: twice as large, it still does."""
    look = video.Look(64, 64, "yuv420p", 8, "yuv", (1, 1), siting=siting)
    places = {"left": (0.5, 0), "topleft": (0, 0), "center": (0.5, 0.5), "bottomleft": (1, 0)}
    here = places[siting]
    y, x = np.mgrid[:32, :32] * 2.0
    # In the plane of the small picture's luma: samples at 2i + here.
    small = 40 + (y + here[0]) + 2 * (x + here[1])
    out = np.empty((64, 64), np.uint16)
    planes.doubled((small * 256).astype(np.uint16), out, planes.offsets(look), 65535)
    y, x = np.mgrid[:64, :64] * 2.0
    # Of the large one at 2i + here; its luma begins a quarter of a sample before the small one's.
    old = [(place + 0.5) / 2 - 0.5 for place in (y + here[0], x + here[1])]
    wanted = 40 + old[0] + 2 * old[1]
    assert np.abs(out / 256 - wanted)[6:-6, 6:-6].max() < 0.02


def test_sharpening_is_the_mean_of_nine_taken_away(tmp_path: Path) -> None:
    frame = first(film(tmp_path / "in.mkv", SMALL))
    (made,) = Sharpen(0.5).bound(frame.look)(Window(frame))
    luma = np.pad(frame.planes[0].astype(float), 1, mode="edge")
    down = luma[:-2] + 2 * luma[1:-1] + luma[2:]
    mean = (down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]) / 16
    wanted = (frame.planes[0] + 0.5 * (frame.planes[0] - mean)).clip(0, 255)
    assert np.abs(made.planes[0] - wanted).max() <= 0.5
    for plane, given in zip(made.planes[1:], frame.planes[1:], strict=True):
        np.testing.assert_array_equal(plane, given)


def test_ten_bits_fill_the_steps_of_a_ramp_and_leave_edges(tmp_path: Path) -> None:
    frame = first(film(tmp_path / "in.mkv", replace(SMALL, format="gray")))
    ramp = np.repeat(np.arange(100, 118, dtype=np.uint8), 2)[None].repeat(28, 0)
    ramp[:, 30:] = 250
    (made,) = TenBit().bound(frame.look)(Window(replace(frame, planes=(ramp,))))
    assert (made.look.format, made.planes[0].dtype) == ("gray10le", np.uint16)
    steps = np.diff(made.planes[0][14, :29].astype(int))
    assert steps.max() <= 3 < 4  # 2, and 3 at the ends
    assert set(made.planes[0][14, 31:]) == {1000}


def _deepened(codes: Any) -> Any:
    """Codes of eight bits through the stage, in codes of eight bits."""
    rows, columns = codes.shape
    given = look(width=columns, height=rows, format="gray", bits=8, kind="grey", halved=(0, 0))
    frame = video.Frame((codes.astype(np.uint8),), 0, 1, Fraction(1, 25), given)
    (made,) = TenBit().bound(given)(Window(frame))
    return np.asarray(made.planes[0], np.float64) / 4


@pytest.mark.parametrize("width", [2, 4, 10, 16, 30])
@pytest.mark.parametrize("across", [True, False])
def test_bands_of_any_width_become_the_ramp_that_they_were(width: int, across: bool) -> None:
    y, x = np.mgrid[:90, :120]
    exact = 60 + (x if across else y) / width
    codes = np.rint(exact)
    inside = (slice(24, -24),) * 2
    before, after = (np.abs(one - exact)[inside].mean() for one in (codes, _deepened(codes)))
    assert after < min(0.13, 0.7 * before)  # a quarter of a code has errors of an eighth at most


def test_ten_bits_leave_grain_weave_and_edges() -> None:
    y, x = np.mgrid[:60, :80]
    weave = 60 + (x // 2 + y // 2) % 2
    grain = np.random.default_rng(0).integers(100, 104, (60, 80))
    edge = np.where(x < 40, 60, 90)
    for codes in (weave, grain, edge):
        assert np.abs(_deepened(codes) - codes).max() <= 0.25
        np.testing.assert_array_equal(_deepened(codes)[:, 40], codes[:, 40])


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (5, 5), (49, 4), (4, 49), (50, 51)])
def test_planes_smaller_than_a_square_keep_their_means(shape: tuple[int, int]) -> None:
    codes = np.random.default_rng(1).integers(100, 102, shape)
    made = _deepened(codes)
    assert np.abs(made - codes).max() < 1
    np.testing.assert_array_equal(_deepened(np.full(shape, 255)), 255)


class Blend:
    """A stage of three pictures: their mean."""

    name, before, after = "blend", 1, 1

    def turned(self, look: video.Look) -> video.Look:
        return look

    def bound(self, look: video.Look) -> Any:
        def work(window: Window) -> list[video.Frame]:
            near = (*window.before, window.frame, *window.after)
            mean = sum(one.planes[0].astype(np.uint16) for one in near) // len(near)
            planes = (mean.astype(np.uint8),)
            return [replace(window.frame, planes=planes, carrier=None)]

        return work


def test_a_stage_sees_its_neighbours(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", replace(SMALL, format="gray", times=range(0, 200, 40)))
    given = [frame.planes[0].astype(int) for frame in video.frames(source)]
    stage = Blend()
    frames = list(video.frames(source))
    work = stage.bound(frames[0].look)
    made = [one for window in windows(stage, iter(frames)) for one in work(window)]
    assert [frame.pts for frame in made] == [frame.pts for frame in frames]
    for number, frame in enumerate(made):
        near = given[max(0, number - 1) : number + 2]
        np.testing.assert_array_equal(frame.planes[0], sum(near) // len(near))


def look(**other: Any) -> video.Look:
    return replace(video.Look(64, 48, "yuv420p", 8, "yuv", (1, 1)), **other)


@pytest.mark.parametrize(
    ("stage", "given", "words"),
    [
        (Upscale("xl"), look(), r"upscale: size='xl'.*accepted are s, m, l"),
        (Upscale(), look(interlaced=True), "upscale: the film is interlaced"),
        (Upscale(), look(kind="rgb", format="gbrp"), "upscale: samples are gbrp"),
        (Sharpen(9), look(), r"sharpen: amount=9; accepted are 0 to 4"),
        (TenBit(), look(bits=10, format="yuv420p10le"), "ten-bit: samples are yuv420p10le"),
    ],
)
def test_a_stage_refuses_by_name(stage: Any, given: video.Look, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        stage.turned(given)


def test_a_model_that_is_no_upscaler_of_luma_is_refused(tmp_path: Path) -> None:
    from tilewright.nn.stored import save

    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "same",
        [value("x", 1, [1, 1, "h", "w"])],
        [value("y", 1, [1, 1, "h", "w"])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "same.onnx")
    with pytest.raises(ArgumentError, match=r"it makes \[1, 1, 48, 64\]; accepted is"):
        Upscale.of_file(tmp_path / "same.onnx").turned(look())
    save(models.load("superres-s"), tmp_path / "good.npz")
    assert Upscale.of_file(tmp_path / "good.npz").turned(look()).width == 128
    net = models.load("superres-s")
    name = next(name for name, one in net.graph.constants.items() if len(one.shape) > 1)
    weights = np.array(net.graph.constants[name].value)
    weights.reshape(-1)[7] = np.nan
    constants = net.graph.constants | {name: replace(net.graph.constants[name], value=weights)}
    save(nn.Network(replace(net.graph, constants=constants)), tmp_path / "bad.npz")
    with pytest.raises(ArgumentError, match=rf"weights '{name}' are not finite"):
        Upscale.of_file(tmp_path / "bad.npz").turned(look())
    with pytest.raises(ArgumentError, match=r"cannot be read .*accepted are \.onnx and \.npz"):
        Upscale.of_file(tmp_path / "none.onnx")


@pytest.mark.parametrize("codec", ["h264", "ffv1"])
def test_stages_follow_each_other_into_a_film(tmp_path: Path, codec: str) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    out = tmp_path / "out.mkv"
    made = video.enhance(source, out, [Upscale(), Sharpen(), TenBit()], codec=codec)
    assert made.frames == 2
    frame = first(out)
    assert (frame.look.width, frame.look.height, frame.look.bits) == (72, 56, 10)
    assert set(made.worked) == {"decode", "upscale", "sharpen", "ten-bit", "encode"}
