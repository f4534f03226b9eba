"""The command line: `tilewright COMMAND`. One file a command; adding one is adding it to COMMANDS.

Every TilewrightError becomes one line `error: ...` on stderr and exit status 2; every warning of
ours a line `warning: ...`. Anything else that is raised is a bug and keeps its traceback.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tilewright
from tilewright.cli import (
    cache,
    demo,
    devices,
    grouped,
    ladder,
    matmul,
    onebit,
    peak,
    roofline,
    tune,
)
from tilewright.errors import TilewrightError

COMMANDS = (
    devices.devices,
    peak.peak,
    ladder.ladder,
    roofline.roofline,
    tune.tune,
    matmul.matmul,
    grouped.grouped,
    demo.demo,
)


class _Commands(TyperGroup):
    """Commands in the order of COMMANDS, errors and warnings as single lines."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except TilewrightError as error:
                _complain("error", error)
            except MemoryError as error:
                _complain("error", f"out of memory: {error or 'use a smaller product'}")
        raise typer.Exit(2)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _complain("warning", message)


def _complain(what: str, message: object) -> None:
    print(f"{what}: {' '.join(str(message).split())}", file=sys.stderr)


app = typer.Typer(
    name="tilewright",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tilewright {tilewright.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit."),
    ] = False,
) -> None:
    """Matrix multiplication on every OpenCL device, and on the host where that is faster.

    `tilewright demo` shows all of it; `tilewright COMMAND --help` has examples.
    """


for command in COMMANDS:
    app.command()(command)
app.add_typer(onebit.app)
app.add_typer(cache.app)
