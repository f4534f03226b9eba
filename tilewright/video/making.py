"""`enhance`: a film in, a film out; nothing of it lost, no work done twice.

planned   reads the film's facts, asks codec, container and stages, refuses by name; pure
made      chunk after chunk into the journal: decode, stages and encoder side by side
finished  chunks and copied streams into one file, read again, compared, then named
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

from tilewright.errors import ArgumentError, FileError
from tilewright.files.whole import check_writable, path_of
from tilewright.inputs.devices import host
from tilewright.version import __version__
from tilewright.video import chunk, codecs
from tilewright.video.assemble import Made, assemble, rehearsed, verified
from tilewright.video.codecs import Coding
from tilewright.video.decode import Damage, decoded
from tilewright.video.flow import Clock, ahead, spread, timed
from tilewright.video.journal import Journal, begun, mark, recalled
from tilewright.video.look import Frame, Look
from tilewright.video.pyav import SUFFIXES, pyav
from tilewright.video.source import Film, described, film
from tilewright.video.stages.contract import Stage, looks, recipe, windows
from tilewright.wording import PATH, counted, short

CHUNK = 120  # pictures: what a kill costs at most, and a key frame each


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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a film is.

    done, total  pictures; those that an earlier run left are among `done`
    rate, left   pictures a second, and the seconds that the others will take
    slowest      the part that holds the others back
    """

    done: int
    total: int
    rate: float
    left: float
    slowest: str


@dataclass(frozen=True, slots=True)
class Enhanced:
    """A film that was made.

    frames   pictures in it
    kept     of them, those that an earlier run had left
    damaged  packets of the source that could not be decoded
    seconds  that this run took
    worked   seconds that each part worked, beside the others
    """

    out: Path
    frames: int
    kept: int
    damaged: int
    seconds: float
    worked: Mapping[str, float]


def enhance(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    stages: Sequence[Stage] = (),
    *,
    codec: str | None = None,
    crf: int | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Enhanced:
    """Make a film out of another: every picture through the stages, all else copied.

    Time stamps, sound, subtitles, chapters, attachments, metadata, colours, rotation and sample
    aspect stay what they are. Killed and called again it goes on where it was.

    Args:
        source, out: films; `out` as .mp4, .m4v, .mov, .mkv or .webm.
        stages: what is done to pictures, in this order; none copies them.
        codec: "h264", "h265", "av1", "vp9" or "ffv1"; None is vp9 for .webm, else h264.
        crf: the encoder's quality, the less the better; None is its usual one.
        overwrite: replace `out` where it exists.
        progress: called after every picture.

    Raises:
        ArgumentError: a codec, container or stage that does not take the film.
        FileError: a source that cannot be read, an `out` that exists or cannot be written.
        DeviceError: PyAV is not installed.
    """
    job = planned(source, out, stages, codec=codec, crf=crf, overwrite=overwrite)
    return made(job, progress)


def planned(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    stages: Sequence[Stage] = (),
    *,
    codec: str | None = None,
    crf: int | None = None,
    overwrite: bool = False,
) -> Job:
    """What `enhance` with these arguments would do; nothing is written. Raises what it does."""
    path, target = path_of(source, "source"), path_of(out, "out")
    _check_out(path, target, overwrite)
    found = film(path, "source")
    passed = looks(stages, found.look)
    name = codec or ("vp9" if target.suffix.lower() == ".webm" else "h264")
    codecs.checked(name, crf, passed[-1], target.suffix.lower())
    coding = Coding(
        codec=name,
        crf=codecs.CODECS[name].crf if crf is None else crf,
        threads=host().compute_units,
        rate=found.rate,
        time_base=found.time_base,
    )
    bounds = tuple(range(0, len(found.times), CHUNK))
    job = Job(found, target, tuple(stages), coding, passed, bounds)
    rehearsed(found, Made(passed[-1], coding), target)
    check_writable(target, "out")
    return job


def _check_out(source: Path, out: Path, overwrite: bool) -> None:
    label = f"out={short(str(out), PATH)}"
    if out.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"{label}: suffix {out.suffix!r}; accepted are {', '.join(SUFFIXES)}")
    if out.exists():
        if source.exists() and out.samefile(source):
            raise ArgumentError(f"{label}: is the source itself; accepted is another file")
        if not overwrite:
            raise FileError(f"{label}: exists; accepted is another name, or overwrite")


def made(job: Job, progress: Callable[[Progress], None] | None = None) -> Enhanced:
    """Do what was planned."""
    begin = perf_counter()
    for lost in job.film.unkept:
        warnings.warn(f"{lost}: not kept, as no encoder here takes it", stacklevel=3)
    job, wanted = _recalled(job)
    with begun(job.out, wanted) as journal:
        run = _Run(job, journal, progress)
        run.chunks()
        heads = journal.done(len(job.bounds))
        _finished(job, journal, heads)
        damaged = sum(head.damaged for head in heads.values())
        frames = sum(head.frames for head in heads.values())
        if missing := len(job.film.times) - frames:
            warnings.warn(
                f"{counted(missing, 'picture')} of the source could not be decoded", stacklevel=3
            )
        seconds = perf_counter() - begin
        return Enhanced(job.out, frames, run.kept, damaged, seconds, run.clock.seconds)


def _recalled(job: Job) -> tuple[Job, dict[str, Any]]:
    """The job with as many threads as an earlier run's encoder had, as bits depend on them."""
    recipe_now = _recipe(job)
    before = recalled(job.out)
    threads = before.get("coding", {}).get("threads")
    if isinstance(threads, int) and before | {"coding": None} == recipe_now | {"coding": None}:
        again = replace(job, coding=replace(job.coding, threads=threads))
        if _recipe(again) == before:
            return again, before
    return job, recipe_now


def _recipe(job: Job) -> dict[str, Any]:
    """All that decides the film's bits, as JSON has it."""
    return {
        "source": mark(job.film.path),
        "stages": recipe(job.stages),
        "coding": {
            key: str(one) if isinstance(one, Fraction) else one
            for key, one in asdict(job.coding).items()
        },
        "chunk": CHUNK,
        "versions": [__version__, pyav().__version__],
    }


class _Run:
    """Chunks that are missing, made one after the other."""

    def __init__(
        self, job: Job, journal: Journal, progress: Callable[[Progress], None] | None
    ) -> None:
        self.job, self.journal, self.report = job, journal, progress
        self.clock = Clock()
        heads = journal.done(len(job.bounds))
        self.missing = [n for n in range(len(job.bounds)) if n not in heads]
        self.kept = sum(head.frames for head in heads.values())
        self.done = self.kept
        self.works = [
            [stage.bound(look) for _ in range(stage.workers)]
            for stage, look in zip(job.stages, job.looks, strict=False)
            if self.missing
        ]
        self.begin = perf_counter()

    def chunks(self) -> None:
        """Make all that are missing, neighbours in one go."""
        stretch: list[int] = []
        for number in self.missing:
            if stretch and number != stretch[-1] + 1:
                self._stretch(stretch)
                stretch = []
            stretch.append(number)
        if stretch:
            self._stretch(stretch)

    def _stretch(self, numbers: Sequence[int]) -> None:
        """Chunks that follow each other, decoded without a break."""
        damage = Damage()
        with closing(self._pictures(numbers, damage)) as pictures:
            cut = _Cut(pictures)
            for number in numbers:
                frames = self._counted(cut.until(self._time(number + 1)))
                path = self.journal.path(number)
                chunk.encode(path, frames, self.job.coding, self.job.looks[-1], damage.taken)

    def _pictures(self, numbers: Sequence[int], damage: Damage) -> Generator[Frame, None, None]:
        """Pictures of some chunks through decoder and stages, each of these in its own thread."""
        found, stages = self.job.film, self.job.stages
        first = self.job.bounds[numbers[0]] - sum(stage.before for stage in stages)
        end = self._bound(numbers[-1] + 1) + sum(stage.after for stage in stages)
        times = found.times
        source = decoded(
            found,
            times[first] if first > 0 else None,
            times[end] if end < len(times) else None,
            damage,
        )
        start = self._time(numbers[0]) if numbers[0] else None
        with ExitStack() as ended:  # the last part first, as it is who asks the one before
            pictures = ahead(source, "decode", self.clock)
            ended.callback(pictures.close)
            for stage, works in zip(stages, self.works, strict=True):
                given = windows(stage, pictures)
                pictures = ahead(spread(works, given, stage.name, self.clock), "", self.clock)
                ended.callback(pictures.close)
            for frame in timed(pictures, "encode", self.clock):
                if start is None or frame.time >= start:
                    yield frame

    def _bound(self, number: int) -> int:
        bounds = self.job.bounds
        return bounds[number] if number < len(bounds) else len(self.job.film.times)

    def _time(self, number: int) -> Fraction | None:
        """When a chunk begins; None after the last."""
        if number >= len(self.job.bounds):
            return None
        return self.job.film.times[self.job.bounds[number]] * self.job.film.time_base

    def _counted(self, pictures: Iterator[Frame]) -> Generator[Frame, None, None]:
        look = self.job.looks[-1]
        for frame in pictures:
            if frame.look.shapes != look.shapes if look.kind != "packed" else False:
                raise FileError(
                    f"source: the picture at {float(frame.time):.3f} s is {frame.look.said()};"
                    f" accepted are films of one size, here {look.said()}"
                )
            begin = perf_counter()
            yield frame
            self.clock.add("encode", perf_counter() - begin)
            self.done += 1
            if self.report is not None:
                self.report(self._progress())

    def _progress(self) -> Progress:
        total = len(self.job.film.times)
        rate = (self.done - self.kept) / max(perf_counter() - self.begin, 1e-9)
        return Progress(
            self.done, total, rate, max(0, total - self.done) / rate, self.clock.slowest
        )


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


def _finished(job: Job, journal: Journal, heads: Mapping[int, chunk.Head]) -> None:
    """The film under its name, once what was written is what it should be."""
    parts = [journal.path(number) for number in range(len(job.bounds))]
    if len({head.extra for head in heads.values() if head.frames}) > 1:
        raise FileError(
            f"out={short(str(job.out), PATH)}: its chunks' headers differ; accepted is to remove"
            f" {journal.folder} and begin anew"
        )
    form = Made(job.looks[-1], job.coding)
    whole = journal.folder / f"whole{job.out.suffix}"
    assemble(job.film, form, parts, whole)
    expected = [packet.pts for part in parts for packet in chunk.packets(part)]
    verified(job.film, form, expected, whole)
    with whole.open("rb") as file:
        os.fsync(file.fileno())
    whole.replace(job.out)
    journal.removed()
