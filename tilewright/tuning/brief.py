"""Measures in a few milliseconds what predictions of the host go by, once, and keeps it.

    rows     float32 registers, NumPy's BLAS, reads through the caches; one-bit products where asked
    key      the device with its driver and what holds its code to a set of instructions

`tilewright peak` measures all ceilings for a minute, and what it found counts before this. Each row
is visited twice, where that is a matter of milliseconds; the best of all runs counts: whatever else
runs only adds to them. Rows that something else disturbed, or that contradict each other, are kept
as such, and the next process that binds measures again; so it was that registers came to 72 GFLOP/s
a core, and stayed there, on a core of 118. Binding calls `known`, which measures what is missing;
explaining calls `stored`, which measures nothing.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from tilewright import settings
from tilewright.backends.host import compiled, rates
from tilewright.engines.probes import BRIEF
from tilewright.facts.ceilings import FMA, Bandwidth, Ceilings, Rate, Row, from_dict
from tilewright.facts.device import Device
from tilewright.tuning import store
from tilewright.tuning.peak import run

_VISITS, _ENOUGH = 2, 0.1  # seconds after which no row is visited a second time
_again: set[str] = set()  # devices that this process has measured


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
    known = any(one and one.best("float32") for one in (device.ceilings, device.brief))
    if not known or (device.ceilings is None and _is_doubtful(device)):
        device = replace(device, brief=_more(device, bits=False))
    if bits and rates.counting(device, rates.counts_by()) is None:
        device = replace(device, brief=_more(device, bits=True))
    return device


def _is_doubtful(device: Device) -> bool:
    """Whether this process, once, is to measure again: under load that takes half a second."""
    return bool(device.brief and device.brief.busy) and device.key not in _again


def _more(device: Device, *, bits: bool) -> Ceilings:
    from tilewright.backends.host import peak  # most processes measure nothing

    _again.add(device.key)
    before = device.brief
    rows: dict[str, Row] = {}
    busy: set[str] = set()
    if before is not None:
        rows.update((str(row), row) for row in before.rates)
        rows.update((str(row), row) for row in before.bandwidths)
        busy = set(before.busy)
    begun = time.perf_counter()
    with compiled.LOCK:
        for probe in peak.brief(device, bits=bits):
            visits = [run(probe, BRIEF, device.kind)]
            while len(visits) < _VISITS and time.perf_counter() - begun < _ENOUGH:
                visits.append(run(probe, BRIEF, device.kind))
            best = max(visits, key=lambda found: found.row.value)
            name = str(best.row)
            if name not in rows or best.row.value > rows[name].value or not best.shared:
                (busy.add if best.shared else busy.discard)(name)
            if name not in rows or best.row.value > rows[name].value:
                rows[name] = best.row
    found = Ceilings(
        device.key,
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(row for row in rows.values() if isinstance(row, Rate)),
        tuple(row for row in rows.values() if isinstance(row, Bandwidth)),
        busy=tuple(sorted(busy | contradicted(tuple(rows.values())))),
    )
    store.save(_key(device), found.as_dict())
    return found


def contradicted(rows: tuple[Row, ...]) -> set[str]:
    """Rows of registers alone that a BLAS, which also reads memory, is measured to exceed."""
    single = [row for row in rows if isinstance(row, Rate) and row.dtype == "float32"]
    others = max((row.value for row in single if row.way != FMA), default=0.0)
    return {str(row) for row in single if row.way == FMA and row.value < others}


def _key(device: Device) -> str:
    return f"brief ceilings|{device.key}"
