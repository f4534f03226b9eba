"""`tilewright roofline`: the ladder, or any batch, under the device's measured roof."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.common import (
    DeviceOption,
    checked_dtype,
    checked_size,
    climb,
    console,
    progress,
)
from tilewright.cli.grouped import batch_sizes, checked_device_dtype
from tilewright.cli.peak import measured
from tilewright.cli.sizes import Columns
from tilewright.errors import ArgumentError
from tilewright.facts.ceilings import Ceilings
from tilewright.facts.device import Device
from tilewright.files.whole import check_writable
from tilewright.inputs.devices import resolve
from tilewright.report import grouped, plots, roofline_show
from tilewright.report import roofline as placing

_SIZE = 1024


def roofline(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A batch: FILE.npz or SHAPES.csv, columns m, n, k."),
    ] = None,
    limits: Annotated[
        tuple[int, int] | None,
        typer.Option("--uniform", metavar="LO HI", help="A batch drawn between two limits."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="G", help="Problems of --uniform; default 1000.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(metavar="NAME", help="A batch of real shapes: moe-..., conv-...")
    ] = None,
    size: Annotated[
        int | None, typer.Option(metavar="N", help=f"The ladder at m = n = k = N; default {_SIZE}.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float16, float32 or float64.")] = "float32",
    device: DeviceOption = None,
    seed: Annotated[int, typer.Option(help="Of sizes drawn and of operands.")] = 0,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every figure there.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: FILE.png or FILE.svg.")
    ] = None,
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
    check_writable(json, "--json")
    checked_dtype(dtype)
    if plot is not None:
        plots.check(plot, "--plot")
    chosen = checked_device_dtype(resolve(device), dtype)
    checked_size("--size", _SIZE if size is None else size)
    sizes = batch_sizes(file, limits, count, suite, seed) if is_batch else None
    ceilings = chosen.ceilings or measured(chosen)
    chosen = replace(chosen, ceilings=ceilings)
    if sizes is None:
        placed = placing.of_ladders(climb(chosen, [size or _SIZE], dtype), ceilings)
    else:
        placed = _batch(sizes, chosen, ceilings, dtype, seed)
    _show(placed, json, plot)


def _batch(
    sizes: tuple[str, Columns], device: Device, ceilings: Ceilings, dtype: str, seed: int
) -> placing.Roofline:
    title, (m, n, k) = sizes
    grouped.check_fits(m, n, k, dtype, device, title)
    with progress(len(grouped.ALL_ORDERS) + 4) as advance:
        report = grouped.measure(
            (m, n, k), device, title=title, dtype=dtype, seed=seed, report=advance
        )
    return placing.of_batch(report, ceilings)


def _show(placed: placing.Roofline, json: Path | None, plot: Path | None) -> None:
    console().print(roofline_show.table(placed))
    if json is not None:
        placing.write(placed, json)
        print(f"wrote {json}")
    if plot is not None:
        roofline_show.draw(placed, plot, "--plot")
        print(f"wrote {plot}")
    if placed.errors:
        raise typer.Exit(1)
