"""Somebody apart from what lies behind: opacity that is known, films that are the same however they
are cut, covers that leave nobody open, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

av = pytest.importorskip("av")
pytest.importorskip("numba")
pytest.importorskip("PIL")

from PIL import Image  # noqa: E402

from tests.support.films import samples  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.cli.enhance_people import (  # noqa: E402
    Asked,
    beside,
    ended,
    made_beside,
    stages,
)
from tilewright.errors import ArgumentError, FileError  # noqa: E402
from tilewright.video import making, mattes, plates  # noqa: E402
from tilewright.video.planes import kernels_of  # noqa: E402
from tilewright.video.plates import of_image  # noqa: E402
from tilewright.video.source import film  # noqa: E402
from tilewright.video.stages import opacity  # noqa: E402
from tilewright.video.stages.blur import covering  # noqa: E402
from tilewright.video.stages.contract import Window  # noqa: E402
from tilewright.video.stages.plate_matte import GROWN, PlateMatte  # noqa: E402

WIDE, HIGH, RADIUS = 96, 64, 13
LOOK = video.Look(WIDE, HIGH, "yuv420p", 8, "yuv", (1, 1), range=1)
LARGE = replace(LOOK, width=256, height=256)


def behind(seed: int = 0) -> Any:
    """Soft blobs of colour, [rows, columns, 3]."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(60, 200, (8, 12, 3), np.uint8))
    return np.asarray(coarse.resize((WIDE, HIGH), Image.Resampling.BICUBIC), np.float64)


def disc(number: int) -> Any:
    """Opacity of somebody round who walks through in 24 pictures, by where they are."""
    y, x = np.mgrid[:HIGH, :WIDE]
    apart = np.hypot(x - (number * 6 - 20), y - HIGH / 2)
    return (RADIUS + 0.5 - apart).clip(0, 1)


def composed(number: int, scene: Any, colour: Any = (225, 40, 30)) -> Any:
    alpha = disc(number)[..., None]
    return alpha * np.array(colour) + (1 - alpha) * scene


def written(path: Path, pictures: list[Any], noise: float = 1.5) -> Path:
    rng = np.random.default_rng(1)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=Fraction(25))
        stream.width, stream.height, stream.pix_fmt = WIDE, HIGH, "yuv420p"
        for picture in pictures:
            noisy = np.rint(picture + rng.normal(0, noise, picture.shape)).clip(0, 255)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(noisy.astype(np.uint8), "rgb24")))
        out.mux(stream.encode(None))
    return path


@pytest.fixture
def walk(tmp_path: Path) -> Path:
    """A film of somebody who walks past a scene, and that scene as `plate.png`."""
    scene = behind()
    Image.fromarray(np.rint(scene).astype(np.uint8)).save(tmp_path / "plate.png")
    return written(tmp_path / "walk.mkv", [composed(n, scene) for n in range(24)])


def halves_of(picture: Any, rng: Any) -> mattes.Halves:
    """A picture of floats, noisy, as mattes see it."""
    noisy = np.rint(picture + rng.normal(0, 1.5, picture.shape)).clip(0, 255).astype(np.uint8)
    return mattes.halves(of_image(Image.fromarray(noisy), LARGE))


def luma_of(path: Path) -> list[Any]:
    return [planes[0].astype(float) for _, planes in samples(path)]


def boxed_twin(values: Any, radius: int) -> Any:
    """Means of the places of a window that are in the picture, by definition."""
    rows, columns = values.shape
    out = np.empty((rows, columns))
    for y in range(rows):
        for x in range(columns):
            high = slice(max(y - radius, 0), y + radius + 1)
            out[y, x] = values[high, max(x - radius, 0) : x + radius + 1].mean()
    return out


@pytest.mark.parametrize("radius", [1, 3, 40])
def test_a_guided_filter_is_what_he_sun_and_tang_define(radius: int) -> None:
    rng = np.random.default_rng(radius)
    guide, values = rng.normal(100, 40, (2, 19, 27)).astype(np.float32)
    mean_g, mean_v = (boxed_twin(one.astype(float), radius) for one in (guide, values))
    variance = boxed_twin(guide.astype(float) ** 2, radius) - mean_g**2
    slope = (boxed_twin(guide * values.astype(float), radius) - mean_g * mean_v) / (variance + 9)
    wanted = boxed_twin(slope, radius) * guide + boxed_twin(mean_v - slope * mean_g, radius)
    found = np.empty_like(guide)
    kernels_of("mattes").guided(guide, values, radius, np.float32(9), found)
    np.testing.assert_allclose(found, wanted, atol=0.02)


@pytest.mark.parametrize("radius", [1, 4, 30])
def test_what_grows_is_the_most_of_a_window(radius: int) -> None:
    values = np.random.default_rng(radius).random((17, 23)).astype(np.float32)
    wanted = [
        [
            values[max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1].max()
            for x in range(23)
        ]
        for y in range(17)
    ]
    found = np.empty_like(values)
    kernels_of("mattes").grown(values, radius, found)
    np.testing.assert_array_equal(found, np.array(wanted))


@pytest.mark.parametrize("turns", range(4))
def test_what_somebody_wears_in_the_walls_own_colour_is_theirs_at_the_edge_too(turns: int) -> None:
    rng = np.random.default_rng(turns)
    scene, body = np.full((256, 256, 3), 60.0), np.zeros((256, 256), bool)
    scene[:, 160:] = 128.0
    body[60:180, 90:172] = True  # twelve columns of whom stand before what they wear
    picture = np.where(body[..., None], 131.0, scene)
    seen, plate = (halves_of(np.rot90(one, turns), rng) for one in (picture, scene))
    found = np.rot90(mattes.matte(seen, plate).alpha > 0.5, -turns)
    assert found[body].mean() > 0.99
    assert found[~body].mean() < 0.01


def test_gaps_between_strands_stay_open() -> None:
    rng = np.random.default_rng(4)
    scene = np.full((256, 256, 3), (90.0, 130.0, 160.0))
    strands = np.zeros((256, 256), bool)
    strands[60:180, 100:220:12] = strands[60:180, 101:220:12] = strands[150:180, 100:220] = True
    picture = np.where(strands[..., None], (40.0, 20.0, 20.0), scene)
    found = mattes.matte(halves_of(picture, rng), halves_of(scene, rng)).alpha > 0.5
    gaps = np.zeros_like(strands)
    gaps[60:140, 106:214:12] = gaps[60:140, 107:214:12] = True
    assert found[gaps].mean() < 0.01


@pytest.mark.parametrize("by", ["file", "median"])
def test_opacity_is_found_by_a_picture_of_the_scene_and_by_the_films_median(
    walk: Path, by: str
) -> None:
    stage = PlateMatte(str(walk.with_name("plate.png")) if by == "file" else "")
    out = walk.with_name("alpha.mkv")
    done = video.enhance(walk, out, [stage, video.Alpha()], codec="ffv1")
    assert done.frames == 24
    shown = list(video.frames(out))
    assert (shown[0].look.format, shown[0].look.kind) == ("gray", "grey")
    errors = [np.abs(f.planes[0] / 255 - disc(n)).mean() for n, f in enumerate(shown)]
    assert max(errors) < 0.012
    for number, frame in enumerate(shown):
        inside = disc(number) > 0.9
        assert inside.sum() < 99 or (frame.planes[0][inside] > 127).mean() > 0.97


def test_a_lens_that_adapts_to_light_changes_little(walk: Path) -> None:
    scene = behind()
    dimmed = written(walk.with_name("dim.mkv"), [0.8 * composed(12, scene)])
    plate = plates.of_file(walk.with_name("plate.png"), LOOK, "plate")
    seen = next(iter(video.frames(dimmed)))
    found = mattes.matte(mattes.halves(seen), mattes.halves(plate))
    assert np.abs(found.alpha - disc(12)).mean() < 0.02


def test_films_are_the_same_however_they_are_cut(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for chunk, what in ((24, "background"), (5, "background"), (24, "person"), (5, "person")):
        monkeypatch.setattr(making, "CHUNK", chunk)
        out = walk.with_name(f"{chunk}-{what}.mkv")
        both = [PlateMatte(careful=what == "person"), video.Blur(what)]
        video.enhance(walk, out, both, codec="ffv1")
        made.append(samples(out))
    for one, other in ((made[0], made[1]), (made[2], made[3])):
        for (_, first), (_, second) in zip(one, other, strict=True):
            for plane, same in zip(first, second, strict=True):
                np.testing.assert_array_equal(plane, same)


def test_who_is_not_to_be_known_is_blurred_further_than_a_background_without_being_asked() -> None:
    stripes = np.where(np.mgrid[:HIGH, :WIDE][1] // 4 % 2 == 0, 40, 200).astype(np.uint8)
    colours = tuple(np.full((HIGH // 2, WIDE // 2), 128, np.uint8) for _ in range(2))
    left = {}
    for what in ("background", "person"):
        opaque = np.full((HIGH, WIDE), 255 if what == "person" else 0, np.uint8)
        look = opacity.opaque("matte", LOOK)
        frame = video.Frame((stripes, *colours, opaque), 0, 1, Fraction(1, 25), look)
        work = video.Blur(what).bound(look)
        left[what] = float(np.ptp(next(iter(work(Window(frame)))).planes[0]))
    assert left["person"] < left["background"] < 160


def test_a_blurred_background_leaves_the_person_and_another_one_takes_its_place(walk: Path) -> None:
    source = luma_of(walk)
    plate = str(walk.with_name("plate.png"))
    for stage, changed in ((video.Blur(), 3.0), (video.Background("#0000ff"), 40.0)):
        out = walk.with_name(f"{stage.name}.mkv")
        video.enhance(walk, out, [PlateMatte(plate), stage], codec="ffv1")
        for number in (8, 12, 16):
            made, alpha = luma_of(out)[number], disc(number)
            apart = np.abs(made - source[number])
            assert apart[alpha == 1].mean() < 2.5
            assert apart[alpha == 0].mean() > changed


def test_nobody_is_left_open_where_the_person_looks_as_what_is_behind(tmp_path: Path) -> None:
    """Half of somebody grey is before a wall of the same grey: no evidence, so all is covered."""
    scene = behind(3)
    scene[:, WIDE // 2 :] = 128
    pictures = [composed(n, scene, (130, 128, 129)) for n in range(24)]
    source = written(tmp_path / "in.mkv", pictures)
    Image.fromarray(np.rint(scene).astype(np.uint8)).save(tmp_path / "plate.png")
    matte = PlateMatte(str(tmp_path / "plate.png"), careful=True).watched(film(source))
    frames = list(video.frames(source))
    work = matte.bound(frames[0].look)
    made = [next(iter(work(Window(frame)))) for frame in frames]
    grown = [n for n, frame in enumerate(made) if GROWN in frame.notes]
    assert {10, 11, 12} <= set(grown)  # half before what shows them, half before the wall
    assert 0 not in grown
    for number in (10, 11, 12):
        cover = covering(made[number - 2 : number + 3])
        assert cover[disc(number) > 0.02].min() == 1


def test_everybody_is_covered_where_the_picture_is_unlike_its_plate_all_over(walk: Path) -> None:
    frame = next(iter(video.frames(walk)))
    text = plates.packed([255 - plane for plane in frame.planes])
    (made,) = PlateMatte(careful=True, plate=text).bound(frame.look)(Window(frame))
    assert made.planes[-1].min() == 255
    assert made.notes == (GROWN,)


def test_opacity_that_one_picture_alone_has_goes_where_the_picture_stays() -> None:
    look = opacity.opaque("matte", LOOK)
    planes = [np.full(shape, 90, np.uint8) for shape in look.shapes]
    frames = []
    for value in (0, 255, 0):
        planes[-1] = np.full((HIGH, WIDE), value, np.uint8)
        frames.append(video.Frame(tuple(planes), 0, 1, Fraction(1, 25), look))
    held = opacity.steady(Window(frames[1], (frames[0],), (frames[2],)))
    assert held.max() == 0
    moved = replace(frames[0], planes=(planes[0] + 60, *frames[0].planes[1:]))
    assert opacity.steady(Window(frames[1], (moved,), (frames[2],))).min() == 1


def test_what_cannot_be_worked_with_is_refused_by_name(walk: Path) -> None:
    folder, scene = walk.parent, behind()
    Image.new("RGB", (WIDE, HIGH), "green").save(folder / "flat.png")
    Image.new("RGB", (WIDE // 2, HIGH)).save(folder / "small.png")
    blocks = np.random.default_rng(2).integers(0, 255, (8, 12, 3)).repeat(8, 0).repeat(8, 1)
    moving = written(folder / "moving.mkv", [np.roll(blocks, 5 * n, 1) for n in range(24)])
    empty = written(folder / "empty.mkv", [scene] * 12, 0.5)
    stays = [composed(12 + n % 2, scene) for n in range(11)]
    staying = written(folder / "staying.mkv", [*stays, *(composed(n, scene) for n in range(9))])
    single = written(folder / "single.mkv", [scene])
    found = {
        (walk, "flat.png"): r"flat.png': one colour all over; accepted is a picture",
        (walk, "small.png"): r"small.png': 48x64; accepted is the film's size, 96x64",
        (moving, ""): r"the camera moves \(\d+% of the median's edges",
        (empty, ""): "nothing moves before the camera",
        (staying, ""): "of what changes is hardly ever seen empty",
        (single, ""): "1 pictures to find the empty scene in; accepted are 3",
    }
    for (source, plate), words in found.items():
        stage = PlateMatte(str(folder / plate) if plate else "")
        with pytest.raises(ArgumentError, match=words):
            video.enhance(source, folder / "out.mkv", [stage, video.Blur()])
    with pytest.raises(ArgumentError, match="blur: pictures have no opacity"):
        video.enhance(walk, folder / "out.mkv", [video.Blur()])
    with pytest.raises(ArgumentError, match="matte: pictures have opacity already"):
        video.enhance(walk, folder / "out.mkv", [PlateMatte(), PlateMatte(), video.Blur()])
    with pytest.raises(ArgumentError, match=r"blur: what='sky', .*accepted are background, person"):
        video.enhance(walk, folder / "out.mkv", [PlateMatte(), video.Blur("sky")])
    with pytest.raises(ArgumentError, match=r"background='nocolour': no colour; accepted are"):
        video.Background.of("nocolour")
    assert not (folder / "out.mkv.parts").exists()


def test_options_that_exclude_each_other_or_stand_alone_are_refused() -> None:
    out = Path("out.mkv")
    for given, words in {
        Asked("person", "green"): "--blur beside --background: accepted is one",
        Asked(plate=Path("x.png")): "--plate=x.png alone: accepted is --blur, --background or",
        Asked("sky"): "--blur=sky: accepted are background, person, and a matte's file",
        Asked("person", plate=Path("x.png"), key="auto"): "--plate=x.png beside --key=auto",
        Asked("person", matte=out): "--blur beside --matte of OUT's name",
    }.items():
        with pytest.raises(ArgumentError, match=words):
            stages(given, out)


def before_a_wall(number: int, colour: Any = (40, 200, 60)) -> Any:
    """Somebody before a wall whose light falls off to the right."""
    wall = np.array(colour) * np.linspace(1.0, 0.7, WIDE)[None, :, None]
    return composed(number, np.broadcast_to(wall, (HIGH, WIDE, 3)))


@pytest.mark.parametrize("key", ["auto", "#28c83c"])
def test_opacity_is_found_by_the_colour_of_the_wall(tmp_path: Path, key: str) -> None:
    source = written(tmp_path / "in.mkv", [before_a_wall(n) for n in range(4, 14)])
    video.enhance(source, tmp_path / "a.mkv", [video.KeyMatte(key), video.Alpha()], codec="ffv1")
    for number, frame in enumerate(video.frames(tmp_path / "a.mkv"), 4):
        assert np.abs(frame.planes[0] / 255 - disc(number)).mean() < 0.02


def test_a_key_that_cannot_be_told_by_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mixed = rng.integers(0, 255, (4, 6, 3)).repeat(16, 0).repeat(16, 1)
    source = written(tmp_path / "in.mkv", [mixed] * 2)
    for key, words in {
        "auto": "key=auto: no colour prevails at the picture's border",
        "white": "key='white': nearly grey",
        "sand wich": "key='sand wich': no colour; accepted are",
    }.items():
        with pytest.raises(ArgumentError, match=words):
            video.enhance(source, tmp_path / "out.mkv", [video.KeyMatte(key), video.Blur()])


def test_opacity_goes_beside_the_film_and_a_stopped_line_goes_on(
    walk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped while the film was made, after opacity was: that file is known for the line's own."""
    monkeypatch.setattr(making, "CHUNK", 8)
    out, matte = walk.with_name("out.mkv"), walk.with_name("alpha.mkv")
    asked = Asked("background", matte=matte)

    def line(*, stop: bool = False) -> bool:
        job = making.planned(walk, out, stages(asked, out))
        other = beside(asked, job, overwrite=False)
        if other is not None:
            made_beside(other, lambda now: None, None)
        making.made(job, _stop if stop else None)
        ended(asked)
        return other is not None

    with pytest.raises(KeyboardInterrupt):
        line(stop=True)
    assert matte.exists()
    assert not line()
    assert sorted(one.name for one in walk.parent.iterdir()) == [
        "alpha.mkv", "out.mkv", "plate.png", "walk.mkv"
    ]  # fmt: skip
    out.unlink()
    with pytest.raises(FileError, match="exists; accepted is another name, or overwrite"):
        line()


def _stop(now: video.Progress) -> None:
    if now.done > 10:
        raise KeyboardInterrupt
