"""`tilewright grouped`: a batch of unlike products, every way a user could run it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import bars, batches, common, results
from tilewright.facts.device import Device
from tilewright.inputs.checks import checked_name
from tilewright.inputs.devices import resolve
from tilewright.products.grouped import plan_grouped
from tilewright.report import balance_plot
from tilewright.report.grouped import ALL_ORDERS, check_fits, measure
from tilewright.report.grouped_records import Report
from tilewright.report.grouped_tables import document, grouped_table


def grouped(
    file: batches.BatchFile = None,
    limits: batches.UniformOption = None,
    count: batches.CountOption = None,
    suite: batches.SuiteOption = None,
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
    title, (m, n, k) = batches.batch_sizes(file, limits, count, suite, seed)
    common.checked_dtype(dtype)
    if order is not None:
        checked_name("--order", order, ALL_ORDERS)
    results.check_outputs(json, plot)
    chosen = batches.checked_device_dtype(resolve(device), dtype)
    check_fits(m, n, k, dtype, chosen, title)
    orders = ALL_ORDERS if order is None else (order,)
    with bars.progress(len(orders) + 5) as advance:
        report = measure(
            (m, n, k), chosen, title=title, dtype=dtype, orders=orders, seed=seed, report=advance
        )
    common.console().print(grouped_table(report))
    results.deliver(json, lambda: document(report), plot, partial(_draw, report, orders[-1]))
    if report.wrong:
        raise typer.Exit(1)


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
