"""Where a command's figures go beside the screen: --json and --plot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.files.whole import check_writable, write_json
from tilewright.report import plots


def check_outputs(json: Path | None, plot: Path | None) -> None:
    """Raise for files that could not be written, before anything is measured."""
    check_writable(json, "--json")
    if plot is not None:
        plots.check(plot, "--plot")


def deliver(
    json: Path | None,
    document: Callable[[], Any],
    plot: Path | None,
    draw: Callable[[Path, str], None],
) -> None:
    """Write what was asked for, and say so."""
    if json is not None:
        write_json(json, document())
        print(f"wrote {json}")
    if plot is not None:
        draw(plot, "--plot")
        print(f"wrote {plot}")
