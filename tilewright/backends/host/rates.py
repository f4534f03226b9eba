"""How fast this processor is beside the one that engines' rates were measured on.

    seconds of an engine = start + seconds at its own rates * factor

The rates stand in the engines; they are of one core with AVX-512. `tilewright peak` measures the
device's own peak, with its visits and checks, and all are scaled by that one factor, so that
engines stay to each other as they were measured. Rates of each engine, measured when a network is
bound, were thought of: on a processor that others share such a moment was off by up to three times,
and what is stored then would stay wrong; a peak that several visits confirm is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.facts.device import Device

_PEAK = 1.75e11  # float32 operations a second of the core that the rates are of
_BLAS = 1.3e11  # the same of NumPy's BLAS there
_MOVE = 1.2e10  # bytes a second of that core through the last cache


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one device.

    factor   what seconds at the engines' rates are multiplied by
    blas     operations a second of NumPy's BLAS on all cores, float32
    move     bytes a second of a core through the last cache
    origin   where they are from, in words; of the BLAS `blas_origin`
    """

    factor: float
    blas: float
    move: float
    origin: str
    blas_origin: str


def of(device: Device) -> Rates:
    """The rates of a device, by its own peak where that was measured."""
    cores = max(1, device.compute_units)
    peak = device.ceilings.peak("float32") if device.ceilings else None
    if device.ceilings is None or peak is None:
        words = "at rates of an AVX-512 core"
        return Rates(1.0, _BLAS * cores, _MOVE, words, words)
    share = peak.value / (_PEAK * cores)
    own = [r.value for r in device.ceilings.rates if _is_blas(r.dtype, r.way)]
    words = f"at rates of an AVX-512 core times {share:.2f}, by this one's peak"
    blas = max(own, default=_BLAS * cores * share)
    return Rates(1 / share, blas, _MOVE * share, words, "at its measured rate" if own else words)


def _is_blas(dtype: str, way: str) -> bool:
    return dtype == "float32" and way.startswith("numpy.matmul")
