"""Scales what was measured of a chip to another device: by their ceilings, where it has them.

    ceilings (tilewright peak)   multiply: its peak a compute unit over the chip's
                                 memory:   its largest read over the chip's
    none                         both count as the chip's, and only the units differ

Engines multiply the chip's rates by these, so measuring a device changes what they predict of it,
and with that what is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.facts.device import Device
from tilewright.facts.dtypes import PARTS
from tilewright.facts.measured import h200


@dataclass(frozen=True, slots=True)
class Scale:
    """Compute units, how many times as fast each multiplies, and the memory; None: unmeasured."""

    units: int = h200.UNITS
    multiply: float = 1.0
    memory: float | None = None

    @property
    def share(self) -> float:
        """Units over the chip's."""
        return self.units / h200.UNITS

    @property
    def bandwidth(self) -> float:
        """Of memory over the chip's, taken for the same where it was not measured."""
        return 1.0 if self.memory is None else self.memory


def scale(device: Device, dtype: str, precision: str = "ieee") -> Scale:
    """How the device compares in products of a dtype; those in tf32 are tensor cores' as well."""
    units, found = device.compute_units, device.ceilings
    if found is None:
        return Scale(units)
    kind = "bfloat16" if precision == "tf32" else PARTS.get(dtype, dtype)
    peak, read = found.peak(kind), found.memory()
    known = h200.PEAKS[kind] / h200.UNITS
    multiply = 1.0 if peak is None else peak.value / units / known
    return Scale(units, multiply, None if read is None else read.value / h200.READ)
