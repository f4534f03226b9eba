"""What would help a film, scene by scene, and why: rules over what was measured.

Limits were set by looking at the clips and photographs that the measures were tried on: JPEG at
quality 40 measures 0.24 and more as blocks, films of low rates 0.05 to 0.2, others below 0.02.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from tilewright import models
from tilewright.files.whole import path_of
from tilewright.video.alike import sampled
from tilewright.video.analysis.record import Sample, Survey
from tilewright.video.analysis.survey import surveyed
from tilewright.video.look import Look
from tilewright.video.source import described, film
from tilewright.video.stages.contract import Stage
from tilewright.video.stages.contrast import Contrast
from tilewright.video.stages.deblock import Deblock
from tilewright.video.stages.dehaze import Dehaze
from tilewright.video.stages.denoise import Denoise
from tilewright.video.stages.during import During
from tilewright.video.stages.low_light import LowLight
from tilewright.video.stages.sharpen import Sharpen
from tilewright.video.stages.ten_bit import TenBit

# The order in which stages serve pictures best.
ORDER = (
    *("deblock", "denoise", "low-light", "dehaze"),
    *("contrast", "detect", "follow", "interpolate", "upscale", "sharpen", "ten-bit", "draw"),
)
# Before all others, in the order in which they are given: a plate is of pictures as they were.
_FIRST = ("matte", "mask", "box", "blur", "background", "alpha")
BLOCKS, NOISE, DARK, HAZE, NARROW, BLUR, BANDS = 0.1, 2.5, 0.25, 0.45, 0.55, 1.6, 2.0
COMBED, DRAWN, SMALL, TEXT, MOTION = 1.0, 0.8, 576, 0.002, 2.0
# What `--auto` can do; what is not here is only said.
MAKERS: Mapping[str, Callable[[], Stage]] = {
    "deblock": Deblock,
    "denoise": Denoise,
    "low-light": partial(LowLight, 0.5),  # all of the way turns what was meant dark grey
    "dehaze": Dehaze,
    "contrast": Contrast,
    "sharpen": Sharpen,
    "ten-bit": TenBit,
}
_NEVER = 1e9  # seconds
_NETS = ("deblock", "denoise")  # those that need a network of the package
_WHOLE = ("ten-bit",)  # of a film, not of scenes: they change what pictures are


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that would help.

    stage   its name
    reason  what was measured, and the limit
    scenes  numbers of the scenes that need it
    """

    stage: str
    reason: str
    scenes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a film is like, and what would help.

    source  its path
    film    what it is, in words
    survey  what was measured
    advice  in the order in which it would be done
    notes   what else is to be known of it
    """

    source: str
    film: str
    survey: Survey
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def analyse(
    source: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> Analysis:
    """Look at a film: cuts, and two pictures a second closely.

    Args:
        source: a film that FFmpeg reads, with a plane of luma.
        progress: called with pictures done and all.

    Raises:
        FileError: a source that cannot be read.
        ArgumentError: pictures without luma.
        DeviceError: PyAV is not installed.
    """
    path = path_of(source, "source")
    found = sampled(film(path, "source"))
    survey = surveyed(found, progress)
    return Analysis(str(path), described(found), survey, advised(survey, found.look), noted(survey))


def typical(samples: Sequence[Sample], measure: str) -> float:
    """The median of a measure over samples."""
    return float(statistics.median(getattr(one, measure) for one in samples))


def advised(survey: Survey, look: Look) -> tuple[Advice, ...]:
    """What would help which scenes; nothing for interlaced films, which stages refuse."""
    if look.interlaced:
        return ()
    reasons: dict[str, dict[int, str]] = {}
    for number in range(len(survey.starts)):
        for name, reason in _needs(survey.scene(number), look):
            reasons.setdefault(name, {})[number] = reason
    return tuple(
        Advice(name, next(iter(reasons[name].values())), tuple(reasons[name]))
        for name in ORDER
        if name in reasons
    )


def _needs(samples: Sequence[Sample], look: Look) -> Iterator[tuple[str, str]]:
    """What one scene needs."""
    get = {name: typical(samples, name) for name in ("mean", "noise", "blocks", "blur", "banding")}
    haze, drawn = typical(samples, "haze"), typical(samples, "screen") > DRAWN
    range_ = statistics.median(one.tones[-2] - one.tones[1] for one in samples)
    dark, clean = get["mean"] < DARK, get["noise"] < NOISE and get["blocks"] < BLOCKS
    if get["blocks"] > BLOCKS and not drawn:
        yield "deblock", f"seams of blocks: {get['blocks']:.2f}, limit {BLOCKS:g}"
    if get["noise"] > NOISE and not drawn:
        yield "denoise", f"noise of deviation {get['noise']:.1f}, limit {NOISE:g}"
    if dark:
        yield "low-light", f"mean light {get['mean']:.2f}, limit {DARK:g}"
    elif haze > HAZE and range_ < 1 - HAZE / 2 and not drawn:
        yield "dehaze", f"the darkest colours hold {haze:.2f} of the light, limit {HAZE:g}"
    elif range_ < NARROW:
        yield "contrast", f"light spans {range_:.2f} of what there is, limit {NARROW:g}"
    if (motion := typical(samples, "motion")) > MOTION:
        yield (
            "interpolate",
            f"things go {motion:.1f} hundredths of the height from picture to picture, limit"
            f" {MOTION:g}; not part of --auto",
        )
    if look.height <= SMALL:
        yield "upscale", f"{look.height} rows, limit {SMALL}; not part of --auto"
    if get["blur"] > BLUR and clean:
        yield "sharpen", f"edges blurred by {get['blur']:.1f} samples, limit {BLUR:g}"
    if get["banding"] > BANDS and look.bits == 8 and not drawn:
        yield "ten-bit", f"steps of ramps: {get['banding']:.1f} a hundred, limit {BANDS:g}"


def noted(survey: Survey) -> tuple[str, ...]:
    """What is no stage's work."""
    samples, found = survey.samples, []
    if (combed := typical(samples, "combing")) > COMBED:
        found.append(f"lines of two moments ({combed:.1f} a hundred): deinterlace it first")
    if (drawn := typical(samples, "screen")) > DRAWN:
        found.append(f"screen content: {drawn:.0%} of samples are as their neighbours")
    if (text := max(one.text for one in samples)) > TEXT:
        found.append(f"text that stands still (title, subtitle, logo): {text:.1%} of the picture")
    return tuple(found)


def with_advised(stages: Sequence[Stage], survey: Survey, look: Look) -> tuple[Stage, ...]:
    """Stages, and those that are advised and can be made, each in its scenes; in good order.

    What was asked for by name is done all through the film.
    """
    asked = {stage.name for stage in stages}
    found = list(stages)
    for one in advised(survey, look):
        if one.stage in asked or not _makeable(one.stage):
            continue
        stage = MAKERS[one.stage]()
        found.append(stage if one.stage in _WHOLE else During(stage, spans(survey, one.scenes)))
    return tuple(sorted(found, key=_place))


def _makeable(name: str) -> bool:
    return name in MAKERS and (name not in _NETS or f"{name}-s" in models.names())


def _place(stage: Stage) -> int:
    if stage.name in _FIRST:
        return -1
    return ORDER.index(stage.name) if stage.name in ORDER else len(ORDER)


def spans(survey: Survey, scenes: Sequence[int]) -> tuple[tuple[float, float], ...]:
    """When scenes begin and end, those that follow each other as one."""
    ends = (*survey.starts[1:], _NEVER)
    found: list[tuple[float, float]] = []
    for number in scenes:
        begin = survey.starts[number]
        if found and found[-1][1] == begin:
            begin = found.pop()[0]
        found.append((begin, ends[number]))
    return tuple(found)
