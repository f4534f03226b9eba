"""The film of `tilewright demo`: a clip that the package brings along, made twice as large."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import tilewright
from tilewright.cli import bars
from tilewright.video.making import made, planned
from tilewright.video.page import asked
from tilewright.video.preview import preview
from tilewright.video.stages.sharpen import Sharpen
from tilewright.video.stages.upscale import Upscale

CLIP = Path(tilewright.__file__).parent / "video" / "clips" / "flower.mp4"
_NEEDED = ("av", "numba", "PIL")


def missing() -> str:
    """Why there is no film; "" where all is there."""
    absent = [name for name in _NEEDED if find_spec(name) is None]
    return f"no film without {', '.join(absent)}: pip install 'tilewright[video]'" if absent else ""


def film(out: Path, size: str) -> Iterator[str]:
    """Make it, with a picture of before and after, and a page where Jinja2 is there."""
    large, page = out / "flower-large.mp4", out / "flower.html"
    job = planned(CLIP, large, (Upscale(size), Sharpen(0.3)), overwrite=True)
    told = asked(page if find_spec("jinja2") else None, None, job)
    with bars.working("making a film; kernels are compiled once, and kept"):
        done = made(job)
        seen = preview(job)
        if told is not None:
            told.write(done)
    before, after = job.looks[0], job.looks[-1]
    rate = done.frames / done.seconds
    yield f"{done.frames} pictures, {before.said()} -> {after.said()}, {rate:.1f} a second"
    yield "worked: " + ", ".join(f"{name} {spent:.2f} s" for name, spent in done.worked.items())
    yield f"wrote {large}"
    yield f"wrote {seen}: parts of three pictures, before and after"
    if told is not None:
        yield f"wrote {page}: open it in a browser"
