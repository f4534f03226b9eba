"""The command line, `tilewright COMMAND`: those named in COMMANDS and GROUPS, a file for each.

The other files here are what commands share: options, files, sizes, pictures, how a command ends.

What the user can mend (a TilewrightError, a wrong option, a full disk) becomes one line `error:
...` on stderr and exit status 2, every warning a line `warning: ...`; Ctrl-C ends with 130.
Anything else that is raised is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import sys
import warnings
from typing import Annotated, Any

import typer

import tilewright
from tilewright.cli import ending
from tilewright.cli.ending import complain
from tilewright.cli.late import Commands, LateGroup
from tilewright.errors import TilewrightError

# A file here each, with a function of the same name whose docstring is the help.
COMMANDS = (
    *("devices", "doctor", "peak", "ladder", "roofline", "tune", "matmul", "grouped"),
    *("profile", "analyse", "enhance", "label", "demo"),
)
# A file here each, with an `app` of several; and what they are for.
GROUPS = {
    "net": "Networks of any operators from ONNX files: convert, look inside, run, time, quantise.",
    "onebit": "Networks of one-bit weights and activations: convert, look inside, run, time.",
    "cache": "Compiled programs, measurements and tuned configurations on disk.",
}


class _Commands(LateGroup):
    """Commands in the order of COMMANDS, errors and warnings as single lines."""

    entered: Any = None  # the context of the last call that came as far as a command

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": Commands(__name__, COMMANDS, GROUPS)})

    def invoke(self, ctx: Any) -> Any:
        self.entered = ctx
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except TilewrightError as error:
                complain("error", error)
            except MemoryError as error:
                complain("error", f"out of memory: {error or 'use a smaller product'}")
            except KeyboardInterrupt:
                complain("error", "interrupted")
                raise typer.Exit(ending.INTERRUPTED) from None
            except OSError as error:
                if error.errno == errno.EPIPE:  # `| head` has seen enough
                    raise
                complain("error", ending.what_failed(error))
        raise typer.Exit(2)

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command that `sys.argv` or `args` names, and exit with its status."""
        alone = options.get("standalone_mode", True)
        options["standalone_mode"] = False
        self.entered = None
        if not alone:
            return super().main(*args, **options)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # names of files need not be text
                stream.reconfigure(errors="backslashreplace")
        with ending.heard_signals():
            try:
                status = super().main(*args, **options) or 0
                if not ending.flushed():
                    complain("error", "standard output: cannot be written")
                    status = 2
            except OSError as error:
                status = 1
                if error.errno != errno.EPIPE:
                    complain("error", ending.what_failed(error))
                    status = 2
            except Exception as error:
                status = _complained(error, self.entered)
        sys.exit(status)


def _complained(error: Exception, entered: Any) -> int:
    """A wrong option or argument in one line; help where nothing was given, as it shows itself."""
    if not hasattr(error, "format_message"):
        raise error
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
        return 2
    command = getattr(getattr(error, "ctx", None), "command_path", None)
    if command is None:  # a parser's error, which does not know whose options it reads
        command = "tilewright"
        if entered is not None and entered.invoked_subcommand:
            command = f"{entered.command_path} {entered.invoked_subcommand}"
    complain("error", f"{error.format_message()} (`{command} --help` tells what is accepted)")
    return 2


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    complain("warning", message)


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
    """Matrix multiplication, networks made of it, and films, on GPUs, OpenCL devices and the host.

    `tilewright demo` shows all of it; `tilewright COMMAND --help` has examples.
    """
