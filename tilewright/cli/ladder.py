"""`tilewright ladder`: every kernel of a device beside the serial loop, NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli.common import DeviceOption, checked_dtype, checked_size, climb, console
from tilewright.errors import ArgumentError
from tilewright.files.whole import check_writable
from tilewright.inputs.devices import resolve
from tilewright.report import document, plots
from tilewright.report.memory import measure_memory
from tilewright.report.records import Ladder
from tilewright.report.tables import ladder_table, legend, memory_table, only_host

DEFAULT_SIZE = 1024


def ladder(
    size: Annotated[
        int | None, typer.Option(metavar="N", help=f"m = n = k; default {DEFAULT_SIZE}.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Several of them, as `256,512,1024`.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float16, float32 or float64.")] = "float32",
    device: DeviceOption = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every figure and sample there.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: FILE.png or FILE.svg.")
    ] = None,
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
    check_writable(json, "--json")
    wanted = _sizes(size, sizes)
    checked_dtype(dtype)
    if plot is not None:
        plots.check(plot, "--plot")
    chosen = resolve(device)
    measured = climb(chosen, wanted, dtype)
    if memory:
        measured = [replace(one, memory=measure_memory(one)) for one in measured]
    _show(measured)
    if json is not None:
        document.write(measured, json)
        print(f"wrote {json}")
    if plot is not None:
        plots.draw(measured, plot, "--plot")
        print(f"wrote {plot}")
    if any(one.wrong for one in measured):
        raise typer.Exit(1)


def _show(ladders: Sequence[Ladder]) -> None:
    out = console()
    for one in ladders:
        out.print(ladder_table(one, out.width))
        if one.memory:
            out.print(memory_table(one))
    out.print(legend())
    if ladders[0].device.backend == "host":
        out.print(only_host())


def _sizes(size: int | None, sizes: str | None) -> tuple[int, ...]:
    """Ascending, each once."""
    if size is not None and sizes is not None:
        raise ArgumentError(f"--sizes={sizes!r}: accepted is either --size or --sizes, not both")
    if sizes is None:
        return (checked_size("--size", DEFAULT_SIZE if size is None else size),)
    try:
        numbers = {int(part) for part in sizes.split(",")}
    except ValueError:
        raise ArgumentError(
            f"--sizes={sizes!r}: accepted are whole numbers with commas between, as 256,512"
        ) from None
    return tuple(sorted(checked_size("--sizes", number) for number in numbers))
