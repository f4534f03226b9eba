"""Chunks made: decoder, stages and encoder side by side, ready for any chunks of a job.

Chunks that follow each other are decoded in one go where nothing is damaged. What a chunk holds
depends on the job and its number alone, whoever makes it, and whatever was made before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path
from time import perf_counter

from tilewright.video import chunk
from tilewright.video.alike import checked
from tilewright.video.decode import Damage
from tilewright.video.flow import Clock, ahead, spread
from tilewright.video.job import Job
from tilewright.video.look import Frame
from tilewright.video.stages.contract import windows
from tilewright.video.steady import Stretch


class Line:
    """A job's stages, bound; a worker each has a picture at a time.

    most  workers of one stage; None for as many as it asks for
    """

    def __init__(self, job: Job, clock: Clock, most: int | None = None) -> None:
        self.job, self.clock, self._last = job, clock, 0.0
        self._works = [
            [stage.bound(look) for _ in range(min(stage.workers, most or stage.workers))]
            for stage, look in zip(job.stages, job.looks, strict=False)
        ]

    def chunks(
        self,
        numbers: Sequence[int],
        path: Callable[[int], Path],
        counted: Callable[[], None] = lambda: None,
    ) -> None:
        """Make some chunks, rising, as files; `counted` is called after every picture."""
        for stretch in _stretches(numbers):
            while stretch:
                stretch = stretch[self._in_one_go(stretch, path, counted) :]

    def _in_one_go(
        self, numbers: Sequence[int], path: Callable[[int], Path], counted: Callable[[], None]
    ) -> int:
        """Make chunks that follow each other, as many as can be decoded so; gives their number."""
        damage = Damage()
        source = self._source(numbers, damage)
        with closing(self.pictures(numbers, source)) as pictures:
            cut = _Cut(pictures)
            for place, number in enumerate(numbers):
                frames = self._encoding(cut.until(self.job.time(number + 1)), counted)
                coding, look = self.job.coding, self.job.looks[-1]
                chunk.encode(path(number), frames, coding, look, damage.taken)
                self.clock.add("encode", perf_counter() - self._last)
                if place == source.last:
                    break
        return place + 1

    def _source(self, numbers: Sequence[int], damage: Damage) -> Stretch:
        """What is decoded for chunks: stages look at pictures round them."""
        before = sum(stage.before for stage in self.job.stages)
        after = sum(stage.after for stage in self.job.stages)
        most = len(self.job.film.times)
        ranges = [
            (max(0, self.job.first(n) - before), min(most, self.job.first(n + 1) + after))
            for n in numbers
        ]
        return Stretch(self.job.film, ranges, damage)

    def pictures(
        self, numbers: Sequence[int], source: Stretch | None = None
    ) -> Generator[Frame, None, None]:
        """Pictures of chunks that follow each other, through decoder and stages, a thread each."""
        found, stages = self.job.film, self.job.stages
        source = source or self._source(numbers, Damage())
        start = self.job.time(numbers[0]) if numbers[0] else None
        with ExitStack() as ended:  # the last part first, as it is who asks the one before
            pictures = ahead(checked(found, source.pictures()), "decode", self.clock)
            ended.callback(pictures.close)
            for stage, works in zip(stages, self._works, strict=True):
                given = windows(stage, pictures)
                pictures = ahead(spread(works, given, stage.name, self.clock), "", self.clock)
                ended.callback(pictures.close)
            for frame in pictures:
                if start is None or frame.time >= start:
                    yield frame

    def _encoding(
        self, pictures: Iterator[Frame], counted: Callable[[], None]
    ) -> Generator[Frame, None, None]:
        for frame in pictures:
            begin = perf_counter()
            yield frame
            self.clock.add("encode", perf_counter() - begin)
            counted()
        self._last = perf_counter()  # what the encoder holds back it does after this


def _stretches(numbers: Sequence[int]) -> Iterator[list[int]]:
    """Numbers that follow each other without a break."""
    stretch: list[int] = []
    for number in numbers:
        if stretch and number != stretch[-1] + 1:
            yield stretch
            stretch = []
        stretch.append(number)
    if stretch:
        yield stretch


class _Cut:
    """Pictures in stretches, none lost between two of them."""

    def __init__(self, pictures: Iterator[Frame]) -> None:
        self._pictures = pictures
        self._held: Frame | None = None

    def until(self, end: Fraction | None) -> Generator[Frame, None, None]:
        """Those before a time; of None all that are left."""
        while True:
            frame = self._held if self._held is not None else next(self._pictures, None)
            self._held = frame
            if frame is None or (end is not None and frame.time >= end):
                return
            self._held = None
            yield frame
