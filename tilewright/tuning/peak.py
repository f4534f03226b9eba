"""Measures a device's ceilings, once, and keeps them: what `tilewright peak` runs.

A back end offers its probes in `backends/X/peak.py`; here they are made long enough to time,
checked against the wall clock, repeated, and stored under the device and its driver. The least time
of the repeats counts: whatever else runs on the machine only ever adds to it. The fastest row of
every type is measured once more at length, as all that is said of percentages hangs on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec

from tilewright.backends import Timing
from tilewright.backends.probes import FULL, Effort, PeakModule, Probe
from tilewright.ceilings import Bandwidth, Ceilings, Latency, Rate, Row, from_dict
from tilewright.device import Device
from tilewright.errors import DeviceError, TilewrightError
from tilewright.tuning import store
from tilewright.tuning.timer import LONG_ENOUGH, events_agree, events_lie

_MOST_ROUNDS = 1 << 30  # what a kernel's 32-bit counter holds
_GROWTH = 16
_PATIENCE = 5  # times as many repeats
_UNDISTURBED = 0.85  # of the time on every core


def stored(device: Device) -> Ceilings | None:
    """What was measured of the device with this driver, if anything; measures nothing."""
    document = store.load(_key(device))
    if not document:
        return None
    try:
        found = from_dict(document)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # written by hand or by another version: as good as nothing
    return found if found.key == device.key else None


def with_ceilings(device: Device) -> Device:
    """The device with what was stored of it."""
    return replace(device, ceilings=stored(device))


def measure(
    device: Device,
    *,
    effort: Effort = FULL,
    report: Callable[[str], None] = lambda name: None,
) -> Ceilings:
    """Every row that the device's back end offers, stored; `report` hears each before it runs.

    A row that fails is named among `skipped` and ends nothing. Raises DeviceError where the back
    end offers none, or none could be measured.
    """
    rows: list[Row] = []
    lies: list[str] = []
    busy: list[str] = []
    skipped: list[tuple[str, str]] = []
    best: dict[str, tuple[Rate, Probe]] = {}
    for probe in _probes(device).probes(device, effort):
        report(str(probe.row))
        try:
            row, lied, shared = run(probe, effort, device.kind)
        except TilewrightError as error:
            skipped.append((str(probe.row), _one_line(error)))
            continue
        rows.append(row)
        lies += [str(row)] if lied else []
        busy += [str(row)] if shared else []
        if isinstance(row, Rate) and (
            row.dtype not in best or row.value > best[row.dtype][0].value
        ):
            best[row.dtype] = row, probe
    if not rows:
        why = "; ".join(f"{name}: {reason}" for name, reason in skipped)
        raise DeviceError(f"device={device.id!r}: nothing could be measured ({why})")
    longer = replace(effort, repeats=4 * effort.repeats)
    for row, probe in best.values():
        report(f"{row}, once more")
        again, *_ = run(probe, longer, device.kind)
        rows[rows.index(row)] = max(row, again, key=lambda found: found.value)
    found = Ceilings(
        device.key,
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(row for row in rows if isinstance(row, Rate)),
        tuple(row for row in rows if isinstance(row, Bandwidth)),
        tuple(row for row in rows if isinstance(row, Latency)),
        tuple(lies),
        tuple(skipped),
        tuple(busy),
    )
    store.save(_key(device), found.as_dict())
    return found


def run(probe: Probe, effort: Effort, kind: str) -> tuple[Row, bool, bool]:
    """The probe's row with its value, whether the device's timer lied, and whether cores were busy.

    On GPUs the device's events count where the wall clock confirms them, else the wall clock does.
    While something else takes a part of the cores, the probe is repeated for a while.
    """
    probe.run(1)
    rounds = _rounds(probe, effort.seconds)
    timings = [probe.run(rounds) for _ in range(effort.repeats)]
    for _ in range(_PATIENCE * effort.repeats):
        if not _disturbed(probe, timings):
            break
        timings.append(probe.run(rounds))
    walls = [timing.wall for timing in timings]
    events = [timing.events for timing in timings if timing.events is not None]
    lied = events_lie(events, walls)
    confirmed = bool(events) and events_agree(events, walls) and min(walls) > LONG_ENOUGH
    clock = "events" if confirmed and kind in ("gpu", "accelerator") else "wall"
    seconds = max(min(events if clock == "events" else walls), 1e-12)
    work = probe.work * rounds
    value = seconds / work if isinstance(probe.row, Latency) else work / seconds
    return replace(probe.row, value=value, clock=clock), lied, _disturbed(probe, timings)


def _disturbed(probe: Probe, timings: list[Timing]) -> bool:
    """Whether even the fastest run had less of the cores than it can use."""
    best = min(timings, key=lambda timing: timing.wall)
    return best.cpu < _UNDISTURBED * probe.cores * best.wall


def _rounds(probe: Probe, seconds: float) -> int:
    """Rounds with which a run lasts about so many seconds by the wall clock."""
    rounds = 1
    while rounds < _MOST_ROUNDS:
        timing: Timing = probe.run(rounds)
        if timing.wall >= 0.7 * seconds:
            break
        # Far from there the launch is most of the time, so the step is bounded.
        wanted = 1.1 * seconds / max(timing.wall, 1e-9)
        rounds = min(_MOST_ROUNDS, int(rounds * min(max(wanted, 2), _GROWTH)))
    return rounds


def _probes(device: Device) -> PeakModule:
    package = f"tilewright.backends.{device.backend}"
    name = f"{package}.peak"
    if find_spec(package) is None or find_spec(name) is None:
        raise DeviceError(
            f"device={device.id!r}: its back end {device.backend!r} has no probes; accepted are"
            " devices of a back end with a file peak.py"
        )
    module: PeakModule = importlib.import_module(name)
    return module


def _key(device: Device) -> str:
    return f"ceilings|{device.key}"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
