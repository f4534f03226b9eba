"""`tilewright roofline`: the ladder, or any batch, under the device's measured roof."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import bars, batches, climbing, common, results
from tilewright.cli.ceilings import measured
from tilewright.cli.sizes import Columns
from tilewright.errors import ArgumentError
from tilewright.facts.ceilings import Ceilings
from tilewright.facts.device import Device
from tilewright.inputs.devices import resolve
from tilewright.report import grouped, roofline_show
from tilewright.report import roofline as placing

_SIZE = 1024


def roofline(
    file: batches.BatchFile = None,
    limits: batches.UniformOption = None,
    count: batches.CountOption = None,
    suite: batches.SuiteOption = None,
    size: Annotated[
        int | None,
        typer.Option("--size", metavar="N", help=f"The ladder at m = n = k = N; default {_SIZE}."),
    ] = None,
    dtype: common.DtypeOption = "float32",
    device: common.DeviceOption = None,
    seed: common.SeedOption = 0,
    json: common.JsonOption = None,
    plot: common.PlotOption = None,
) -> None:
    """Place the ladder's kernels, or a batch, under what the device was measured to reach.

    Examples:

    - `tilewright roofline --plot roofline.svg`
    - `tilewright roofline --uniform 1 256 --count 1000`
    - `tilewright roofline --suite moe-qwen3-30b-a3b --device opencl:0 --json roofline.json`

    The exit status is 1 if a point is above its roof: one of the two measurements is then wrong.
    """
    is_batch = any(source is not None for source in (file, limits, suite))
    if is_batch and size is not None:
        raise ArgumentError(f"--size={size}: accepted is without FILE, --uniform and --suite")
    if count is not None and limits is None:
        raise ArgumentError(f"--count={count}: accepted is with --uniform alone")
    common.checked_dtype(dtype)
    results.check_outputs(json, plot)
    chosen = batches.checked_device_dtype(resolve(device), dtype)
    climbing.checked_size("--size", _SIZE if size is None else size)
    sizes = batches.batch_sizes(file, limits, count, suite, seed) if is_batch else None
    ceilings = chosen.ceilings or measured(chosen)
    chosen = replace(chosen, ceilings=ceilings)
    if sizes is None:
        placed = placing.of_ladders(climbing.climb(chosen, [size or _SIZE], dtype), ceilings)
    else:
        placed = _batch(sizes, chosen, ceilings, dtype, seed)
    _show(placed, json, plot)


def _batch(
    sizes: tuple[str, Columns], device: Device, ceilings: Ceilings, dtype: str, seed: int
) -> placing.Roofline:
    title, (m, n, k) = sizes
    grouped.check_fits(m, n, k, dtype, device, title)
    with bars.progress(len(grouped.ALL_ORDERS) + 4) as advance:
        report = grouped.measure(
            (m, n, k), device, title=title, dtype=dtype, seed=seed, report=advance
        )
    return placing.of_batch(report, ceilings)


def _show(placed: placing.Roofline, json: Path | None, plot: Path | None) -> None:
    common.console().print(roofline_show.table(placed))
    draw = partial(roofline_show.draw, placed)
    results.deliver(json, lambda: placing.document(placed), plot, draw)
    if placed.errors:
        raise typer.Exit(1)
