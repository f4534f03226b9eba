"""`tilewright ladder`: every kernel of a device beside the serial loop, NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from tilewright.cli import climbing, common, results
from tilewright.errors import ArgumentError
from tilewright.inputs.devices import devices, resolve
from tilewright.report import document, plots
from tilewright.report.memory import measure_memory
from tilewright.report.records import Ladder
from tilewright.report.tables import ladder_table, legend, memory_table, only_host

DEFAULT_SIZE = 1024


def ladder(
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", help=f"m = n = k; default {DEFAULT_SIZE}.")
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option("--sizes", metavar="A,B,C", help="Several of them, as `256,512,1024`."),
    ] = None,
    dtype: common.DtypeOption = "float32",
    device: common.DeviceOption = None,
    json: common.JsonOption = None,
    plot: common.PlotOption = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="Measure the three host-pointer ways too.")
    ] = False,
) -> None:
    """Time and check every kernel that a device can run, beside what you would use instead.

    Examples:

    - `tilewright ladder --size 2048`
    - `tilewright ladder --sizes 256,512,1024 --plot ladder.svg --json ladder.json`
    - `tilewright ladder --device opencl:1 --dtype float16 --memory`

    The exit status is 1 if any result was wrong.
    """
    wanted = _sizes(size, sizes)
    common.checked_dtype(dtype)
    results.check_outputs(json, plot)
    chosen = resolve(device)
    measured = climbing.climb(chosen, wanted, dtype)
    if memory:
        measured = [replace(one, memory=measure_memory(one)) for one in measured]
    _show(measured)
    results.deliver(json, lambda: document.document(measured), plot, partial(plots.draw, measured))
    if any(one.wrong for one in measured):
        raise typer.Exit(1)


def _show(ladders: Sequence[Ladder]) -> None:
    out = common.console()
    for one in ladders:
        out.print(ladder_table(one, out.width))
        if one.memory:
            out.print(memory_table(one))
    out.print(legend())
    if all(device.backend == "host" for device in devices()):
        out.print(only_host())


def _sizes(size: int | None, sizes: str | None) -> tuple[int, ...]:
    """Ascending, each once."""
    if size is not None and sizes is not None:
        raise ArgumentError(f"--sizes={sizes!r}: accepted is either --size or --sizes, not both")
    if sizes is None:
        return (climbing.checked_size("--size", DEFAULT_SIZE if size is None else size),)
    try:
        numbers = {int(part) for part in sizes.split(",")}
    except ValueError:
        raise ArgumentError(
            f"--sizes={sizes!r}: accepted are whole numbers with commas between, as 256,512"
        ) from None
    return tuple(sorted(climbing.checked_size("--sizes", number) for number in numbers))
