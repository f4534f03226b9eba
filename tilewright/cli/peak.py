"""`tilewright peak`: what a device was measured to reach, measured now if it never was."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from tilewright.cli import common, results
from tilewright.cli.ceilings import measured
from tilewright.inputs.devices import resolve
from tilewright.report import peaks


def peak(
    device: common.DeviceOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure anew what was measured before.")
    ] = False,
    json: common.JsonOption = None,
    plot: common.PlotOption = None,
) -> None:
    """Measure the most that a device gives: multiply-adds, memories, transfers, launches.

    Examples:

    - `tilewright peak`
    - `tilewright peak --device opencl:1 --plot peak.svg --json peak.json`

    Takes about a minute, once a device and driver; the planner and every table that shows a
    percentage use it from then on.
    """
    results.check_outputs(json, plot)
    chosen = resolve(device)
    found = None if again else chosen.ceilings
    if found is None:
        found = measured(chosen)
    common.console().print(peaks.table(chosen, found))
    draw = partial(peaks.draw, chosen, found)
    results.deliver(json, lambda: peaks.document(chosen, found), plot, draw)
