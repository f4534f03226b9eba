"""Pictures go through the same stages, and keep their colours' profile and their orientation."""

from __future__ import annotations

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
