"""`tilewright peak`: what a device was measured to reach, measured now if it never was."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from tilewright.cli import common
from tilewright.facts.ceilings import Ceilings
from tilewright.facts.device import Device
from tilewright.inputs.devices import forget, resolve
from tilewright.report import peaks
from tilewright.tuning import peak as tuning


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
    common.check_outputs(json, plot)
    chosen = resolve(device)
    found = None if again else chosen.ceilings
    if found is None:
        found = measured(chosen)
    common.console().print(peaks.table(chosen, found))
    draw = partial(peaks.draw, chosen, found)
    common.deliver(json, lambda: peaks.document(chosen, found), plot, draw)


def measured(device: Device) -> Ceilings:
    """The ceilings, measured now with progress on stderr; devices carry them from then on."""
    common.note(f"measuring what {device.id} can reach, about a minute, once a driver")
    try:
        with common.working() as say:
            found = tuning.measure(device, report=say)
    except KeyboardInterrupt:
        common.note(f"stopped while {device.id} was measured: nothing of that is kept")
        raise
    forget()
    return found
