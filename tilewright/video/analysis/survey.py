"""A film looked at once, from the first picture to the last: every cut, some pictures closely."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, FileError
from tilewright.video.analysis import measures
from tilewright.video.analysis.cuts import Step, cuts, step, tiny
from tilewright.video.analysis.light import tones, traits
from tilewright.video.analysis.moving import moved
from tilewright.video.analysis.noise import noise
from tilewright.video.analysis.record import Sample, Survey
from tilewright.video.analysis.small import small
from tilewright.video.analysis.text import Marks, marks, static
from tilewright.video.decode import decoded
from tilewright.video.look import Frame
from tilewright.video.source import Film
from tilewright.video.tables import LIGHT, lightness
from tilewright.wording import PATH, short

EVERY = 0.5  # seconds between pictures that are looked at closely


def surveyed(film: Film, progress: Callable[[int, int], None] | None = None) -> Survey:
    """Look at a film; `progress` is called with pictures done and all.

    Raises ArgumentError for pictures without a plane of luma, FileError where none can be decoded.
    """
    if film.look.kind not in ("yuv", "grey"):
        raise ArgumentError(
            f"source: samples are {film.look.format}; accepted are planes of luma, as yuv420p, gray"
        )
    steps: list[Step] = []
    times: list[float] = []
    samples: list[tuple[int, Sample]] = []
    before, due, last = None, 0.0, None
    waiting: NDArray | None = None  # the picture that was measured last, until the next one comes
    with closing(decoded(film)) as pictures:
        for number, frame in enumerate(pictures):
            now, time = tiny(frame), float(frame.time)
            times.append(time)
            if before is not None and before.shape == now.shape:
                steps.append(step(before, now))
            elif before is not None:
                steps.append(Step(LIGHT, 0.0))
            if waiting is not None and not steps[-1].large:
                at, found = samples[-1]
                samples[-1] = at, replace(found, motion=_motion(waiting, frame))
            waiting = None
            if number == 0 or time >= due or steps[-1].large:
                found, last = sampled(frame, last)
                samples.append((number, found))
                waiting, due = small(lightness(frame)), time + EVERY
            before = now
            if progress is not None:
                progress(number + 1, len(film.times))
    if not times:
        raise FileError(
            f"source={short(str(film.path), PATH)}: no picture can be decoded; accepted are films"
        )
    return _survey(times, cuts(steps), samples)


def _motion(before: NDArray, frame: Frame) -> float:
    now = small(lightness(frame))
    return moved(before, now) if before.shape == now.shape else 0.0


def sampled(frame: Frame, before: Marks | None = None) -> tuple[Sample, Marks]:
    """One picture, measured, beside the sample before; and what the next one asks of it."""
    luma, codes = lightness(frame), frame.planes[0]
    deviation, now = noise(luma), marks(luma)
    haze = measures.dark_channel(frame)
    found = Sample(
        time=float(frame.time),
        scene=0,
        mean=float(luma.mean()) / LIGHT,
        noise=deviation,
        blocks=measures.blocks(luma),
        blur=measures.blur(luma),
        banding=measures.banding(codes),
        combing=measures.combing(luma),
        haze=haze.share,
        air=haze.air,
        veil=haze.veil,
        screen=measures.screen(codes),
        text=static(before, now),
        tones=tones(luma),
        light=traits(luma, deviation),
    )
    return found, now


def _survey(
    times: list[float], found: tuple[int, ...], samples: list[tuple[int, Sample]]
) -> Survey:
    first = np.array((0, *found))
    scened = tuple(
        replace(one, scene=int(np.searchsorted(first, number, side="right")) - 1)
        for number, one in samples
    )
    return Survey(len(times), found, tuple(times[number] for number in first), scened)
