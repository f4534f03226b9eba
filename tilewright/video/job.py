"""What is decided before a film's first picture: plain values, the same for every process at it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from tilewright.video.analysis.record import Survey
from tilewright.video.codecs import Coding
from tilewright.video.look import Look
from tilewright.video.source import Film, described
from tilewright.video.stages.contract import Stage, hides
from tilewright.wording import counted

_SAID = ("what", "rate", "sigma", "amount", "size", "dtype", "score")
_TOLD = 12  # pictures whose times are told one by one


def settings(stage: Stage) -> str:
    """What a stage was told, as `amount 0.6, `; "" where that is nothing."""
    one = getattr(stage, "stage", stage)  # of those that work in some scenes alone
    values = {name: getattr(one, name, None) for name in _SAID}
    if said := getattr(one, "said", ""):
        return f"{said}, "
    if file := getattr(one, "model", ""):
        values = {"model": Path(file).name}
    if classes := getattr(one, "classes", ()):
        values["classes"] = " ".join(classes)
    said = [f"{name} {value}" for name, value in values.items() if value is not None]
    said += [] if one is stage else ["in some scenes"]
    return "".join(f"{one}, " for one in said)


@dataclass(frozen=True, slots=True)
class Job:
    """All that is decided before the first picture.

    looks    of the pictures before each stage, and after the last
    bounds   numbers of the source's first picture of every chunk
    shown    when pictures of the new film are, rising, in units of the coding's time base
    survey   what was seen of the film, where a stage has to know all of it
    detections  the file of what is found in it, where one is asked for
    """

    film: Film
    out: Path
    stages: tuple[Stage, ...]
    coding: Coding
    looks: tuple[Look, ...]
    bounds: tuple[int, ...]
    shown: tuple[int, ...]
    survey: Survey | None = None
    detections: Path | None = None

    @property
    def hidden(self) -> bool:
        """Whether no picture from before the stages may leave the film."""
        return hides(self.stages)

    def pictures(self, number: int) -> int:
        """How many pictures of the new film a chunk has, where none is lost."""
        begin, end = (self._place(self.time(at)) for at in (number, number + 1))
        return end - (begin if number else 0)

    def _place(self, time: Fraction | None) -> int:
        """How many pictures of the new film come before a time; all of them before None."""
        if time is None:
            return len(self.shown)
        return bisect_left(self.shown, time / self.coding.time_base)

    def first(self, number: int) -> int:
        """The number of a chunk's first picture; after the last chunk, how many there are."""
        return self.bounds[number] if number < len(self.bounds) else len(self.film.times)

    def time(self, number: int) -> Fraction | None:
        """When a chunk begins, in seconds; None after the last."""
        if number >= len(self.bounds):
            return None
        return self.film.times[self.bounds[number]] * self.film.time_base

    def stretch(self, first: int, count: int) -> tuple[Job, int]:
        """The same with some pictures as a chunk of their own, and that chunk's number."""
        bounds = tuple(sorted({0, first, first + count} - {len(self.film.times)}))
        return replace(self, bounds=bounds), bounds.index(first)

    def lines(self) -> list[str]:
        """What would be done, a line each."""
        steps = [
            f"{stage.name}: {settings(stage)}{before.said()} -> {after.said()}"
            for stage, before, after in zip(self.stages, self.looks, self.looks[1:], strict=False)
        ]
        own = len(self.shown) == len(self.film.times)
        look = self.looks[-1].said() + ("" if own else f", {counted(len(self.shown), 'picture')}")
        coded = f"{self.coding.codec}, crf {self.coding.crf}" if self.coding.crf else "lossless"
        return [
            f"{self.film.path}: {described(self.film)}",
            *(steps or ["no stage: every picture stays as it is"]),
            f"{self.out}: {look}, {coded}, {counted(len(self.bounds), 'chunk')}",
        ]


@dataclass(frozen=True, slots=True)
class Enhanced:
    """A film that was made.

    frames   pictures in it
    kept     of them, those that an earlier run had left
    damaged  packets of the source that could not be decoded
    seconds  that this run took
    worked   seconds that each part worked, beside the others
    notes    what stages told of pictures, and when those are shown, in seconds
    found    how many things of each class were found, as `ball: seen 40 times, 2 tracks`
    """

    out: Path
    frames: int
    kept: int
    damaged: int
    seconds: float
    worked: Mapping[str, float]
    notes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    found: tuple[str, ...] = ()

    def told(self) -> list[tuple[str, str]]:
        """Those notes: words, and of how many pictures, at which times."""
        return [(words, _when(times)) for words, times in self.notes.items()]


def _when(times: Sequence[float]) -> str:
    """How many pictures, and the first of them one by one."""
    shown = ", ".join(f"{time:.2f}" for time in times[:_TOLD])
    more = f" and {len(times) - _TOLD} more, to {times[-1]:.2f}" if len(times) > _TOLD else ""
    return f"{counted(len(times), 'picture')}, at {shown}{more} s"
