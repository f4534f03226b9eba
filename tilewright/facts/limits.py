"""The largest sizes that matrices may have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.facts.device import Device

MOST = 2**31 - 64  # kernels count rows and columns in 32 bits, a tile past the last
# Of k, on a device with "short_loops": its driver ends the loops of a work-item after 65,535 steps
# together, without a word. Every kernel was right to 4,099 there, `local` wrong at 20,000.
SHORT_LOOPS = 4096


def why_too_long(k: int | npt.NDArray[np.int64], device: Device) -> str | None:
    """Why sums of so many terms cannot be had of a device, if so: of one k, or of a batch's."""
    if device.has("short_loops") and (longest := int(np.max(k, initial=0))) > SHORT_LOOPS:
        return f"k={longest}: this driver ends long loops early; accepted is k to {SHORT_LOOPS}"
    return None
