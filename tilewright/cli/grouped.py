"""`tilewright grouped`: a batch of unlike products, every way a user could run it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewright import suites
from tilewright.cli import common
from tilewright.cli.sizes import MOST_PROBLEMS, Columns, load
from tilewright.errors import ArgumentError, DtypeError
from tilewright.facts.device import Device
from tilewright.inputs.checks import checked_name
from tilewright.inputs.devices import resolve
from tilewright.products.grouped import plan_grouped
from tilewright.report import balance_plot
from tilewright.report.grouped import ALL_ORDERS, check_fits, measure
from tilewright.report.grouped_records import Report
from tilewright.report.grouped_tables import document, grouped_table
from tilewright.suites import uniform

_COUNT = 1000
BatchFile = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="FILE.npz or SHAPES.csv with columns m, n, k."),
]
UniformOption = Annotated[
    tuple[int, int] | None,
    typer.Option("--uniform", metavar="LO HI", help="Draw sizes between two limits."),
]
CountOption = Annotated[
    int | None,
    typer.Option("--count", metavar="G", help=f"Problems of --uniform; default {_COUNT}."),
]
SuiteOption = Annotated[
    str | None,
    typer.Option("--suite", metavar="NAME", help="Real shapes: moe-..., conv-..., fronts-..."),
]


def grouped(
    file: BatchFile = None,
    limits: UniformOption = None,
    count: CountOption = None,
    suite: SuiteOption = None,
    device: common.DeviceOption = None,
    dtype: common.DtypeOption = "float32",
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="ORDER", help="Run this order alone, not all five."),
    ] = None,
    seed: common.SeedOption = 0,
    json: common.JsonOption = None,
    plot: common.PlotOption = None,
) -> None:
    """Time and check a batch in which every product has sizes of its own.

    Examples:

    - `tilewright grouped --uniform 1 256 --count 1000`
    - `tilewright grouped --suite fronts-grid-3d --plot balance.svg`
    - `tilewright grouped shapes.csv --device opencl:1 --order longest-first --json run.json`

    Operands are random. The exit status is 1 if any result was wrong.
    """
    title, (m, n, k) = batch_sizes(file, limits, count, suite, seed)
    common.checked_dtype(dtype)
    if order is not None:
        checked_name("--order", order, ALL_ORDERS)
    common.check_outputs(json, plot)
    chosen = checked_device_dtype(resolve(device), dtype)
    check_fits(m, n, k, dtype, chosen, title)
    orders = ALL_ORDERS if order is None else (order,)
    with common.progress(len(orders) + 5) as advance:
        report = measure(
            (m, n, k), chosen, title=title, dtype=dtype, orders=orders, seed=seed, report=advance
        )
    common.console().print(grouped_table(report))
    common.deliver(json, lambda: document(report), plot, partial(_draw, report, orders[-1]))
    if report.wrong:
        raise typer.Exit(1)


def checked_device_dtype(device: Device, dtype: str) -> Device:
    """The device, if it has the dtype."""
    if dtype not in device.dtypes:
        raise DtypeError(
            f"--dtype={dtype!r}: {device.id!r} has none; accepted are {', '.join(device.dtypes)}"
        )
    return device


def batch_sizes(
    file: Path | None,
    limits: tuple[int, int] | None,
    count: int | None,
    suite: str | None,
    seed: int,
) -> tuple[str, Columns]:
    """What the batch is called, and its columns."""
    given = sum(source is not None for source in (file, limits, suite))
    if given != 1:
        raise ArgumentError(
            f"FILE, --uniform, --suite: {given} of them given; accepted is one: FILE.npz,"
            " SHAPES.csv, --uniform LO HI or --suite NAME"
        )
    if seed < 0:
        raise ArgumentError(f"--seed={seed}: accepted are whole numbers from 0 up")
    if count is not None and limits is None:
        raise ArgumentError(f"--count={count}: accepted is with --uniform alone")
    if file is not None:
        return file.name, load(file)
    if suite is not None:
        found = checked_suite(suite, seed)
        return suite, (found.m, found.n, found.k)
    assert limits is not None
    low, high = limits
    problems = _COUNT if count is None else count
    if not 1 <= low <= high <= 65536 or not 1 <= problems <= MOST_PROBLEMS:
        raise ArgumentError(
            f"--uniform={low} {high} --count={problems}: accepted are limits 1 <= LO <= HI <= 65536"
            f" and 1 to {MOST_PROBLEMS:,} problems"
        )
    return f"{low}..{high}, seed {seed}", uniform.between(low, high, problems, seed)


def checked_suite(name: str, seed: int) -> suites.Suite:
    """The suite, if there is one of that name and what it takes is installed."""
    checked_name("--suite", name, suites.names())
    try:
        return suites.load(name, seed)
    except ModuleNotFoundError as error:
        raise ArgumentError(f"--suite={name!r}: {error}") from None


def _draw(report: Report, order: str, path: Path, argument: str) -> None:
    """The device's panel, where it plans at all, beside the modelled GPU's."""
    sizes = (report.m, report.n, report.k)
    device: Device = report.device
    layout = plan_grouped(*sizes, dtype=report.dtype, device=device, order=order).layout
    panels = [balance_plot.gpu_panel(*sizes)]
    if layout is not None:
        name = f"{device.name.strip()}, {layout.slots.compute_units} units"
        panels.insert(0, balance_plot.Panel.of(name, layout))
    title = f"Work per compute unit: {len(report.m)} products, {report.title}, {report.dtype}"
    balance_plot.draw(panels, title, path, argument)
