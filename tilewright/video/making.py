"""`enhance`: a film in, a film out; nothing of it lost, no work done twice.

planned   reads the film's facts, asks codec, container and stages, refuses by name; pure
made      chunk after chunk into the journal: decode, stages and encoder side by side
finished  chunks and copied streams into one file, read again, compared, then named
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

from tilewright.errors import ArgumentError, DeviceError, FileError
from tilewright.files.whole import check_writable, path_of, replacing
from tilewright.inputs.devices import host
from tilewright.version import __version__
from tilewright.video import chunk, codecs
from tilewright.video.advice import with_advised
from tilewright.video.alike import sampled
from tilewright.video.analysis.kept import keep, kept_or_new
from tilewright.video.assemble import assemble, verified
from tilewright.video.codecs import Coding
from tilewright.video.detection import lines
from tilewright.video.flow import Clock
from tilewright.video.job import Enhanced, Job
from tilewright.video.journal import Journal, begun, mark_of, recalled
from tilewright.video.line import Line
from tilewright.video.page import asked, check_asked
from tilewright.video.pyav import SUFFIXES, check_there, pyav
from tilewright.video.rehearsal import rehearsed
from tilewright.video.source import Film, film, modified
from tilewright.video.stages.contract import (
    Fitting,
    Pace,
    Stage,
    fitted,
    looks,
    paced,
    recipe,
    watched,
)
from tilewright.video.streams import Made, left_out
from tilewright.wording import PATH, counted, in_one_line, short

CHUNK = 120  # pictures: what a kill costs at most, and a key frame each


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


def enhance(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    stages: Sequence[Stage] = (),
    *,
    codec: str | None = None,
    crf: int | None = None,
    overwrite: bool = False,
    auto: bool = False,
    workers: int | str | None = None,
    report: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
    detections: str | os.PathLike[str] | None = None,
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
        auto: look at the film, and do in each scene what `analyse` advises, beside `stages`.
        workers: processes of this machine, or the address of a Dask scheduler, as
            `tcp://scheduler:8786`, whose workers read `source` at the same path; None is this
            process alone. The film is the same on processors of one kind.
        report: an .html file: pictures before and after, how like, times, licences; needs Jinja2.
        reference: the film as it should be, for PSNR and SSIM in that report.
        detections: a .jsonl file of what the stage `Detect` found, with times and tracks.
        progress: called after every picture; of workers after every chunk.

    Raises:
        ArgumentError: a codec, container or stage that does not take the film.
        FileError: a source that cannot be read, an `out` that exists or cannot be written.
        DeviceError: PyAV, Dask or Jinja2 is not installed, no scheduler or worker answers.
    """
    check_workers(workers)
    check_asked(report, reference)
    job = planned(
        source, out, stages, codec=codec, crf=crf, overwrite=overwrite, auto=auto,
        detections=detections,
    )  # fmt: skip
    page = asked(report, reference, job)
    done = made(job, progress, workers)
    if page is not None:
        page.write(done)
    return done


def planned(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    stages: Sequence[Stage] = (),
    *,
    codec: str | None = None,
    crf: int | None = None,
    overwrite: bool = False,
    auto: bool = False,
    detections: str | os.PathLike[str] | None = None,
    looked: Callable[[int, int], None] | None = None,
) -> Job:
    """What `enhance` with these arguments would do; nothing is written. Raises what it does.

    Where a stage has to know the whole film, or with `auto`, that is looked at; `looked` is called
    meanwhile with pictures done and all.
    """
    path, target = path_of(source, "source"), path_of(out, "out")
    if target.is_symlink():  # what it leads to is replaced
        target = Path(os.path.realpath(target))
    check_there(path, "source")
    _check_out(path, target, overwrite)
    found = sampled(film(path, "source"))
    job = _checked(found, target, stages, codec, crf)
    check_writable(target, "out")
    seen = watched(stages, found, looked)
    if seen != tuple(stages):
        job, stages = _checked(found, target, seen, codec, crf), seen
    told = _detections(detections, stages)
    job = replace(job, detections=told)
    if not auto and not any(isinstance(stage, Fitting) and stage.unfitted for stage in stages):
        return job
    survey = kept_or_new(found, target, looked)
    wanted = with_advised(stages, survey, found.look) if auto else stages
    job = _checked(found, target, fitted(wanted, survey), codec, crf)
    return replace(job, survey=survey, detections=told)


def _detections(path: str | os.PathLike[str] | None, stages: Sequence[Stage]) -> Path | None:
    """Where what is found goes. Raises ArgumentError where no stage finds or draws anything."""
    names = [stage.name for stage in stages]
    if "draw" in names and "detect" not in names[: names.index("draw")]:
        raise ArgumentError("draw: without detect before it; accepted is the stage Detect before")
    if path is None:
        return None
    if "detect" not in names:
        raise ArgumentError("detections: without detect; accepted is the stage Detect beside it")
    return lines.checked(path)


def _checked(
    found: Film, target: Path, stages: Sequence[Stage], codec: str | None, crf: int | None
) -> Job:
    """A job whose stages, codec and container take the film."""
    _check_stages(stages)
    passed = looks(stages, found.look)
    name = codec or ("vp9" if target.suffix.lower() == ".webm" else "h264")
    codecs.checked(name, crf, passed[-1], target.suffix.lower())
    last = found.lengths.get(found.times[-1], 0)
    known, pace = paced(stages, Pace(found.times, last, found.time_base, found.rate))
    coding = Coding(
        codec=name,
        crf=codecs.CODECS[name].crf if crf is None else crf,
        threads=host().compute_units,
        rate=pace.rate,
        time_base=pace.time_base,
    )
    bounds = tuple(range(0, len(found.times), CHUNK))
    job = Job(found, target, known, coding, passed, bounds, pace.times)
    rehearsed(found, Made(passed[-1], coding, job.hidden), target)
    return job


def _check_stages(stages: object) -> None:
    """Raise ArgumentError for anything but a sequence of stages."""
    if not isinstance(stages, Sequence):
        raise ArgumentError(f"stages={short(stages)}: accepted is a sequence of stages")
    for number, one in enumerate(stages):
        if isinstance(one, type) or not (hasattr(one, "turned") and hasattr(one, "bound")):
            raise ArgumentError(
                f"stages[{number}]={short(one)}: accepted are stages, as video.Sharpen()"
            )


def _check_out(source: Path, out: Path, overwrite: bool) -> None:
    label = f"out={short(str(out), PATH)}"
    if out.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"{label}: suffix {out.suffix!r}; accepted are {', '.join(SUFFIXES)}")
    if out.exists():
        if not out.is_file() and not out.is_dir():
            raise FileError(f"{label}: is no file; accepted is a file, which can be searched")
        if source.exists() and out.samefile(source):
            raise ArgumentError(f"{label}: is the source itself; accepted is another file")
        if not overwrite:
            raise FileError(
                f"{label}: exists; accepted is another name, or overwrite=True (--overwrite)"
            )


def made(
    job: Job,
    progress: Callable[[Progress], None] | None = None,
    workers: int | str | None = None,
) -> Enhanced:
    """Do what was planned."""
    begin = perf_counter()
    check_workers(workers)
    for lost in job.film.unkept:
        warnings.warn(f"{lost}: not kept, as no encoder here takes it", stacklevel=3)
    for lost in left_out(job.film, job.hidden, job.out):
        warnings.warn(lost, stacklevel=3)
    job, wanted = _recalled(job)
    with begun(job.out, wanted) as journal:
        if job.survey is not None:
            keep(journal.folder, job.film, job.survey)
        run = _Run(job, journal, progress)
        run.chunks(workers)
        heads = journal.done(len(job.bounds))
        seen = [row for number in sorted(heads) for row in heads[number].found]
        if job.detections is not None:
            lines.written(seen, job.coding.time_base, job.detections)
        _finished(job, journal, heads)
        damaged = sum(head.damaged for head in heads.values())
        frames = sum(head.frames for head in heads.values())
        if (missing := len(job.shown) - frames) > 0:
            own = len(job.shown) == len(job.film.times)
            what = "of the source" if own else "less, as some of the source"
            warnings.warn(
                f"{counted(missing, 'picture')} {what} could not be decoded", stacklevel=3
            )
        seconds = perf_counter() - begin
        told, found = _notes(heads), tuple(lines.summed(seen, job.coding.time_base))
        return Enhanced(job.out, frames, run.kept, damaged, seconds, run.clock.seconds, told, found)


def check_workers(workers: int | str | None) -> None:
    """Raise for no number or address, and where Dask is absent, before anything is written."""
    if workers is None:
        return
    most = 4 * host().compute_units
    if not (
        1 <= workers <= most
        if isinstance(workers, int)
        else isinstance(workers, str)
        and workers.startswith(("tcp://", "tls://", "ws://", "wss://", "ucx://"))
    ):
        raise ArgumentError(
            f"workers={workers!r}: accepted are 1 to {most}, or a scheduler's address, as"
            " tcp://scheduler:8786"
        )
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise DeviceError(
            f"workers={workers!r}: Dask is absent ({in_one_line(error)}); accepted is"
            " pip install 'tilewright[workers]'"
        ) from None


def _recalled(job: Job) -> tuple[Job, dict[str, Any]]:
    """The job with as many threads as an earlier run's encoder had, as bits depend on them."""
    recipe_now = recipe_of(job)
    before = recalled(job.out)
    coding = before.get("coding")
    threads = coding.get("threads") if isinstance(coding, dict) else None
    if isinstance(threads, int) and before | {"coding": None} == recipe_now | {"coding": None}:
        again = replace(job, coding=replace(job.coding, threads=threads))
        if recipe_of(again) == before:
            return again, before
    return job, recipe_now


def recipe_of(job: Job) -> dict[str, Any]:
    """All that decides the film's bits, as JSON has it."""
    return {
        "source": mark_of(job.film),
        "stages": recipe(job.stages),
        "coding": {
            key: str(one) if isinstance(one, Fraction) else one
            for key, one in asdict(job.coding).items()
        },
        "chunk": CHUNK,
        "versions": [__version__, pyav().__version__],
    }


class _Run:
    """Chunks that are missing, made here or by workers."""

    def __init__(
        self, job: Job, journal: Journal, progress: Callable[[Progress], None] | None
    ) -> None:
        self.job, self.journal, self.report = job, journal, progress
        self.clock = Clock()
        heads = journal.done(len(job.bounds))
        self.missing = [n for n in range(len(job.bounds)) if n not in heads]
        self.kept = sum(head.frames for head in heads.values())
        self.done = self.kept
        self.begin = perf_counter()

    def chunks(self, workers: int | str | None) -> None:
        """Make all that are missing."""
        if not self.missing:
            return
        if workers is None:
            line = Line(self.job, self.clock)
            self.begin = perf_counter()
            line.chunks(self.missing, self.journal.path, self._counted)
            return
        from tilewright.video import cluster  # loads Dask

        cluster.chunks(self.job, self.missing, workers, self.journal.folder, self._taken)

    def _taken(self, number: int, content: bytes, seconds: Mapping[str, float]) -> None:
        """A chunk that a worker made."""
        with replacing(self.journal.path(number), "out") as temporary:
            temporary.write_bytes(content)
        for name, spent in seconds.items():
            self.clock.add(name, spent)
        self._counted(self.job.pictures(number))

    def _counted(self, pictures: int = 1) -> None:
        self.done += pictures
        if self.report is not None:
            self.report(self._progress())

    def _progress(self) -> Progress:
        total = len(self.job.shown)
        rate = (self.done - self.kept) / max(perf_counter() - self.begin, 1e-9)
        return Progress(
            self.done, total, rate, max(0, total - self.done) / rate, self.clock.slowest
        )


def _finished(job: Job, journal: Journal, heads: Mapping[int, chunk.Head]) -> None:
    """The film under its name, once what was written is what it should be."""
    parts = [journal.path(number) for number in range(len(job.bounds))]
    if len({head.extra for head in heads.values() if head.frames}) > 1:
        raise _mixed(job, journal, "have unlike headers")
    _check_unchanged(job.film)
    expected = [packet.pts for part in parts for packet in chunk.packets(part)]
    if len(set(expected)) < len(expected):
        raise _mixed(job, journal, "hold the same pictures")
    form = Made(job.looks[-1], job.coding, job.hidden)
    whole = journal.folder / f"whole{job.out.suffix}"
    try:
        refused = assemble(job.film, form, parts, whole)
        verified(job.film, form, expected, refused, whole)
        with whole.open("rb") as file:
            os.fsync(file.fileno())
        whole.replace(job.out)
    finally:
        whole.unlink(missing_ok=True)  # of a full disk it would keep what the chunks leave
    for index, count in refused.items():
        warnings.warn(
            f"stream {index}: {counted(count, 'damaged packet')} left out, as no {job.out.suffix}"
            " takes them",
            stacklevel=4,
        )
    journal.removed()


def _notes(heads: Mapping[int, chunk.Head]) -> dict[str, tuple[float, ...]]:
    """What stages told of all chunks' pictures, by words."""
    found: dict[str, list[float]] = {}
    for number in sorted(heads):
        for time, words in heads[number].notes:
            found.setdefault(words, []).append(time)
    return {words: tuple(times) for words, times in found.items()}


def _mixed(job: Job, journal: Journal, why: str) -> FileError:
    return FileError(
        f"out={short(str(job.out), PATH)}: its chunks {why}; accepted is to remove"
        f" {journal.folder} and begin anew"
    )


def _check_unchanged(found: Film) -> None:
    """Raise FileError where the source is not what it was when work began."""
    if modified(found.path) != found.modified and film(found.path, "source").digest != found.digest:
        raise FileError(
            f"source={short(str(found.path), PATH)}: changed while it was worked on; the same line"
            " begins anew"
        )
