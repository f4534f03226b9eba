"""`tilewright tune`: the best configuration of every kernel for shape classes, found and kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, TextColumn
from rich.table import Table

from tilewright.cli.bars import bar_of
from tilewright.cli.batches import SuiteOption, checked_device_dtype, checked_suite
from tilewright.cli.common import DeviceOption, DtypeOption, checked_dtype, console, note
from tilewright.cli.sizes import load
from tilewright.errors import ArgumentError, KernelError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import sums_of
from tilewright.facts.kernel import Kernel
from tilewright.inputs.checks import checked_name
from tilewright.inputs.devices import backend_of, resolve
from tilewright.report.sheet import sheet
from tilewright.tuning import crossover
from tilewright.tuning.tasks import Task, heaviest, representatives, tasks
from tilewright.tuning.trial import LAYOUTS, Shape
from tilewright.tuning.tuner import Progress, Result, Tuner
from tilewright.tuning.workshop import Workshop

_LONGEST = 30 * 86400.0


def tune(
    device: DeviceOption = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel", metavar="NAME", help="Only this kernel; may be given several times."
        ),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option("--shapes", metavar="FILE", help="FILE.npz or SHAPES.csv with m, n, k."),
    ] = None,
    suite: SuiteOption = None,
    dtype: DtypeOption = "float32",
    layout: Annotated[
        str,
        typer.Option("--layout", metavar="LAYOUT", help="Of A and B: rows-rows, rows-columns, ..."),
    ] = LAYOUTS[0],
    budget: Annotated[
        float,
        typer.Option(
            "--budget",
            metavar="SECONDS",
            help="For all tasks; how many it does not reach is said.",
        ),
    ] = 120.0,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="After which one candidate is given up."),
    ] = 20.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a tuner stopped or was killed.")
    ] = False,
) -> None:
    """Find and keep the fastest configuration of every kernel; `matmul` uses it from then on.

    Examples:

    - `tilewright tune --budget 300`
    - `tilewright tune --kernel panel --shapes shapes.csv`
    - `tilewright tune --device opencl:1 --resume`

    Candidates run in a process of their own, are checked against float64 first, and cost nothing
    but their time where they crash or hang. A configuration is kept that beat the default in turns
    on several shapes. Ctrl-C keeps what was found.
    """
    checked_dtype(dtype)
    checked_name("--layout", layout, LAYOUTS)
    for name, seconds in (("--budget", budget), ("--timeout", timeout)):
        if not 0 < seconds <= _LONGEST:
            raise ArgumentError(f"{name}={seconds:g}: accepted are seconds above 0, to 30 days")
    chosen = resolve(device)
    kernels = _kernels(chosen, kernel, dtype)
    todo = _tasks(chosen, kernels, shapes, suite, dtype, layout)
    priors = backend_of(chosen).priors(chosen)
    with Workshop(timeout=timeout) as workshop, _progress(budget) as report:
        tuner = Tuner(chosen, priors, workshop, budget, resume, report)
        results = tuner.run(todo)
    if results:
        console().print(_table(chosen, results))
    left = len(todo) - len(results)
    if tuner.interrupted:
        note("stopped; what was found is kept, and --resume goes on")
    elif left:
        before = "were finished before, or " if resume else ""
        note(f"{left} of {len(todo)} tasks {before}need more than --budget={budget:g} seconds")


def _kernels(device: Device, names: list[str] | None, dtype: str) -> tuple[Kernel, ...]:
    """The kernels asked for, or all that the device has."""
    known = backend_of(device).kernels(device)
    if not known:
        raise KernelError(f"device={device.id!r}: has no kernel that could be tuned")
    checked_device_dtype(device, dtype)
    for name in names or ():
        checked_name("--kernel", name, tuple(one.name for one in known))
    # What the rules prefer first: the budget may not last for all.
    order = backend_of(device).priors(device).kernels
    rank = {name: place for place, name in enumerate(order)}
    able = (one for one in known if not names or one.name in names)
    return tuple(sorted(able, key=lambda one: rank.get(one.name, len(rank))))


def _tasks(
    device: Device,
    kernels: tuple[Kernel, ...],
    shapes: Path | None,
    suite: str | None,
    dtype: str,
    layout: str,
) -> tuple[Task, ...]:
    """Kernels and classes of the shapes named, or of all classes."""
    named = _named(shapes, suite, Shape(1, 1, 1, dtype, sums_of(dtype), layout))
    backend = backend_of(device)
    priors = backend.priors(device)
    if crossover.known(device, backend, dtype, priors) is None:
        note(f"shape classes of {device.id} are measured first, once a driver, beside the budget")
    boundaries = crossover.measured(device, backend, dtype, priors).boundaries
    return tasks(kernels, named or representatives(boundaries, dtype, layout), boundaries)


def _named(shapes: Path | None, suite: str | None, model: Shape) -> tuple[Shape, ...]:
    """The shapes of a file or a suite, those with the most work first; none if neither is given."""
    if shapes is None and suite is None:
        return ()
    if shapes is not None and suite is not None:
        raise ArgumentError(
            f"--shapes={str(shapes)!r}, --suite={suite!r}: both given; accepted is one"
        )
    if shapes is not None:
        columns = load(shapes)
    else:
        found = checked_suite(str(suite), 0)
        columns = (found.m, found.n, found.k)
    named = heaviest(list(zip(*(column.tolist() for column in columns), strict=True)), model)
    if not named:
        given = f"--suite={suite!r}" if shapes is None else f"--shapes={str(shapes)!r}"
        raise ArgumentError(f"{given}: every product is empty; accepted are sizes from 1 up")
    return named


@contextmanager
def _progress(budget: float) -> Iterator[Callable[[Progress], None]]:
    """A bar on stderr where that is a terminal: task, best so far, time left, candidate."""
    left = TextColumn("{task.fields[left]} left  {task.fields[candidate]}")
    bar = bar_of(TextColumn("{task.description}"), BarColumn(), left)

    def advance(progress: Progress) -> None:
        minutes, seconds = divmod(round(progress.seconds_left), 60)
        task = progress.task
        bar.update(
            line,
            completed=budget - progress.seconds_left,
            description=f"{task.kernel.name}, {task.shape_class}: {1 / progress.ratio:.2f}x",
            left=f"{minutes}:{seconds:02}",
            candidate=str(progress.candidate)[:60],
        )
        bar.refresh()

    with bar:
        line = bar.add_task("starting", total=budget, left="", candidate="")
        yield advance


def _table(device: Device, results: list[Result]) -> Table:
    heads = ("kernel", "class", "ms", "faster", "tried", "failed", "configuration")
    title = f"tuned: {device.id}  {device.name}"
    table = sheet(title, heads, "class", "configuration", wrap=True)
    for result in results:
        default = result.ratio == 1.0
        table.add_row(
            result.task.kernel.name,
            result.task.shape_class,
            f"{result.seconds * 1e3:.3f}",
            "default" if default else f"{1 / result.ratio:.2f}x",
            str(result.timed),
            str(result.failed),
            str(result.config),
        )
    return table
