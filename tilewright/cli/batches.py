"""Batches of unlike products as several commands take them: options, and what they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright import suites
from tilewright.cli.sizes import MOST_PROBLEMS, Columns, load
from tilewright.errors import ArgumentError, DtypeError
from tilewright.facts.device import Device
from tilewright.inputs.checks import checked_name
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
