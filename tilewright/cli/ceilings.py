"""What a device was measured to reach, for commands that show figures beside it."""

from __future__ import annotations

from tilewright.cli import bars, common
from tilewright.facts.ceilings import Ceilings
from tilewright.facts.device import Device
from tilewright.inputs.devices import forget
from tilewright.tuning import peak as tuning


def measured(device: Device) -> Ceilings:
    """The ceilings, measured now with progress on stderr; devices carry them from then on."""
    common.note(f"measuring what {device.id} can reach, about a minute, once a driver")
    try:
        with bars.working() as say:
            found = tuning.measure(device, report=say)
    except KeyboardInterrupt:
        common.note(f"stopped while {device.id} was measured: nothing of that is kept")
        raise
    forget()
    return found
