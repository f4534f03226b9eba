"""`tilewright devices`: what this machine can multiply on."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tilewright.cli.common import console
from tilewright.inputs.devices import devices as all_devices
from tilewright.report.tables import device_cards


def devices(
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON list of everything known of them.")
    ] = False,
) -> None:
    """Show every device: the best first, the host last.

    Examples:

    - `tilewright devices`
    - `tilewright devices --json`
    """
    found = all_devices()
    if as_json:
        print(json.dumps([device.as_dict() for device in found], indent=1))
    else:
        console().print(device_cards(found))
