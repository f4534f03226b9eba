"""How fast the host's engines of networks work: what their predictions are made of."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.facts.device import Device


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device.

    blas     operations a second of NumPy's BLAS on all cores, float32
    move     bytes a second of a core through the last cache
    origin   where they are from, in words
    """

    blas: float = 2.6e11
    move: float = 1.2e10
    origin: str = "at rates measured on two AVX-512 cores"


def of(device: Device) -> Rates:
    """The rates of a device."""
    return Rates()
