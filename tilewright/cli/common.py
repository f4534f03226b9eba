"""What several commands share: options, consoles, checks of what was typed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
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

from tilewright.arrays.views import DTYPES
from tilewright.errors import ArgumentError, DtypeError, FileError
from tilewright.facts.device import Device
from tilewright.files.whole import check_writable, write_json
from tilewright.inputs.devices import host
from tilewright.report import plots
from tilewright.report.ladder import measure, steps
from tilewright.report.records import Ladder
from tilewright.report.sampling import FULL, Effort

# Wide enough for a ladder; what reads a pipe has no width of its own.
PIPE_WIDTH = 100
_SEEN = 16  # pictures between two drawings of the bar while a film is looked at

DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        "-d",
        metavar="DEVICE",
        help="opencl:0, opencl:intel, host, ...; default TILEWRIGHT_DEVICE or the best.",
        show_default=False,
    ),
]

DtypeOption = Annotated[str, typer.Option("--dtype", help="float16, float32 or float64.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the sizes and operands drawn.")]


def positive(parameter: typer.CallbackParam, value: int | None) -> int | None:
    """The number of an option that counts something. Raises ArgumentError below 1."""
    if value is not None and value < 1:
        raise ArgumentError(f"{parameter.opts[0]}={value}: accepted are 1 and more")
    return value


RepeatsOption = Annotated[
    int,
    typer.Option("--repeats", callback=positive, metavar="N", help="Runs; their median is shown."),
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write every figure and sample there."),
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: FILE.png or FILE.svg.")
]


def check_npz(path: Path, argument: str) -> None:
    """Raise FileError where no network could be written there."""
    if path.suffix.lower() != ".npz":
        raise FileError(f"{argument}={str(path)!r}: suffix {path.suffix!r}; accepted is .npz")
    check_writable(path, argument)


def check_outputs(json: Path | None, plot: Path | None) -> None:
    """Raise for files that could not be written, before anything is measured."""
    check_writable(json, "--json")
    if plot is not None:
        plots.check(plot, "--plot")


def deliver(
    json: Path | None,
    document: Callable[[], Any],
    plot: Path | None,
    draw: Callable[[Path, str], None],
) -> None:
    """Write what was asked for, and say so."""
    if json is not None:
        write_json(json, document())
        print(f"wrote {json}")
    if plot is not None:
        draw(plot, "--plot")
        print(f"wrote {plot}")


class _Screen(Console):
    """A console that leaves lines to the terminal which are longer than it is wide."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As Rich's, but nothing is cut off at the edge."""
        super().print(*objects, **{"crop": False, **options})


def console() -> Console:
    """Where tables go."""
    return _Screen(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def note(text: str) -> None:
    """A line that is not the command's output."""
    print(f"note: {text}", file=sys.stderr)


def checked_dtype(dtype: str) -> str:
    """The dtype, if it is one of ours."""
    if dtype not in DTYPES:
        raise DtypeError(f"--dtype={dtype!r}: accepted are {', '.join(DTYPES)}")
    return dtype


def checked_size(argument: str, size: int) -> int:
    """The size, if two operands, a result and its float64 truth fit into the host's memory."""
    # At the worst: three float64 matrices on the device, four beside them to check the result.
    needed, there = 7 * 8 * size * size, host().memory
    if size < 1 or needed > there:
        largest = int((there / 56) ** 0.5)
        raise ArgumentError(
            f"{argument}={size}: accepted are sizes from 1 to {largest}, which this machine's"
            f" memory of {there >> 20} MiB holds"
        )
    return size


def climb(device: Device, sizes: Sequence[int], dtype: str, effort: Effort = FULL) -> list[Ladder]:
    """A ladder for each size, with progress on stderr where that is a terminal."""
    with progress(len(sizes) * steps(device, dtype)) as advance:
        return [
            measure(
                device,
                size,
                dtype,
                effort=effort,
                report=lambda name, size=size: advance(f"{name} at {size}"),  # type: ignore[misc]
            )
            for size in sizes
        ]


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
