"""How long a film would take, how large it would be, and what memory: tried on a few pictures.

Short stretches of the film itself go through decoder, stages and encoder, as all of it would:
rates of a processor that others use too are what they are just then, and how small an encoder makes
pictures only it can say. Chunks have a key picture each, so these and others are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tilewright.facts import machine
from tilewright.video import chunk
from tilewright.video.flow import Clock
from tilewright.video.job import Job
from tilewright.video.line import Line
from tilewright.video.pyav import reading

_FIRST, _OTHERS = 8, 24  # pictures of the first stretch, and of those after it
_PLACES = (0.5, 0.25, 0.75)
_BUDGET = 8.0  # seconds after which no further stretch is begun


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a film would take in this process.

    tried    pictures that were made to know it
    seconds  for all of it
    bytes    of the new film; meanwhile its parts take as much beside it
    memory   the most that this process held while it tried, in bytes; 0 where nobody tells
    parts    seconds a picture, by part; parts work beside each other
    """

    tried: int
    seconds: float
    bytes: int
    memory: int
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Tried:
    pictures: int
    seconds: float
    keys: tuple[int, ...]
    others: tuple[int, ...]
    parts: Mapping[str, float]


def forecast(job: Job) -> Forecast:
    """Try some pictures of a job, in a folder that is gone afterwards. Raises what `made` does."""
    begin = perf_counter()
    line = Line(job, Clock())
    ready = perf_counter() - begin
    tried: list[_Tried] = []
    with TemporaryDirectory() as folder:
        for first, count in _stretches(len(job.film.times)):
            if tried and perf_counter() - begin - ready > _BUDGET:
                break
            tried.append(_stretch(line, job, first, count, Path(folder) / "tried.chunk"))
    warm = tried[1:] or tried  # what is used for the first time is slower once
    pictures = sum(one.pictures for one in warm)
    each = sum(one.seconds for one in warm) / pictures
    return Forecast(
        tried=sum(one.pictures for one in tried),
        seconds=ready + each * len(job.shown),
        bytes=_size(job, tried) + _copied(job),
        memory=machine.most_memory(),
        parts={
            name: sum(one.parts.get(name, 0.0) for one in warm) / pictures for name in warm[0].parts
        },
    )


def _stretches(total: int) -> Iterator[tuple[int, int]]:
    """Where each begins, and how many pictures it has; a short film is tried whole."""
    if total < 4 * _OTHERS:
        yield 0, min(total, _FIRST)
        yield 0, min(total, 2 * _OTHERS)
        return
    for place in _PLACES:
        count = _OTHERS if place != _PLACES[0] else _FIRST
        yield min(int(place * total), total - count), count


def _stretch(line: Line, job: Job, first: int, count: int, path: Path) -> _Tried:
    """Pictures made as one chunk; the time counts from the first that comes to the encoder."""
    line.job, number = job.stretch(first, count)
    line.clock = Clock()
    reached: list[float] = []
    line.chunks([number], lambda _: path, lambda: reached.append(perf_counter()))
    seconds = perf_counter() - reached[0] if len(reached) > 1 else 0.0
    made = list(chunk.packets(path))
    return _Tried(
        len(made),
        seconds * len(made) / max(1, len(made) - 1),
        tuple(len(one.content) for one in made if one.key),
        tuple(len(one.content) for one in made if not one.key),
        line.clock.seconds,
    )


def _size(job: Job, tried: list[_Tried]) -> int:
    """Bytes of all pictures: of each chunk one is a key."""
    keys = [size for one in tried for size in one.keys]
    others = [size for one in tried for size in one.others]
    total, chunks = len(job.shown), len(job.bounds)
    if not others:
        return round(total * sum(keys) / len(keys))
    mean = sum(others) / len(others)
    return round(chunks * sum(keys) / len(keys) + (total - chunks) * mean)


def _copied(job: Job) -> int:
    """Bytes of the packets that are copied."""
    with reading(job.film.path, "source") as container:
        return sum(p.size for p in container.demux() if p.stream_index != job.film.index)
