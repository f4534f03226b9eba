"""One page about a film that was made: pictures before and after, how like, times, licences.

Everything is in the file: images, style and script; it asks for nothing, and a browser is told to
let it ask for nothing. Of a film in which somebody is made unseen no picture from before is in it,
nor any of a reference. `page.html` beside this file is how it looks.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import models
from tilewright.errors import ArgumentError, DeviceError
from tilewright.files.whole import check_writable, path_of, replacing
from tilewright.version import __version__
from tilewright.video import compare
from tilewright.video.advice import advised, noted
from tilewright.video.analysis.survey import surveyed
from tilewright.video.compare import Seen
from tilewright.video.job import Enhanced, Job, settings
from tilewright.video.source import Film, described, film
from tilewright.video.stills import pillow
from tilewright.wording import PATH, in_one_line, short

_TEMPLATE = Path(__file__).with_name("page.html")
_WIDE, _HIGH = 640.0, 120.0  # of the curve
_LEAST_WIDE = 640  # pixels of a page that a picture before and after takes, though it has fewer
_SOURCE = (
    "Against the source these figures say how much was changed, not how good it is: stages that do"
    " more have fewer dB. A reference (--reference) tells how right it is."
)
_REFERENCE = "More dB, and an SSIM nearer to 1, are nearer to the reference."


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was asked for, and can be written. Made by `asked`."""

    path: Path
    job: Job
    reference: Film | None

    def write(self, done: Enhanced) -> None:
        """Look at the film that was made, and write the page."""
        out = film(done.out, "out")
        found = compare.seen(self.job.film, out, self.reference)
        hidden = self.job.hidden
        text = _template().render(
            version=__version__,
            title=self.job.film.path.name,
            facts=list(_facts(self.job, done, out)),
            told=list(_told(self.job)),
            against="the reference" if self.reference else "the source, at the source's size",
            mean=_mean(found),
            meaning=_REFERENCE if self.reference else _SOURCE,
            curve=_curve(found),
            hidden=hidden,
            shown=[_shown(name, one, hidden) for name, one in compare.chosen(found).items()],
            looked_at=len(found),
            parts=_parts(done.worked),
            cards=_cards(self.job),
        )
        with replacing(self.path, "report") as temporary:
            temporary.write_text(text, encoding="utf-8")


def asked(
    path: str | os.PathLike[str] | None,
    reference: str | os.PathLike[str] | None,
    job: Job,
) -> Page | None:
    """What a page needs, read and asked before the film is made; None where nobody wants one.

    Raises FileError where the page cannot be written or the reference is no film; ArgumentError
    where that has another size than the film will have; DeviceError where Jinja2 or Pillow is
    absent.
    """
    target = check_asked(path, reference)
    if target is None:
        return None
    check_writable(target, "report")
    _template()
    pillow()
    found = None if reference is None else film(path_of(reference, "reference"), "reference")
    if found is not None:
        compare.check_reference(found, job.looks[-1], "reference")
    return Page(target, job, found)


def check_asked(
    path: str | os.PathLike[str] | None, reference: str | os.PathLike[str] | None
) -> Path | None:
    """Where a page goes; None where nobody wants one. Raises ArgumentError for other names."""
    if path is None:
        if reference is not None:
            raise ArgumentError("reference: without a report; accepted is a report beside it")
        return None
    target = path_of(path, "report")
    if target.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"report={short(str(target), PATH)}: accepted are .html and .htm")
    return target


def _template() -> Any:
    try:
        from jinja2 import Environment
    except ImportError as error:
        raise DeviceError(
            f"a report needs Jinja2 ({in_one_line(error)}); accepted is"
            " pip install 'tilewright[report]'"
        ) from None
    made = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return made.from_string(_TEMPLATE.read_text(encoding="utf-8"))


def _facts(job: Job, done: Enhanced, out: Film) -> Iterator[tuple[str, str]]:
    yield "source", f"{job.film.path.name}: {described(job.film)}, {_size(job.film.path)}"
    for stage, before, after in zip(job.stages, job.looks, job.looks[1:], strict=False):
        yield stage.name, f"{settings(stage)}{before.said()} → {after.said()}"
    crf = f", crf {job.coding.crf}" if job.coding.crf else ""
    yield "film", f"{done.out.name}: {described(out)}{crf}, {_size(done.out)}"
    fresh = done.frames - done.kept
    rate = f", {fresh / done.seconds:.1f} a second" if fresh else ""
    kept = f", {done.kept} kept from an earlier run" if done.kept else ""
    damage = f", {done.damaged} damaged packets" if done.damaged else ""
    yield "made", f"{fresh} pictures in {done.seconds:.1f} s{rate}{kept}{damage}"
    yield from (("found", one) for one in done.found)
    yield from done.told()


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


def _shown(name: str, one: Seen, hidden: bool) -> dict[str, Any]:
    """A picture before and after; of a film that hides something, after alone."""
    before, after = compare.pair_of_images(one)
    crops = compare.crops(one, hidden=hidden)
    return {
        "name": name,
        "time": f"{float(one.after.time):.2f} s",
        "likeness": _likeness(one.psnr, one.ssim),
        "wide": max(_LEAST_WIDE, after.width),
        "before": "" if hidden else compare.inline(before),
        "after": compare.inline(after),
        "crops": [(what, compare.inline(cut, exact=True)) for what, cut in crops],
    }


def _likeness(decibels: float, similarity: float) -> str:
    first = "equal" if math.isinf(decibels) else f"PSNR {decibels:.2f} dB"
    return first if math.isnan(similarity) else f"{first}, SSIM {similarity:.4f}"


def _mean(found: Sequence[Seen]) -> str:
    count = len(found)
    return _likeness(sum(one.psnr for one in found) / count, sum(one.ssim for one in found) / count)


def _curve(found: Sequence[Seen]) -> dict[str, str]:
    """PSNR over time, as points of a line."""
    decibels = [min(one.psnr, 99.0) for one in found]
    low, high = min(decibels), max(decibels)
    across, up = _WIDE / max(1, len(found) - 1), _HIGH / max(high - low, 1e-9)
    points = (f"{n * across:.1f},{_HIGH - (d - low) * up:.1f}" for n, d in enumerate(decibels))
    first, last = (f"{float(one.after.time):.2f}" for one in (found[0], found[-1]))
    ends = {"first": first, "last": last, "low": f"{low:.2f}", "high": f"{high:.2f}"}
    return {"points": " ".join(points), **ends}


def _parts(worked: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Name, seconds, and the part of the longest's in hundredths."""
    most = max(worked.values(), default=0.0) or 1.0
    return [(name, seconds, 100 * seconds / most) for name, seconds in worked.items()]


def _told(job: Job) -> Iterator[str]:
    """What `analyse` advises for the source, and why."""
    look = job.film.look
    if look.kind not in ("yuv", "grey"):
        yield f"nothing: samples are {look.format}, without a plane of luma to look at"
        return
    survey = job.survey or surveyed(job.film)
    scenes, done = len(survey.starts), {stage.name for stage in job.stages}
    advice = advised(survey, look)
    for one in advice:
        where = "" if len(one.scenes) == scenes else f", in {len(one.scenes)} of {scenes} scenes"
        yield f"{one.stage}: {one.reason}{where}{'; done' if one.stage in done else ''}"
    yield from noted(survey)
    if not advice:
        yield "no stage: nothing that was measured is over its limit"


def _cards(job: Job) -> list[tuple[str, str]]:
    """What networks that were brought along are and learned from, their licences: as plain text."""
    stages = [getattr(stage, "stage", stage) for stage in job.stages]  # those of some scenes alone
    names = dict.fromkeys(name for stage in stages if (name := getattr(stage, "card", "")))
    return [(name, re.sub(r"https?://", "", models.card(name))) for name in names]
