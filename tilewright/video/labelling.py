"""Boxes proposed for pictures of a film, some a second, for a person to correct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import ArgumentError
from tilewright.video.decode import decoded
from tilewright.video.detection.labels import Labelled
from tilewright.video.detection.things import Found
from tilewright.video.source import Film, film
from tilewright.video.stages.contract import Window
from tilewright.video.stages.detect import Detect

LONGEST = 3600.0


def proposed(
    source: Path,
    stage: Detect,
    every: float,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Labelled]:
    """What a stage finds in a picture of a film every so many seconds, from the first one on.

    Raises ArgumentError for seconds that are none, and what the stage does not take; FileError for
    what is no film.
    """
    if not 0 <= every <= LONGEST:
        raise ArgumentError(
            f"every={every!r}: accepted are 0 (all pictures) to {LONGEST:g} seconds"
        )
    found = film(source, "source")
    stage.turned(found.look)
    return _looked(found, stage, every, progress)


@dataclass(frozen=True, slots=True)
class Summary:
    """How many pictures were looked at, and in how many of them there was each class."""

    pictures: int
    seen: dict[str, int]


def summed(pictures: Iterable[Labelled]) -> Summary:
    """What was found in pictures, by the picture."""
    count, seen = 0, Counter[str]()
    for one in pictures:
        count += 1
        seen.update({thing.kind for thing in one.things})
    return Summary(count, {name: seen[name] for name in sorted(seen)})


def _looked(
    found: Film,
    stage: Detect,
    every: float,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Labelled]:
    work = stage.bound(found.look)
    due = float("-inf")
    with closing(decoded(found)) as pictures:
        for number, frame in enumerate(pictures):
            time = float(frame.time)
            if time >= due - 1e-6:
                due = time + every
                (seen,) = work(Window(frame))
                assert isinstance(seen.found, Found)
                yield Labelled(number, time, seen.found.things)
            if progress is not None:
                progress(number + 1, len(found.times))
