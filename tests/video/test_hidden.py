"""Who is hidden in a film is seen in nothing that comes of it: pages, previews, covers, thumbnails.

Pixels are looked at, of every file that a line leaves behind.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

av = pytest.importorskip("av")
pytest.importorskip("numba")
pytest.importorskip("jinja2")
Image = pytest.importorskip("PIL.Image")

from tests.cli.test_cli import invoke  # noqa: E402
from tests.support import stripes  # noqa: E402

HIDING = {
    "person": ["--blur", "person", "--plate", "plate.png"],
    "matte": ["--blur", "all.png"],
    "box": ["--blur-box", "8,32,32,32"],
}
SHOWING = {"background": ["--blur", "background", "--plate", "plate.png"]}


def jpeg(number: int) -> bytes:
    kept = BytesIO()
    Image.fromarray(stripes.picture(number)).save(kept, "JPEG", quality=95)
    return kept.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a film that has a cover, its empty scene, and a photograph with a thumbnail."""
    monkeypatch.chdir(tmp_path)
    stripes.walk(Path("in.mkv"), cover=jpeg(3))
    Image.fromarray(stripes.picture(-1)).save("plate.png")
    Image.new("L", (stripes.WIDE, stripes.HIGH), 255).save("all.png")
    photograph()
    return tmp_path


def photograph() -> None:
    """A JPEG turned by a quarter, small pictures of itself in its EXIF and XMP."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"
    small = jpeg(0)
    xmp = b"<x:xmpmeta><xmpGImg:image>" + base64.b64encode(small) + b"</xmpGImg:image></x:xmpmeta>"
    exif[0x9286] = b"small" + small  # a note of the user's, of any bytes
    made = Image.fromarray(stripes.picture(0))
    made.save("in.jpg", exif=exif.tobytes(), xmp=xmp, quality=95)


def pictures(path: Path) -> Iterator[Any]:
    """Every picture that a file has in it, however it lies there."""
    content = path.read_bytes()
    if path.suffix in (".mkv", ".mp4"):
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                yield frame.to_ndarray(format="rgb24")
        # Covers lie in a film's file as they were given.
    for text in re.findall(rb"[A-Za-z0-9+/]{200,}={0,2}", content):
        yield from embedded(base64.b64decode(text + b"=" * (-len(text) % 4)))
    yield from embedded(content)


def embedded(content: bytes) -> Iterator[Any]:
    """Pictures that begin anywhere in some bytes."""
    for mark in (b"\xff\xd8\xff", b"\x89PNG", b"RIFF"):
        for found in re.finditer(re.escape(mark), content):
            try:
                shown = Image.open(BytesIO(content[found.start() :]))
                yield np.asarray(shown.convert("RGB"))
            except (OSError, SyntaxError):
                continue


LINES = {
    "film and page": ["in.mkv", "-o", "out.mkv", "--report", "out.html"],
    "page with a reference": [
        "in.mkv", "-o", "out.mkv", "--report", "out.html", "--reference", "in.mkv"
    ],
    "larger": ["in.mkv", "-o", "out.mkv", "--upscale", "2", "--report", "out.html"],
    "preview": ["in.mkv", "-o", "out.mkv", "--preview"],
    "photograph": ["in.jpg", "-o", "out.jpg"],
    "photograph as PNG": ["in.jpg", "-o", "out.png"],
}  # fmt: skip


def leaves(line: list[str], options: list[str]) -> dict[str, list[Any]]:
    """What a line leaves, and the pictures in it."""
    before = set(Path().iterdir())
    done = invoke("enhance", *line, *options)
    assert done.exit_code == 0, done.output
    return {one.name: list(pictures(one)) for one in set(Path().iterdir()) - before}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("way", HIDING)
def test_nobody_who_is_hidden_is_seen_in_anything_that_comes_of_it(
    folder: Path, way: str, line: str
) -> None:
    made = leaves(LINES[line], HIDING[way])
    assert made
    for name, shown in made.items():
        assert shown, name
        assert not [number for number, one in enumerate(shown) if stripes.is_open(one)], name


@pytest.mark.parametrize("line", LINES)
def test_somebody_who_is_not_hidden_is_seen_in_all_of_it(folder: Path, line: str) -> None:
    for name, shown in leaves(LINES[line], SHOWING["background"]).items():
        assert any(stripes.is_open(one) for one in shown), name


def test_covers_are_left_out_by_name_and_what_shows_nothing_stays(folder: Path) -> None:
    options = HIDING["person"]
    done = invoke("enhance", "in.mkv", "-o", "out.mkv", *options)
    assert done.exit_code == 0
    assert re.search("stream 1 .*: not kept, as it may show what is hidden", done.output)
    with av.open("out.mkv") as made:
        assert [one.type for one in made.streams] == ["video", "attachment"]
        assert made.streams[1].data == b"letters"
    assert invoke("enhance", "in.jpg", "-o", "out.jpg", *options).exit_code == 0
    kept = Image.open("out.jpg").getexif()
    assert dict(kept) == {0x0112: 6}
