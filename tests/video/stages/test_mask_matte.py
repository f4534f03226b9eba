"""What is blurred, said by a film: as it says, however a film is cut, and refused where it is none
of this film."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

av = pytest.importorskip("av")
pytest.importorskip("numba")
Image = pytest.importorskip("PIL.Image")

from tests.support import stripes  # noqa: E402
from tests.support.films import samples  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.cli.enhance_people import Asked, stages  # noqa: E402
from tilewright.errors import ArgumentError, FileError  # noqa: E402
from tilewright.video import making  # noqa: E402
from tilewright.video.stages import mask_matte  # noqa: E402
from tilewright.video.stages.plate_matte import GROWN  # noqa: E402


def matte(
    path: Path, numbers: Sequence[int] = range(stripes.COUNT), rate: int = 25, small: int = 1
) -> Path:
    """A film that is white where the disc is."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=Fraction(rate))
        stream.width, stream.height = stripes.WIDE // small, stripes.HIGH // small
        stream.pix_fmt = "gray"
        for number in numbers:
            white = np.where(stripes.inside(number), 255, 0).astype(np.uint8)[::small, ::small]
            out.mux(stream.encode(av.VideoFrame.from_ndarray(white, "gray")))
        out.mux(stream.encode(None))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return stripes.walk(tmp_path / "in.mkv")


def made(source: Path, out: Path, mask: Path) -> list[Any]:
    found = stages(Asked(blur=str(mask)), out)
    video.enhance(source, out, found, codec="ffv1")
    return [one.carrier.to_ndarray(format="rgb24").copy() for one in video.frames(out)]


def test_what_a_matte_says_is_blurred_and_nothing_far_from_it(source: Path) -> None:
    shown = made(source, source.with_name("out.mkv"), matte(source.with_name("a.mkv")))
    assert not any(stripes.is_open(one) for one in shown)
    for number, one in enumerate(shown):
        far = ~stripes.inside(number, 3.5 * stripes.RADIUS)
        apart = np.abs(one[far].astype(int) - stripes.picture(number)[far])
        assert np.median(apart) <= 2


def test_a_matte_that_enhance_writes_says_what_is_blurred(source: Path) -> None:
    Image.fromarray(stripes.picture(-1)).save(source.with_name("plate.png"))
    asked = Asked(plate=source.with_name("plate.png"), matte=source.with_name("a.mp4"))
    video.enhance(source, source.with_name("a.mp4"), stages(asked, source.with_name("a.mp4")))
    shown = made(source, source.with_name("out.mkv"), source.with_name("a.mp4"))
    assert not any(stripes.is_open(one) for one in shown)


def test_a_picture_says_it_for_the_whole_film(source: Path) -> None:
    white = np.zeros((stripes.HIGH, stripes.WIDE), np.uint8)
    white[:, : stripes.WIDE // 2] = 255
    mask = source.with_name("half.png")
    Image.fromarray(white).save(mask)
    shown = made(source, source.with_name("out.mkv"), mask)
    seen = [stripes.is_open(one) for one in shown]
    assert not any(seen[:5])
    assert all(seen[8:])


def test_films_are_the_same_however_they_are_cut(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    mask = matte(source.with_name("a.mkv"))
    for chunk in (16, 3):
        monkeypatch.setattr(making, "CHUNK", chunk)
        out = source.with_name(f"{chunk}.mkv")
        made(source, out, mask)
        found.append(samples(out))
    for (_, first), (_, second) in zip(*found, strict=True):
        for plane, same in zip(first, second, strict=True):
            np.testing.assert_array_equal(plane, same)


def test_all_is_blurred_where_a_mattes_pictures_cannot_be_decoded(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = mask_matte.decoded

    def without(found: Any, first: int | None = None) -> Any:
        return (frame for frame in whole(found, first) if frame.pts < found.times[7])

    monkeypatch.setattr(mask_matte, "decoded", without)
    stage = video.MaskMatte(str(matte(source.with_name("a.mkv"))))
    done = video.enhance(source, source.with_name("out.mkv"), [stage, video.Blur("person", 0.12)])
    assert done.notes == {GROWN: tuple(n / 25 for n in range(7, stripes.COUNT))}
    shown = [one.carrier.to_ndarray(format="rgb24") for one in video.frames(done.out)]
    assert not any(stripes.is_open(one) for one in shown)


def test_mattes_that_do_not_fit_are_refused_before_anything_is_written(source: Path) -> None:
    folder = source.parent
    Image.new("L", (stripes.WIDE, 10)).save(folder / "low.png")
    matte(folder / "short.mkv", range(9))
    matte(folder / "small.mkv", small=2)
    matte(folder / "slow.mkv", rate=20)
    (folder / "none.mkv").write_bytes(b"no film")
    black = Image.new("RGBA", (stripes.WIDE, stripes.HIGH))
    black.convert("RGB").save(folder / "black.png")
    black.paste((0, 0, 0, 255), (8, 8, 40, 40))  # what is meant, by its opacity
    black.save(folder / "clear.png")
    before = set(folder.iterdir())
    for name, words in {
        "low.png": r"blur='.*low.png': 128x10; accepted is the film's size, 128x96",
        "small.mkv": r"small.mkv': 64x48; accepted is the film's size, 128x96",
        "short.mkv": r"short.mkv': 9 pictures; accepted are as many as the film has, 16",
        "slow.mkv": r"slow.mkv': has a picture at 0.050 s; accepted is .* times, 0.040 s",
        "black.png": r"black.png': black all over, .* blurred; accepted is a picture that is white",
        "clear.png": r"clear.png': is transparent in places; accepted is a grey picture, white",
        "none.mkv": r"blur=.*none.mkv",
        "absent.mkv": r"blur=.*absent.mkv': no such file",
        "absent.png": r"absent.png': cannot be read .*; accepted are .png",
    }.items():
        with pytest.raises((ArgumentError, FileError), match=words):
            made(source, folder / "out.mkv", folder / name)
    out = folder / "out.mkv"
    for given, words in {
        Asked("sky"): "--blur=sky: accepted are background, person, and a matte's file",
        Asked("a.mkv", key="auto"): "--key=auto beside --blur=a.mkv: accepted is one of them",
        Asked("a.mkv", matte=Path("b.mkv")): "--matte beside --blur=a.mkv: accepted is one",
    }.items():
        with pytest.raises(ArgumentError, match=words):
            stages(given, out)
    assert set(folder.iterdir()) == before
