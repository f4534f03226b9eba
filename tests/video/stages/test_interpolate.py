"""Pictures between pictures: at the right time and place, held where there is nothing between."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")

from tests.cli.test_cli import invoke
from tests.support import motion_twin as twin
from tests.support.films import Making, film, samples
from tilewright import Device, video
from tilewright.errors import ArgumentError
from tilewright.video import making
from tilewright.video.motion import Motion
from tilewright.video.planes import kernels_of
from tilewright.video.stages import interpolate as stage_file
from tilewright.video.stages.contract import Pace, Window
from tilewright.video.stages.interpolate import HELD, NEARER, PARTLY, REPEATED

FORMATS = {
    "gray": ("grey", 8, (0, 0)),
    "yuv420p": ("yuv", 8, (1, 1)),
    "yuv444p": ("yuv", 8, (0, 0)),
    "yuv422p10le": ("yuv", 10, (1, 0)),
    "yuva420p": ("yuv", 8, (1, 1)),
}


def look(width: int, height: int, format: str = "gray") -> video.Look:
    kind, bits, halved = FORMATS[format]
    return video.Look(width, height, format, bits, kind, halved, alpha="yuva" in format)


def textured(rows: int, columns: int, down: float, right: float, seed: int = 0) -> Any:
    """A texture of waves, 0 to 1, moved by so much."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:rows, :columns].astype(float)
    total = np.zeros((rows, columns))
    for _ in range(24):
        a, b = rng.normal(0, 0.35, 2)
        total += np.sin(a * (y - down) + b * (x - right) + rng.uniform(0, 6.3))
    return 0.5 + total / 24


def moving(like: video.Look, time: float, down: float = 3.0, right: float = -5.0) -> video.Frame:
    """A picture of that texture at a time, moved by so many samples of luma a unit of it."""
    planes = []
    most = (1 << like.bits) - 1
    for number, (rows, columns) in enumerate(like.shapes):
        chroma = like.kind == "yuv" and number in (1, 2)
        fall, side = (down, right)
        if chroma:
            fall, side = fall / (1 << like.halved[1]), side / (1 << like.halved[0])
        seen = textured(rows, columns, time * fall, time * side, number)
        planes.append(np.rint(most * seen.clip(0, 1)).astype(like.dtype))
    return video.Frame(tuple(planes), round(1000 * time), 1000, Fraction(1, 1000), like)


def between(one: video.Frame, other: video.Frame, **fields: Any) -> list[video.Frame]:
    """What the stage gives for a picture and its next."""
    stage = video.Interpolate(**{"rate": 2, "known": True, **fields})
    return list(stage.bound(one.look)(Window(one, (), (other,))))


def psnr(one: Any, other: Any, most: int) -> float:
    inner = (slice(8, -8), slice(8, -8))
    error = np.mean((one.astype(float) - other)[inner] ** 2)
    return float(10 * np.log10(most**2 / max(error, 1e-9)))


@pytest.mark.parametrize(
    ("format", "width", "height"),
    [("gray", 97, 75), ("yuv420p", 95, 81), ("yuv444p", 64, 96), ("yuv422p10le", 99, 64)],
)
def test_what_moves_is_half_way_in_every_layout_of_samples(
    format: str, width: int, height: int
) -> None:
    like = look(width, height, format)
    one, made = between(moving(like, 0), moving(like, 1))
    right = moving(like, 0.5)
    most = (1 << like.bits) - 1
    np.testing.assert_array_equal(one.planes[0], moving(like, 0).planes[0])
    for plane, wanted in zip(made.planes, right.planes, strict=True):
        assert psnr(plane, wanted, most) > 36
    blend = (moving(like, 0).planes[0] / 2 + moving(like, 1).planes[0] / 2).astype(like.dtype)
    assert psnr(made.planes[0], right.planes[0], most) > psnr(blend, right.planes[0], most) + 10


def test_four_times_as_many_lie_at_quarters() -> None:
    like = look(96, 80)
    found = between(moving(like, 0), moving(like, 1), rate=4)
    assert [one.time for one in found] == [Fraction(n, 4) for n in range(4)]
    for number in (1, 2, 3):
        assert psnr(found[number].planes[0], moving(like, number / 4).planes[0], 255) > 36


@pytest.mark.parametrize("size", [(1, 1), (2, 1), (3, 7), (15, 40), (17, 16), (50, 23)])
@pytest.mark.parametrize("format", ["yuv420p", "yuva420p"])
def test_pictures_of_any_size_are_taken(size: tuple[int, int], format: str) -> None:
    like = look(*size, format)
    rng = np.random.default_rng(2)
    frames = [
        replace(
            moving(like, time),
            planes=tuple(rng.integers(0, 256, shape, np.uint8) for shape in like.shapes),
        )
        for time in (0, 1)
    ]
    _, made = between(*frames)
    assert [plane.shape for plane in made.planes] == list(like.shapes)


def test_a_cut_is_held_and_never_blended() -> None:
    like = look(64, 64, "yuv420p")
    one, other = moving(like, 0), replace(moving(like, 1), planes=moving(like, 30).planes)
    for rate in (2, 4):
        found = between(one, other, rate=rate, cuts=(1.0,))
        for made in found[1:]:
            assert made.notes == (HELD,)
            for plane, wanted in zip(made.planes, one.planes, strict=True):
                np.testing.assert_array_equal(plane, wanted)
    assert HELD not in between(one, other, cuts=(1.001,))[1].notes
    assert HELD not in between(one, other, cuts=(0.0,))[1].notes


def test_pictures_that_repeat_are_repeated_whatever_coding_left() -> None:
    like = look(64, 48)
    one = moving(like, 0)
    rng = np.random.default_rng(0)
    noise = rng.integers(-1, 2, (48, 64))
    near = (one.planes[0].astype(int) + noise).clip(0, 255).astype(np.uint8)
    _, made = between(one, replace(moving(like, 1), planes=(near,)))
    assert made.notes == (REPEATED,)
    np.testing.assert_array_equal(made.planes[0], one.planes[0])
    near[8:16, 8:16] += 9
    assert between(one, replace(moving(like, 1), planes=(near,)))[1].notes == ()


def test_what_has_no_motion_in_common_is_the_nearer_picture() -> None:
    like = look(128, 96)
    rng = np.random.default_rng(1)
    one, other = (
        replace(moving(like, time), planes=(rng.integers(0, 256, (96, 128), np.uint8),))
        for time in (0, 1)
    )
    found = between(one, other, rate=4)
    for made, wanted in zip(found[1:], (one, one, other), strict=True):
        assert made.notes == (NEARER,)
        np.testing.assert_array_equal(made.planes[0], wanted.planes[0])


def test_part_of_a_picture_that_has_no_motion_in_common_is_told() -> None:
    like = look(128, 96)
    one, other = moving(like, 0), moving(like, 1)
    rng = np.random.default_rng(1)
    for frame in (one, other):
        frame.planes[0][24:64, 32:72] = rng.integers(0, 256, (40, 40))
    _, made = between(one, other)
    assert made.notes == (PARTLY,)
    assert psnr(made.planes[0][:, 80:], moving(like, 0.5).planes[0][:, 80:], 255) > 34


def test_text_that_stands_still_stays_as_it_is_over_what_moves() -> None:
    like = look(160, 96)
    rng = np.random.default_rng(3)
    letters = np.kron(rng.integers(0, 2, (6, 24)), np.ones((4, 4))) > 0  # strokes of four samples
    frames = [moving(like, time, 2, 6) for time in (0, 1)]
    for frame in frames:
        frame.planes[0][40:64, 32:128][letters] = 235
    _, made = between(*frames)
    text = made.planes[0][40:64, 32:128][letters].astype(int)
    assert np.sqrt(np.mean((text - 235) ** 2)) < 2.5  # 40 dB
    right = moving(like, 0.5, 2, 6).planes[0]
    ground = np.ones(right.shape, bool)
    ground[40:64, 32:128] = ~letters
    wrong = np.abs(made.planes[0].astype(int) - right)[ground]
    assert np.mean(wrong > 60) < 0.01  # no ghosts of letters


@pytest.mark.parametrize("change", [-60, 35])
def test_between_light_and_dark_lies_their_mean(change: int) -> None:
    like = look(96, 96)
    one, other = moving(like, 0), moving(like, 1)
    dim = (one.planes[0] / 2 + 64).astype(np.uint8)
    bright = (other.planes[0] / 2 + 64 + change).clip(0, 255).astype(np.uint8)
    _, made = between(replace(one, planes=(dim,)), replace(other, planes=(bright,)))
    wanted = (dim.mean() + bright.mean()) / 2
    assert float(made.planes[0].mean()) == pytest.approx(wanted, abs=1)


def test_times_lie_exactly_between_however_uneven_they_are() -> None:
    rng = np.random.default_rng(0)
    times = tuple(int(one) for one in np.cumsum(rng.integers(1, 90, 50)))
    pace = Pace(times, 7, Fraction(1, 1000), Fraction(25))
    for factor in (2, 4):
        _, found = video.Interpolate(factor).retimed(pace)
        seconds = [one * found.time_base for one in found.times]
        assert seconds[::factor] == [one * pace.time_base for one in times]
        assert all(
            seconds[n] == a + Fraction(n % factor, factor) * (b - a)
            for n in range(len(seconds) - 1)
            for a, b in [seconds[n // factor * factor :: factor][:2]]
        )
        assert found.length * found.time_base == 7 * pace.time_base
        assert found.rate == factor * pace.rate


@pytest.mark.parametrize("rate", ["60", "60000/1001", "59.94", "25", "1000"])
@pytest.mark.parametrize("base", [Fraction(1, 1000), Fraction(1, 12800), Fraction(1001, 30000)])
def test_a_rate_is_a_grid_from_the_first_picture_to_the_last_ones_end(
    rate: str, base: Fraction
) -> None:
    rng = np.random.default_rng(0)
    steps = rng.integers(1, 4, 30) * max(1, round(Fraction(1, 25) / base / 2))
    times = tuple(int(one) for one in 11 + np.cumsum(steps))
    length = int(steps[0])
    stage, pace = video.Interpolate(rate, known=True).retimed(
        Pace(times, length, base, Fraction(10))
    )
    wanted = Fraction(rate)
    seconds = [one * pace.time_base for one in pace.times]
    assert seconds[0] == times[0] * base
    assert {b - a for a, b in pairwise(seconds)} == {1 / wanted}
    end = (times[-1] + length) * base
    assert end - 1 / wanted <= seconds[-1] < end
    like = look(16, 16)
    frames = [replace(moving(like, 0), pts=one, duration=length, time_base=base) for one in times]
    work = stage.bound(like)
    pairs = zip(frames, [*frames[1:], None], strict=True)
    given = [
        made.time for a, b in pairs for made in work(Window(a, (), (b,) if b is not None else ()))
    ]
    assert given == seconds


def test_a_picture_that_lies_on_the_grid_is_taken_as_it_is() -> None:
    like = look(64, 48)
    frames = [replace(moving(like, n), pts=round(100 * n / 3)) for n in range(3)]
    pace = Pace(tuple(one.pts for one in frames), 33, Fraction(1, 1000), Fraction(30))
    stage, _ = video.Interpolate("60", known=True).retimed(pace)
    found = list(stage.bound(like)(Window(frames[1], (), (frames[2],))))
    assert [one.time for one in found] == [Fraction(3, 60)] or found[0] is not None
    assert any(made.planes is frames[2].planes or made.planes is frames[1].planes for made in found)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        ("fast", "rate='fast'; accepted are 2 and 4"),
        ("0", "rate='0'; accepted are 2 and 4"),
        ("-2", "rate='-2'; accepted are 2 and 4"),
        ("1/0", "rate='1/0'; accepted are 2 and 4"),
        ("1e9", "rate='1e9'; accepted are 2 and 4"),
        ("nan", "rate='nan'; accepted are 2 and 4"),
        ("3", "the film has 25 pictures a second; accepted are 2 and 4"),
        ("24.9", "rates not below the film's"),
        ("123.4567891", "no clock in common"),
    ],
)
def test_wrong_rates_are_refused_in_one_line(tmp_path: Path, rate: str, words: str) -> None:
    source = film(tmp_path / "in.mkv", Making(times=(0, 40), time_base=Fraction(1, 1000)))
    done = invoke("enhance", str(source), "-o", str(tmp_path / "out.mkv"), "--interpolate", rate)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: interpolate: ")
    assert words in line
    assert sorted(tmp_path.iterdir()) == [source]


def test_pictures_have_nothing_between(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("L", (8, 8)).save(tmp_path / "in.png")
    done = invoke(
        *("enhance", str(tmp_path / "in.png"), "-o", str(tmp_path / "out.png")),
        *("--interpolate", "2"),
    )
    assert done.exit_code == 2
    assert "--interpolate: of films alone" in done.stderr


def test_interlaced_pictures_are_refused() -> None:
    with pytest.raises(ArgumentError, match="interpolate: the film is interlaced"):
        video.Interpolate(2).turned(replace(look(64, 48, "yuv420p"), interlaced=True))


@pytest.mark.parametrize(("rate", "count"), [("2", 1), ("60", 3)])
def test_a_film_of_one_picture_is_made(tmp_path: Path, rate: str, count: int) -> None:
    source = film(tmp_path / "in.mp4", Making(times=(0,), codec="libx264"))
    out = tmp_path / "out.mp4"
    made = video.enhance(source, out, [video.Interpolate(rate)])
    found = [time for time, _ in samples(out)]
    assert found == [Fraction(n, 60) for n in range(made.frames)]
    assert made.frames in (1, count)  # as long as the container says that the picture is shown


@pytest.mark.parametrize(("where", "words"), [("host", "interpolate"), ("toaster", "toaster")])
def test_the_device_is_the_one_that_is_asked_for(tmp_path: Path, where: str, words: str) -> None:
    path = film(tmp_path / "film.mkv", Making())
    given = ["enhance", str(path), "-o", str(tmp_path / "out.mp4"), "--interpolate", "2"]
    done = invoke(*given, "--device", where, "--dry-run")
    assert (done.exit_code == 0) == (where == "host")
    assert words in done.output


@pytest.mark.parametrize("rate", ["2", "60000/1001"])
def test_the_film_is_the_same_whatever_the_chunks_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: str
) -> None:
    times = (0, 40, 85, 120, 160, 230, 240, 280, 330)
    source = film(tmp_path / "in.mkv", Making(times=times, time_base=Fraction(1, 1000)))
    films = []
    for chunk, workers in ((120, 1), (4, 2), (1, 3)):
        monkeypatch.setattr(making, "CHUNK", chunk)
        monkeypatch.setattr(stage_file, "workers_on", lambda _, n=workers: n)
        job = making.planned(
            source, tmp_path / f"{chunk}.mkv", [video.Interpolate(rate)], codec="ffv1"
        )
        made = making.made(job)
        assert made.frames == len(job.shown)
        films.append(samples(job.out))
        for (time, _), wanted in zip(films[-1], job.shown, strict=True):
            assert abs(time - wanted * job.coding.time_base) <= Fraction(1, 1000)
    for other in films[1:]:
        for (time, planes), (their_time, theirs) in zip(films[0], other, strict=True):
            assert time == their_time
            for mine, yours in zip(planes, theirs, strict=True):
                np.testing.assert_array_equal(mine, yours)


def test_a_film_is_told_where_it_was_cut(tmp_path: Path) -> None:
    make = Making(96, 64, times=range(0, 24 * 512, 512), noise=0)
    source = _cut_film(tmp_path / "in.mkv", make)
    out = tmp_path / "out.mkv"
    done = invoke(
        *("enhance", str(source), "-o", str(out), "--interpolate", "2", "--codec", "ffv1")
    )
    assert done.exit_code == 0, done.output
    assert f"{HELD}: 1 picture, at 0.46 s" in " ".join(done.output.split())
    found = samples(out)
    assert len(found) == 47
    np.testing.assert_array_equal(found[22][1][0], found[23][1][0])


def test_a_film_made_by_an_opencl_driver_is_the_hosts_but_for_rounding(
    tmp_path: Path, device: Device
) -> None:
    source = _cut_film(tmp_path / "in.mkv", Making(96, 64, times=range(0, 16 * 512, 512)))
    found = []
    for where in ("host", device.id):
        out = tmp_path / f"{where.replace(':', '-')}.mkv"
        line = ("--interpolate", "2", "--codec", "ffv1", "--device", where)
        done = invoke("enhance", str(source), "-o", str(out), *line)
        assert done.exit_code == 0, done.output
        assert f"{HELD}: 1 picture" in " ".join(done.output.split())
        found.append(samples(out))
    for (time, planes), (their_time, theirs) in zip(*found, strict=True):
        assert time == their_time
        for mine, yours in zip(planes, theirs, strict=True):
            assert (np.abs(mine.astype(int) - yours) > 1).mean() < 0.01


def _cut_film(path: Path, make: Making) -> Path:
    import av

    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=make.rate)
        stream.width, stream.height, stream.pix_fmt = make.width, make.height, "gray"
        stream.time_base = make.time_base
        for number, time in enumerate(make.times):
            scene = number >= 12
            seen = textured(make.height, make.width, 0.5 * number, number, 5 * scene)
            if scene:
                seen = 0.4 * (1 - seen)
            picture = av.VideoFrame.from_ndarray(np.rint(255 * seen).astype(np.uint8), "gray")
            picture.pts, picture.time_base = time, make.time_base
            out.mux(stream.encode(picture))
        out.mux(stream.encode(None))
    return path


def bordered(image: Any) -> Any:
    border = kernels_of("motion").BORDER
    return np.pad(np.asarray(image, np.float32), border, mode="edge")


def test_the_search_finds_what_its_definition_finds() -> None:
    run = kernels_of("motion")
    first, second = (255 * textured(36, 44, 0, 0), 255 * textured(36, 44, 1.3, -2.2))
    coarse = np.zeros((2, 18, 22), np.float32)
    coarse[0] = -0.8
    for given in (None, coarse):
        field, weights = np.empty((2, 36, 44), np.float32), np.empty((36, 44), np.float32)
        patches = np.empty((2, 8, 10), np.float32)
        rough = np.zeros((2, 0, 0), np.float32) if given is None else given
        pair = bordered(first), bordered(second)
        run.matched(*pair, 36, 44, rough, field, weights, patches)
        wanted = twin.matched(first, second, given)
        assert np.quantile(np.abs(field - wanted), 0.98) < 0.02


def test_motion_lands_and_pictures_are_mixed_as_defined() -> None:
    run = kernels_of("between")
    rng = np.random.default_rng(4)
    shape = (23, 31)
    field = rng.normal(0, 3, (2, *shape)).astype(np.float32)
    trust = rng.random(shape).astype(np.float32)
    sums, wanted = np.zeros((3, *shape), np.float32), np.zeros((3, *shape))
    run.thrown(field, trust, *shape, np.float32(0.3), np.float32(-1), sums)
    twin.thrown(field, trust, 0.3, -1, wanted)
    np.testing.assert_allclose(sums, wanted, atol=1e-4)
    first, second = (rng.uniform(0, 255, shape) for _ in range(2))
    pair, ratio = (bordered(first), bordered(second)), (np.float32(1), np.float32(1))
    kept = [np.empty(shape, np.float32) for _ in range(3)]
    none = np.zeros((0, 0), np.uint8)
    run.warped(*pair, *shape, field, ratio, np.float32(0.3), none, (1, 1), *kept)
    out, cells = np.empty(shape, np.uint8), np.zeros((3, 4), np.float32)
    eighth = (np.float32(1 / 8), np.float32(1 / 8))
    run.mixed(
        *kept, *pair, *shape, np.float32(0.3), cells, eighth, np.float32(1),
        np.float32(255), out.reshape(-1), 31,
    )  # fmt: skip
    right = twin.mixed(first, second, field.astype(float), 0.3).clip(0, 255)
    assert np.abs(out - right)[:-1, :-1].max() < 0.51


def test_motion_of_large_pictures_is_found_at_half_their_size() -> None:
    like = look(500, 410)
    motion = Motion(like)
    one, other = moving(like, 0, 6, -10), moving(like, 1, 6, -10)
    motion.given(one, other)
    motion.found()
    out = (np.empty((410, 500), np.uint8),)
    assert motion.between(0.5, out) < 0.02
    assert psnr(out[0], moving(like, 0.5, 6, -10).planes[0], 255) > 34
