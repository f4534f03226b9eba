"""Chunks made by Dask's workers, here or on other machines.

    who asks                                                 a worker, alone with one chunk a thread
      job, bytes of model files   -- once a worker -->         stages bound at its first chunk
      number of a chunk           ------------------>          decoded from the source, at its path
      written into the journal    <------------------          packets, seconds of each part

Only the source has to be there for the workers: chunks come back as bytes. A worker that dies costs
the chunks it was at; Dask gives them to others, and to those that join later.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import distributed
from distributed import Client, LocalCluster, WorkerPlugin

from tilewright.errors import ArgumentError, DeviceError, FileError
from tilewright.inputs.devices import host
from tilewright.version import __version__
from tilewright.video.flow import Clock
from tilewright.video.job import Job
from tilewright.video.journal import WORKERS, mark
from tilewright.video.line import Line
from tilewright.video.pyav import pyav
from tilewright.wording import PATH, in_one_line, short
from tilewright.workers import PATIENCE, asked, result

Taken = Callable[[int, bytes, Mapping[str, float]], None]


class _Handed(WorkerPlugin):  # type: ignore[misc]
    """A job at a worker: its line, one for each of its threads, made when it is first asked for."""

    def __init__(self, job: Job, cores: int) -> None:
        self.job, self.cores = job, cores
        # A model's file may be at no such path there.
        self.models = [_content(getattr(stage, "model", "")) for stage in job.stages]

    def setup(self, worker: Any) -> None:
        """What a worker does when it is given this: take the models to a folder of its own."""
        self.lock, self.idle = threading.Lock(), list[Line]()
        self.folder = TemporaryDirectory(dir=worker.local_directory)
        pairs = zip(self.job.stages, self.models, strict=True)
        stages = tuple(self._placed(stage, content) for stage, content in pairs)
        self.job, self.models = replace(self.job, stages=stages), []

    def _placed(self, stage: Any, content: bytes | None) -> Any:
        """A stage whose model lies here."""
        if content is None:
            return stage
        path = Path(self.folder.name) / f"{stage.name}{Path(stage.model).suffix}"
        path.write_bytes(content)
        return replace(stage, model=str(path))

    def teardown(self, worker: Any) -> None:
        """Nothing of it stays."""
        self.folder.cleanup()

    def made(self, number: int) -> tuple[bytes, dict[str, float]]:
        """The bytes of a chunk, and for how long each part worked."""
        with self.lock:
            line = self.idle.pop() if self.idle else None
        clock = Clock()
        if line is None:
            line = Line(self.job, clock, self.cores)
        line.clock = clock
        path = Path(self.folder.name) / f"{number}.chunk"
        line.chunks([number], lambda _: path)
        with self.lock:
            self.idle.append(line)
        content = path.read_bytes()
        path.unlink()
        return content, clock.seconds


def _content(model: str) -> bytes | None:
    return Path(model).read_bytes() if model else None


def _made(name: str, number: int) -> tuple[bytes, dict[str, float]]:
    found: _Handed = distributed.get_worker().plugins[name]
    return found.made(number)


def _facts(source: Path) -> tuple[Any, ...]:
    """What has to be the same at every worker."""
    try:
        return (__version__, pyav().__version__, mark(source))
    except OSError as error:
        return (__version__, pyav().__version__, error.strerror)


def chunks(job: Job, numbers: Sequence[int], workers: int | str, folder: Path, take: Taken) -> None:
    """Have chunks made by workers; `take` is given each in the order in which they are ready.

    Raises DeviceError where no scheduler or worker answers, FileError where a worker cannot read
    the source, and where workers die again and again over one chunk.
    """
    with _client(workers, folder, len(numbers)) as (client, label):
        _check(client, job, label)
        name = f"tilewright-{uuid4().hex}"
        local = host().compute_units // workers if isinstance(workers, int) else 1
        client.register_plugin(_Handed(job, max(1, local)), name)
        try:
            tasks = {
                client.submit(_made, name, number, key=f"{name}-{number}", pure=False): number
                for number in numbers
            }
            for future in distributed.as_completed(list(tasks), loop=client.loop):
                take(tasks.pop(future), *_result(future, label))
        finally:
            client.unregister_worker_plugin(name)


def _result(future: Any, label: str) -> tuple[bytes, dict[str, float]]:
    def killed(why: str) -> FileError:
        return FileError(
            f"{label}: several workers died over one chunk ({why}); accepted are workers with more"
            " memory; the same line goes on"
        )

    lost = "; the same line goes on where it was"
    found: tuple[bytes, dict[str, float]] = result(future, label, killed=killed, lost=lost)
    return found


@contextmanager
def _client(workers: int | str, folder: Path, chunks: int) -> Iterator[tuple[Any, str]]:
    """A client of the scheduler at an address, or of so many processes of this machine."""
    label = f"workers={workers!r}"
    if isinstance(workers, str):
        try:
            client = Client(workers, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise DeviceError(
                f"{label}: no scheduler answers ({in_one_line(error)}); accepted is the address"
                " that `dask scheduler` prints"
            ) from None
        with client:
            yield client, label
        return
    with (
        _local(min(workers, chunks), folder / WORKERS) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client, label


def _local(workers: int, folder: Path) -> Any:
    """Processes of this machine, that leave Ctrl-C to this one: a terminal tells all of them."""
    deaf = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if deaf else None
    try:  # a process begins with the signals ignored that its parent ignores
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,  # bounded by itself; who measures and ends processes helps nobody
            dashboard_address=None,
            silence_logs=50,
            local_directory=str(folder),
        )
    finally:
        if deaf:
            signal.signal(signal.SIGINT, before)


def _check(client: Any, job: Job, label: str) -> None:
    """Raise for workers that would make another film, or none."""
    path = job.film.path.resolve()
    wanted = (__version__, pyav().__version__, mark(path))
    answers = asked(client, _facts, path, label=label, needs="tilewright[video]")
    for worker, found in answers.items():
        if found[:2] != wanted[:2]:
            raise ArgumentError(
                f"{label}: {worker} has tilewright {found[0]} and PyAV {found[1]}; accepted are"
                f" {wanted[0]} and {wanted[1]}, as here"
            )
        if found[2] != wanted[2]:
            why = "another file" if isinstance(found[2], dict) else found[2]
            raise FileError(
                f"source={short(str(path), PATH)}: {worker} finds {why} there; accepted is a"
                " source that every worker reads at the same path"
            )
