"""What is decided before a film's first picture: plain values, the same for every process at it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tilewright.video.codecs import Coding
from tilewright.video.look import Look
from tilewright.video.source import Film, described
from tilewright.video.stages.contract import Stage
from tilewright.wording import counted


@dataclass(frozen=True, slots=True)
class Job:
    """All that is decided before the first picture.

    looks    of the pictures before each stage, and after the last
    bounds   numbers of the first picture of every chunk
    """

    film: Film
    out: Path
    stages: tuple[Stage, ...]
    coding: Coding
    looks: tuple[Look, ...]
    bounds: tuple[int, ...]

    def pictures(self, number: int) -> int:
        """How many pictures of the source a chunk begins with."""
        return self.first(number + 1) - self.first(number)

    def first(self, number: int) -> int:
        """The number of a chunk's first picture; after the last chunk, how many there are."""
        return self.bounds[number] if number < len(self.bounds) else len(self.film.times)

    def time(self, number: int) -> Fraction | None:
        """When a chunk begins, in seconds; None after the last."""
        if number >= len(self.bounds):
            return None
        return self.film.times[self.bounds[number]] * self.film.time_base

    def lines(self) -> list[str]:
        """What would be done, a line each."""
        steps = [
            f"{stage.name}: {before.said()} -> {after.said()}"
            for stage, before, after in zip(self.stages, self.looks, self.looks[1:], strict=False)
        ]
        coded = f"{self.coding.codec}, crf {self.coding.crf}" if self.coding.crf else "lossless"
        return [
            f"{self.film.path}: {described(self.film)}",
            *(steps or ["no stage: every picture stays as it is"]),
            f"{self.out}: {self.looks[-1].said()}, {coded}, {counted(len(self.bounds), 'chunk')}",
        ]
