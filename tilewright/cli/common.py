"""What several commands share: options, consoles, checks of what was typed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tilewright.arrays.views import DTYPES
from tilewright.errors import ArgumentError, DtypeError, FileError
from tilewright.files.whole import check_writable

# Wide enough for a ladder; what reads a pipe has no width of its own.
PIPE_WIDTH = 100

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
