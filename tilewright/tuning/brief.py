"""Measures in a few milliseconds what predictions of the host go by, once, and keeps it.

    rows     float32 registers, NumPy's BLAS, reads through the caches; one-bit products where asked
    key      the device with its driver and what holds its code to a set of instructions

`tilewright peak` measures all ceilings for a minute, and what it found counts before this. Each row
is visited twice, the best of all runs counts: whatever else runs only adds to them. Binding calls
`known`, which measures what is missing; explaining calls `stored`, which measures nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from tilewright import settings
from tilewright.backends.host import compiled, rates
from tilewright.engines.probes import BRIEF
from tilewright.facts.ceilings import Bandwidth, Ceilings, Rate, Row, from_dict
from tilewright.facts.device import Device
from tilewright.tuning import store
from tilewright.tuning.peak import run

_VISITS = 2


def stored(device: Device) -> Ceilings | None:
    """What was measured of the host briefly, if anything; measures nothing."""
    document = store.load(_key(device))
    if not document:
        return None
    try:
        return from_dict(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # written by hand or by another version: as good as nothing


def known(device: Device, *, bits: bool = False) -> Device:
    """The host with what its predictions go by, measured now where nobody did.

    `bits`: rows of one-bit products too. Without Numba, or without a place to keep what is found,
    nothing is measured.
    """
    if device.backend != "host" or not compiled.available() or settings.cache_folder() is None:
        return device
    if not any(one and one.best("float32") for one in (device.ceilings, device.brief)):
        device = replace(device, brief=_more(device, bits=False))
    if bits and rates.counting(device, rates.counts_by()) is None:
        device = replace(device, brief=_more(device, bits=True))
    return device


def _more(device: Device, *, bits: bool) -> Ceilings:
    from tilewright.backends.host import peak  # most processes measure nothing

    before = device.brief
    rows: list[Row] = [*before.rates, *before.bandwidths] if before else []
    with compiled.LOCK:
        for probe in peak.brief(device, bits=bits):
            visits = [run(probe, BRIEF, device.kind).row for _ in range(_VISITS)]
            rows.append(max(visits, key=lambda row: row.value))
    found = Ceilings(
        device.key,
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(row for row in rows if isinstance(row, Rate)),
        tuple(row for row in rows if isinstance(row, Bandwidth)),
    )
    store.save(_key(device), found.as_dict())
    return found


def _key(device: Device) -> str:
    return f"brief ceilings|{device.key}"
