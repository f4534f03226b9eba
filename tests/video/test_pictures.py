"""Pictures go through the same stages, and keep their colours' profile and their orientation."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")
image = pytest.importorskip("PIL.Image")

from tests.cli.test_cli import invoke  # noqa: E402
from tilewright.errors import ArgumentError, FileError  # noqa: E402
from tilewright.video.pictures import Pair, enhanced, pairs  # noqa: E402
from tilewright.video.stages.sharpen import Sharpen  # noqa: E402
from tilewright.video.stages.upscale import Upscale  # noqa: E402

ORIENTATION = 0x0112


def drawn(mode: str) -> np.ndarray:
    y, x = np.mgrid[:24, :32]
    waves = [128 + 90 * np.sin(x / (3 + n) + n) * np.cos(y / (4 + n)) for n in range(len(mode))]
    pixels = np.stack(waves, -1).astype(np.uint8)
    return pixels[..., 0] if mode == "L" else pixels


def saved(path: Path, mode: str = "RGB") -> Path:
    made = image.fromarray(drawn(mode))
    noted = image.Exif()
    noted[ORIENTATION] = 6
    made.save(path, exif=noted.tobytes(), icc_profile=b"a profile")
    return path


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_no_stage_changes_nothing_and_a_gentle_one_little(tmp_path: Path, mode: str) -> None:
    source = saved(tmp_path / "in.png", mode)
    enhanced([Pair(source, tmp_path / "same.png")], [])
    np.testing.assert_array_equal(image.open(tmp_path / "same.png"), drawn(mode))
    enhanced([Pair(source, tmp_path / "sharp.png")], [Sharpen(0)])
    made = np.asarray(image.open(tmp_path / "sharp.png")).astype(int)
    assert made.shape == drawn(mode).shape
    assert np.abs(made - drawn(mode)).max() <= 1


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_profile_and_orientation_are_kept_and_the_picture_is_twice_as_large(
    tmp_path: Path, suffix: str
) -> None:
    source, out = saved(tmp_path / f"in{suffix}"), tmp_path / f"out{suffix}"
    done = invoke("enhance", source, "-o", out, "--upscale", "2")
    assert done.exit_code == 0, done.output
    made = image.open(out)
    assert made.size == (64, 48)
    assert made.info["icc_profile"] == b"a profile"
    assert made.getexif()[ORIENTATION] == 6
    small = made.resize((32, 24), image.Resampling.BOX)
    assert np.abs(np.asarray(small).astype(int) - np.asarray(image.open(source))).mean() < 6


def test_folders_and_patterns_keep_names(tmp_path: Path) -> None:
    for name in ("a.png", "b.jpg"):
        saved(tmp_path / name)
    (tmp_path / "notes.txt").write_text("none")
    done = invoke("enhance", tmp_path, "-o", tmp_path / "sharp", "--sharpen", "1")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "sharp").iterdir()) == ["a.png", "b.jpg"]
    saved(tmp_path / "c.webp")
    done = invoke("enhance", tmp_path / "[ac].*", "-o", tmp_path / "some", "--sharpen", "1")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "some").iterdir()) == ["a.png", "c.webp"]
    found = pairs(tmp_path / "*.jpg", tmp_path / "more")
    assert found is not None
    assert [pair.out.name for pair in found] == ["b.jpg"]
    assert pairs(tmp_path / "film.mp4", tmp_path / "out.mp4") is None


def test_no_stage_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    for name in ("in.png", "in.jpg", "in.webp"):
        source, out = saved(tmp_path / name), tmp_path / f"out-{name}"
        enhanced([Pair(source, out)], [])
        assert out.read_bytes() == source.read_bytes()


def test_a_phone_s_second_picture_is_no_film(tmp_path: Path) -> None:
    one = image.fromarray(drawn("RGB"))
    one.save(tmp_path / "in.jpg", format="MPO", save_all=True, append_images=[one.rotate(180)])
    enhanced([Pair(tmp_path / "in.jpg", tmp_path / "out.jpg")], [Sharpen(0)])
    made = np.asarray(image.open(tmp_path / "out.jpg")).astype(int)
    assert np.abs(made - drawn("RGB")).mean() < 6


@pytest.mark.parametrize("mode", ["L", "RGB", "P"])
def test_a_colour_that_is_transparent_stays_so_and_no_other_becomes_it(
    tmp_path: Path, mode: str
) -> None:
    pixels = drawn("L") // 64 * 64
    made = image.fromarray(pixels).convert(mode)
    clear = (64, 64, 64) if mode == "RGB" else made.getpixel((int(np.argmax(pixels[0] == 64)), 0))
    made.save(tmp_path / "in.png", transparency=clear)
    before = np.asarray(image.open(tmp_path / "in.png").convert("RGBA"))
    assert set(np.unique(before[..., 3])) == {0, 255}
    for stages in ([], [Sharpen(1)]):
        enhanced([Pair(tmp_path / "in.png", tmp_path / "out.png")], stages, overwrite=True)
        after = np.asarray(image.open(tmp_path / "out.png").convert("RGBA"))
        np.testing.assert_array_equal(after[..., 3], before[..., 3])


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
def test_xmp_and_texts_are_kept(tmp_path: Path, suffix: str) -> None:
    from PIL.PngImagePlugin import PngInfo

    xmp, noted = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'/>", PngInfo()
    noted.add_text("Author", "Somebody")
    noted.add_itxt("XML:com.adobe.xmp", xmp.decode())
    told = {"pnginfo": noted} if suffix == ".png" else {"xmp": xmp}
    image.fromarray(drawn("RGB")).save(tmp_path / f"in{suffix}", **told)
    enhanced([Pair(tmp_path / f"in{suffix}", tmp_path / f"out{suffix}")], [Sharpen(0)])
    made = image.open(tmp_path / f"out{suffix}")
    assert made.info["xmp"] == xmp
    assert suffix != ".png" or made.text["Author"] == "Somebody"


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_sixteen_bits_are_refused_not_halved(tmp_path: Path, channels: int) -> None:
    """Pillow reads them as eight, so this file is written by hand."""
    kind = {2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", 4, 2, 16, kind, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes(range(8 * channels))) * 2)
    parts = [(b"IHDR", head), (b"IDAT", rows), (b"IEND", b"")]
    content = b"".join(
        struct.pack(">I", len(text)) + name + text + struct.pack(">I", zlib.crc32(name + text))
        for name, text in parts
    )
    (tmp_path / "in.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(ArgumentError, match="sixteen bits; accepted are eight"):
        enhanced([Pair(tmp_path / "in.png", tmp_path / "out.png")], [Sharpen(0)])


def test_a_picture_too_large_for_its_format_is_refused(tmp_path: Path) -> None:
    image.new("L", (9000, 2)).save(tmp_path / "in.webp")
    with pytest.raises(ArgumentError, match="18000x4 samples; accepted for WEBP are 16383 a side"):
        enhanced([Pair(tmp_path / "in.webp", tmp_path / "out.webp")], [Upscale("s")])


def test_a_folder_of_one_picture_is_a_folder_still(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    saved(tmp_path / "in" / "a.png")
    done = invoke("enhance", tmp_path / "in", "-o", tmp_path / "out", "--sharpen", "1")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "a.png").is_file()
    (tmp_path / "file").write_text("no folder")
    for out, words in ((tmp_path / "no" / "out", "No such file"), (tmp_path / "file", "exists")):
        for more in ([], ["--dry-run"]):
            done = invoke("enhance", tmp_path / "in", "-o", out, "--sharpen", "1", *more)
            assert done.exit_code == 2, done.output
            assert f"out='{out}': cannot be made (" in done.stderr
            assert words in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", "file"}


def test_a_dry_run_refuses_what_would_be_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "in.png")
    for out, words in ((source, "is the source itself"), (tmp_path / "out.gif", "suffix '.gif'")):
        done = invoke("enhance", source, "-o", out, "--dry-run")
        assert done.exit_code == 2
        assert words in done.stderr


def test_what_cannot_be_done_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = saved(tmp_path / "in.png", "RGBA")
    (tmp_path / "text.png").write_text("none")
    with pytest.raises(FileError, match="cannot be read"):
        enhanced([Pair(tmp_path / "text.png", tmp_path / "out.png")], [])
    with pytest.raises(ArgumentError, match=r"JPEG keeps no opacity; accepted are .png and .webp"):
        enhanced([Pair(source, tmp_path / "out.jpg")], [])
    with pytest.raises(FileError, match="exists; accepted is another name"):
        enhanced([Pair(source, tmp_path / "text.png")], [])
    image.fromarray(drawn("RGBA"), "CMYK").save(tmp_path / "print.jpg")
    with pytest.raises(ArgumentError, match="its colours are CMYK"):
        enhanced([Pair(tmp_path / "print.jpg", tmp_path / "out.png")], [])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match=r"no picture; accepted are \.png"):
        pairs(tmp_path / "empty", tmp_path / "out")
    done = invoke("enhance", source, "-o", tmp_path / "out.png", "--codec", "h264")
    assert done.exit_code == 2
    assert "--codec: of films alone" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {
        "in.png",
        "text.png",
        "print.jpg",
        "empty",
    }
