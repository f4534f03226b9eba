"""What engines' predictions are scaled by: ceilings that were measured on this processor.

    seconds of an engine = start + seconds on the core that it counts in * factor

Engines say what they take as a share of a core's peak, written as seconds on a core of 175 GFLOP/s
in float32. The factor is that over this core's own peak, as compiled for here: held to another set
of instructions it has another. `tilewright peak` measures it in its minute, binding a network in a
few milliseconds (tuning/brief.py), explaining not at all. One factor for all keeps engines to each
other as they were; the BLAS, reads through the caches and the counting of bits have rows of their
own. Rates of each engine, measured when a network is bound, were thought of: on a processor that
others share such a moment was off by up to three times; a ceiling's best of ten runs is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.host import compiled
from tilewright.facts.device import Device

PEAK = 1.75e11  # float32 operations a second of the core that engines count in
_BLAS = 0.75  # of a core's peak that a BLAS reaches, until its own rate is measured
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
    """The rates of a device, by its own peak where that was measured. Measures nothing."""
    cores = max(1, device.compute_units)
    measured = device.ceilings or device.brief
    peak = measured.peak("float32") if measured else None
    if measured is None or peak is None:
        words = f"at an assumed {PEAK / 1e9:.0f} GFLOP/s a core; binding measures this one's"
        return Rates(1.0, _BLAS * PEAK * cores, _MOVE, words, words)
    share = peak.value / (PEAK * cores)
    own = [r.value for r in measured.rates if _is_blas(r.dtype, r.way)]
    words = f"by {peak.value / cores / 1e9:.3g} GFLOP/s a core, measured here"
    blas = max(own, default=_BLAS * peak.value)
    return Rates(1 / share, blas, _MOVE * share, words, "at its measured rate" if own else words)


def counts_by() -> str:
    """How a kernel of this process counts bits, as rows of ceilings name it."""
    return f"popcount by {compiled.kernels('popcounts').scheme()}"


def counting(device: Device, way: str) -> float | None:
    """One-bit operations a second of a core counting in this way, where measured."""
    for measured in (device.ceilings, device.brief):
        row = measured.best("bits", way) if measured else None
        if row is not None:
            return row.value / max(1, device.compute_units)
    return None


def _is_blas(dtype: str, way: str) -> bool:
    return dtype == "float32" and way.startswith("numpy.matmul")
