"""Progress on stderr where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.status import Status

_SEEN = 16  # pictures between two drawings of the bar while a film is looked at


@contextmanager
def working(said: str = "measuring") -> Iterator[Callable[[str], None]]:
    """A line on stderr where that is a terminal, for steps whose number nobody knows beforehand."""
    err = Console(stderr=True)
    with Status(said, console=err) if err.is_terminal else nullcontext() as status:
        yield (lambda name: None) if status is None else (lambda name: status.update(name))


def bar_of(*columns: ProgressColumn) -> Progress:
    """A bar on stderr where that is a terminal, drawn anew only when it is told to.

    A thread that redraws would take time from the processor that is being measured.
    """
    err = Console(stderr=True)
    hidden = not err.is_terminal
    return Progress(*columns, console=err, disable=hidden, auto_refresh=False, transient=True)


@contextmanager
def looking() -> Iterator[Callable[[int, int], None]]:
    """A bar for the time in which a film is only looked at."""
    bar = bar_of(BarColumn(), MofNCompleteColumn(), TextColumn("looked at"))
    tasks: list[TaskID] = []

    def report(done: int, total: int) -> None:
        if not tasks:
            tasks.append(bar.add_task("", total=total))
        bar.update(tasks[0], completed=done)
        if done % _SEEN == 0:
            bar.refresh()

    with bar:
        yield report


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr where that is a terminal; what it gives is called before every step."""
    described = TextColumn("measuring {task.description}")
    bar = bar_of(described, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: list[TaskID] = []

    def advance(name: str) -> None:
        if tasks:
            bar.update(tasks[0], advance=1, description=name)
        else:
            tasks.append(bar.add_task(name, total=total))
        bar.refresh()

    with bar:
        yield advance
