"""What `tilewright enhance` says of a film: while it is made, when it was stopped, and of the end.

In a terminal a bar; elsewhere, as in a log of a run by night, a line a minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

from tilewright.cli import bars, common
from tilewright.video.forecast import Forecast
from tilewright.video.job import Enhanced, Job
from tilewright.video.journal import folder_of
from tilewright.video.making import Progress
from tilewright.wording import counted

_EVERY = 60.0  # seconds between lines where there is no terminal


@contextmanager
def going(job: Job) -> Iterator[Callable[[Progress], None]]:
    """Pictures, pictures a second, the time left and what is slowest, on stderr.

    Where it is stopped and whole chunks are kept, says so.
    """
    bar = bars.bar_of(BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    task = bar.add_task("", total=None)
    line = _Lines()

    def report(now: Progress) -> None:
        text = f"{now.rate:.1f} a second, {clock(now.left)} left, slowest: {now.slowest}"
        bar.update(task, completed=now.done, total=now.total, description=text)
        bar.refresh()
        if bar.disable:
            line.say(f"{now.done}/{now.total}, {text}")

    try:
        with bar:
            yield report
    except KeyboardInterrupt:
        if folder_of(job.out).exists():
            common.note(f"{folder_of(job.out)}: whole chunks are kept; the same line goes on there")
        raise


class _Lines:
    """A line on stderr a minute."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        """The line, where a minute has gone by since the last."""
        if time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            print(text, file=sys.stderr, flush=True)


def foreseen(found: Forecast) -> Iterator[str]:
    """What a film would take."""
    parts = ", ".join(f"{name} {1e3 * spent:.1f} ms" for name, spent in found.parts.items())
    yield f"tried on {counted(found.tried, 'picture')}, a picture: {parts}, beside each other"
    memory = f", {found.memory >> 20} MiB of memory" if found.memory else ""
    yield f"predicted: {clock(found.seconds)}, {found.bytes / 1e6:.2f} MB on disk{memory}"


def told(done: Enhanced) -> Iterator[str]:
    """What came of it."""
    fresh = done.frames - done.kept
    rate = f", {fresh / done.seconds:.1f} a second" if fresh else ""
    kept = f", {done.kept} of them kept from before" if done.kept else ""
    yield f"wrote {done.out}: {counted(done.frames, 'picture')}{kept}, {clock(done.seconds)}{rate}"
    if done.worked:
        yield "worked: " + ", ".join(f"{name} {spent:.2f} s" for name, spent in done.worked.items())
    yield from done.found
    for words, pictures in done.told():
        yield f"{words}: {pictures}"


def clock(seconds: float) -> str:
    """`0:07`, or `2:00:07`."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
