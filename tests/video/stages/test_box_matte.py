"""A part that is followed stays covered, whatever it does; where it is not seen the box grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

av = pytest.importorskip("av")
pytest.importorskip("numba")
Image = pytest.importorskip("PIL.Image")

from tests.cli.test_cli import invoke  # noqa: E402
from tests.support import stripes  # noqa: E402
from tests.support.films import samples  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.cli.enhance_people import Asked, stages  # noqa: E402
from tilewright.errors import ArgumentError  # noqa: E402
from tilewright.video import making  # noqa: E402
from tilewright.video.analysis.correlation import correlated  # noqa: E402
from tilewright.video.analysis.cuts import step  # noqa: E402
from tilewright.video.analysis.small import shrunk  # noqa: E402
from tilewright.video.following import Follower, Place  # noqa: E402
from tilewright.video.stages.box_matte import GROWN, _box  # noqa: E402

WIDE, HIGH, PART = 240, 180, (30, 36)  # of the pictures; of the part, across and down
FIRST = (24, 54, 31, 37)  # a box round it in the first picture


def texture(rows: int, columns: int, seed: int, coarse: int) -> Any:
    """Soft blobs of grey."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 255, (rows // coarse + 2, columns // coarse + 2), np.uint8)
    return np.asarray(Image.fromarray(small).resize((columns, rows), 3), np.float32)


@dataclass(frozen=True)
class Scene:
    """What a part does: how it grows and turns a picture; what else goes on."""

    grows: float = 0.0
    turns: float = 0.0
    pans: float = 0.0
    noise: float = 3.0
    pole: bool = False
    cut: int = 99
    flash: int = 99

    def middle(self, number: int) -> tuple[float, float]:
        return 40 + 3 * number, 72 + 15 * np.sin(number / 5)

    def picture(self, number: int) -> Any:
        if number == self.flash:
            return np.full((HIGH, WIDE), 250, np.float32)
        if number >= self.cut:
            return texture(HIGH, WIDE, 9, 11)
        begin = round(self.pans * number)
        made = texture(HIGH, WIDE + 160, 1, 12)[:, begin : begin + WIDE].copy()
        size = tuple(round(one * (1 + self.grows * number)) for one in PART)
        part = Image.fromarray(texture(PART[1], PART[0], 2, 6).astype(np.uint8))
        part = np.asarray(part.rotate(self.turns * number, resample=2).resize(size, 2))
        x, y = self.middle(number)
        top, left = round(y - size[1] / 2), round(x - size[0] / 2)
        made[top : top + size[1], left : left + size[0]] = part
        if self.pole:
            made[:, 100:146] = texture(HIGH, 46, 5, 5)
        noise = np.random.default_rng(number).normal(0, self.noise, made.shape)
        return (made + noise).clip(0, 255).astype(np.float32)


def followed(scene: Scene, count: int = 50) -> list[Place]:
    """Where a part is said to be."""
    left, top, wide, high = FIRST
    found = [Place(top + high / 2, left + wide / 2, high, wide, 0.0)]
    lights = [scene.picture(number) for number in range(count)]
    follower = Follower(lights[0], found[0])
    for one, other in pairwise(lights):
        found.append(follower.next(other, step(shrunk(one, 7), shrunk(other, 7))))
    return found


def left_open(scene: Scene, found: list[Place]) -> list[int]:
    """Numbers of pictures in which the part reaches out of what is covered."""
    wrong = []
    for number, place in enumerate(found[: scene.cut]):
        left, top, right, bottom, _ = _box(place, 1)
        (x, y), grown = scene.middle(number), 1 + scene.grows * number
        wide, high = PART[0] * grown / 2, PART[1] * grown / 2
        inside = left <= x - wide and top <= y - high and right >= x + wide and bottom >= y + high
        if not inside and number != scene.flash:
            wrong.append(number)
    return wrong


@pytest.mark.parametrize(
    "scene",
    [
        *(Scene(), Scene(pans=2), Scene(grows=0.01), Scene(grows=-0.008), Scene(turns=3)),
        *(Scene(noise=20), Scene(pole=True), Scene(cut=25), Scene(flash=20)),
    ],
    ids=lambda scene: repr(scene)[6:-1],
)
def test_a_part_is_covered_in_every_picture_whatever_it_does(scene: Scene) -> None:
    assert left_open(scene, followed(scene)) == []


def test_a_box_grows_where_its_part_is_hidden_and_is_small_again_behind() -> None:
    found = followed(Scene(pole=True))
    grown = [number for number, place in enumerate(found) if _box(place, 1)[-1]]
    assert set(range(24, 30)) <= set(grown)
    assert not set(grown) & {*range(15), *range(44, 50)}
    assert max(place.more for place in found[24:30]) > 10
    assert found[-1].more < 3


def test_the_whole_picture_is_covered_behind_a_cut() -> None:
    for place in followed(Scene(cut=25))[25:]:
        left, top, right, bottom, grown = _box(place, 1)
        assert max(left, top) <= 0
        assert right >= WIDE
        assert bottom >= HIGH
        assert grown


def test_a_quick_correlation_is_what_it_is_defined_as() -> None:
    rng = np.random.default_rng(0)
    large, small = rng.normal(100, 40, (17, 23)), rng.normal(90, 30, (5, 8))
    found = correlated(large, small)
    for y, x in ((0, 0), (12, 15), (7, 3)):
        wanted = np.corrcoef(large[y : y + 5, x : x + 8].ravel(), small.ravel())[0, 1]
        assert abs(found[y, x] - wanted) < 1e-3
    assert found.shape == (13, 16)


BOX = (8, 32, 32, 32)  # round the disc in the first picture


def test_what_a_box_covers_is_open_in_no_picture_and_what_is_far_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, made = stripes.walk(tmp_path / "in.mkv"), []
    for chunk in (16, 5):
        monkeypatch.setattr(making, "CHUNK", chunk)
        out = tmp_path / f"{chunk}.mkv"
        found = stages(Asked(boxes=(",".join(map(str, BOX)),)), out)
        done = video.enhance(source, out, found, codec="ffv1")
        assert not done.notes
        made.append(samples(out))
    for number, frame in enumerate(video.frames(out)):
        shown = frame.carrier.to_ndarray(format="rgb24")
        assert not stripes.is_open(shown)
        far = ~stripes.inside(number, 4 * stripes.RADIUS)
        assert np.median(np.abs(shown[far].astype(int) - stripes.picture(number)[far])) <= 2
    for (_, first), (_, second) in zip(*made, strict=True):
        for plane, same in zip(first, second, strict=True):
            np.testing.assert_array_equal(plane, same)


def test_pictures_in_which_the_box_grew_are_told_of(tmp_path: Path) -> None:
    """From the ninth picture on there is another scene: all of it is covered."""
    scene = np.repeat(texture(stripes.HIGH, stripes.WIDE, 7, 9)[..., None], 3, 2).astype(np.uint8)

    def picture(number: int) -> Any:
        return stripes.picture(number) if number < 8 else np.roll(scene, number, 1)

    source = written(tmp_path / "in.mkv", picture)
    done = video.enhance(source, tmp_path / "out.mkv", [video.BoxMatte(BOX), video.Blur("person")])
    assert done.notes == {GROWN: tuple(number / 25 for number in range(8, 12))}


def written(path: Path, picture: Callable[[int], Any], count: int = 12) -> Path:
    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = stripes.WIDE, stripes.HIGH, "yuv444p"
        for number in range(count):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture(number), "rgb24")))
        out.mux(stream.encode(None))
    return path


def test_boxes_that_cannot_be_followed_are_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    source = stripes.walk(tmp_path / "in.mkv", 25)
    for given, words in {
        "8,32,32,32": r"blur-box=8,32,32,32: what it covers leaves the picture at 0\.8\d s; acc",
        "100,32,32,32": r"reaches out of the picture; accepted are boxes within 128x96",
        "8,32,32,4": "blur-box=8,32,32,4: accepted are 8 samples a side and more",
        "8,32,32": "--blur-box=8,32,32: accepted are four numbers, X,Y,WIDTH,HEIGHT",
        "-8,32,32,9": "--blur-box=-8,32,32,9: accepted are four numbers",
    }.items():
        done = invoke("enhance", source, "-o", tmp_path / "out.mkv", f"--blur-box={given}")
        assert done.exit_code == 2
        with pytest.raises(ArgumentError, match=words):
            video.enhance(source, tmp_path / "out.mkv", stages(Asked(boxes=(given,)), tmp_path))
    with pytest.raises(ArgumentError, match="--blur-box beside --matte of OUT's name"):
        stages(Asked(boxes=("8,32,32,32",), matte=Path("a.mkv")), Path("a.mkv"))
    assert list(tmp_path.iterdir()) == [source]
