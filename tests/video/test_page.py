"""A page about a film: whole in itself, shown by a real browser, and right in what it says."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("numba")
pytest.importorskip("jinja2")
image = pytest.importorskip("PIL.Image")

from tests.cli.test_cli import invoke  # noqa: E402
from tests.support.films import Making, film  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.errors import ArgumentError, FileError  # noqa: E402
from tilewright.video import page as page_of_a_film  # noqa: E402
from tilewright.video.compare import busiest  # noqa: E402
from tilewright.video.likeness import psnr, ssim  # noqa: E402
from tilewright.video.making import planned  # noqa: E402
from tilewright.video.stages.during import During  # noqa: E402

SMALL = Making(width=160, height=96, time_base=Fraction(1, 1000), times=range(0, 400, 40))
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in BROWSERS if (found := shutil.which(name))), None)
MOVED = """<script>
const slider = document.querySelector(".slider");
slider.value = 25;
slider.dispatchEvent(new Event("input"));
const shown = [...document.images].every((one) => one.complete && one.naturalWidth > 0);
document.title = `${document.images.length} images, all shown: ${shown}`;
</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a film measured by a reference; its source's name is awkward."""
    folder = tmp_path_factory.mktemp("page")
    source = film(folder / "a <b> & c.mkv", SMALL)
    out = folder / "out.mkv"
    options = ["--sharpen", "0.8", "--report", folder / "page.html", "--reference", source]
    done = invoke("enhance", source, "-o", out, *options)
    assert done.exit_code == 0, done.output
    assert "page.html" in done.output
    return folder / "page.html"


def test_a_page_asks_for_nothing_and_says_what_was_done(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    plain = re.sub(r"data:image/(png|jpeg);base64,[A-Za-z0-9+/=]+", "", text)
    assert text.count("data:image/") == 3 * (2 + 3)
    for outside in ("http:", "https:", "//", "url(", "@import", "<link"):
        assert outside not in plain.replace('"//"', ""), outside
    assert "default-src 'none'" in plain
    assert "a &lt;b&gt; &amp; c.mkv" in plain
    for said in (
        "amount 0.8, 160x96 yuv420p",
        "worst",
        "median",
        "best",
        "PSNR ",
        "dB, SSIM 0.",
        "nearer to the reference",
        "MIT",
        "Recommended",
    ):
        assert said in plain


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_a_browser_shows_every_image_and_moves_the_slider(page: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.html"
    # The script that moves it is the test's; what it moves is the page's.
    moved.write_text(page.read_text(encoding="utf-8").replace("</body>", MOVED))
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/new"]
    done = subprocess.run(
        [str(BROWSER), *arguments, "--virtual-time-budget=5000", "--dump-dom", moved.as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "<title>15 images, all shown: true</title>" in done.stdout
    places = re.findall(r'class="after" style="clip-path: inset\(0px 0px 0px (\d+)%\)', done.stdout)
    assert places == ["25", "50", "50"]


def test_a_preview_is_three_pictures_and_no_film(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    done = invoke("enhance", source, "-o", tmp_path / "out.mkv", "--sharpen", "1", "--preview")
    assert done.exit_code == 0, done.output
    assert {path.name for path in tmp_path.iterdir()} == {"in.mkv", "out.mkv.preview.png"}
    made = np.asarray(image.open(tmp_path / "out.mkv.preview.png")).astype(int)
    rows, gap = 96 + 18, 8
    assert made.shape == (3 * rows, 2 * 160 + gap, 3)
    before, after = made[18:rows, :160], made[18:rows, 160 + gap :]
    assert 1 < np.abs(before - after).mean() < 60


def test_what_a_report_cannot_be_is_refused_before_work_begins(tmp_path: Path) -> None:
    source, out = film(tmp_path / "in.mkv", SMALL), tmp_path / "out.mkv"
    other = film(tmp_path / "other.mkv", Making())
    with pytest.raises(ArgumentError, match="without a report; accepted is a report beside it"):
        video.enhance(source, out, reference=source)
    with pytest.raises(ArgumentError, match=r"accepted are \.html and \.htm"):
        video.enhance(source, out, report=tmp_path / "page.pdf")
    with pytest.raises(ArgumentError, match="64x48 yuv420p; accepted is what the film will be"):
        video.enhance(source, out, report=tmp_path / "page.html", reference=other)
    with pytest.raises(FileError, match=r"reference=.*no such file"):
        video.enhance(source, out, report=tmp_path / "page.html", reference=tmp_path / "none.mp4")
    assert {path.name for path in tmp_path.iterdir()} == {"in.mkv", "other.mkv"}


def test_a_page_has_the_cards_of_the_networks_without_addresses(tmp_path: Path) -> None:
    source = film(tmp_path / "in.mkv", SMALL)
    often = During(video.Upscale("m"), ((0.0, 1.0),))
    job = planned(source, tmp_path / "out.mkv", [video.Upscale("s", device="host")])
    cards = page_of_a_film._cards(replace(job, stages=(*job.stages, often, video.Sharpen())))
    assert [name for name, _ in cards] == ["superres-s", "superres-m"]
    for name, text in cards:
        assert text.startswith(f"# {name}")
        assert "Licence" in text
        assert "http" not in text


def test_likeness_of_known_pictures() -> None:
    rng = np.random.default_rng(0)
    right = rng.integers(0, 256, (40, 50)).astype(np.float64)
    assert psnr(right, right, 255) == float("inf")
    assert psnr(right + 5, right, 255) == pytest.approx(20 * np.log10(255 / 5))
    assert ssim(right, right, 255) == pytest.approx(1)
    flat, lighter = np.full((20, 20), 100.0), np.full((20, 20), 120.0)
    c1 = (0.01 * 255) ** 2
    expected = (2 * 100 * 120 + c1) / (100**2 + 120**2 + c1)
    assert ssim(lighter, flat, 255) == pytest.approx(expected)


def test_the_busiest_square_is_where_two_images_differ() -> None:
    one = np.zeros((60, 80, 3), np.uint8)
    other = one.copy()
    other[30:40, 50:60] = 9
    left, top, right, bottom = busiest(one, other, 16)
    assert left <= 50 <= 59 < right
    assert top <= 30 <= 39 < bottom
    assert busiest(one, other, 100) == (0, 0, 80, 60)
