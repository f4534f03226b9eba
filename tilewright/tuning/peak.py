"""Measures a device's ceilings, once, and keeps them: what `tilewright peak` runs.

A back end offers its probes in `backends/X/peak.py`; here they are made long enough to time,
checked against the wall clock, repeated, and stored under the device and its driver. The least time
of the repeats counts: whatever else runs on the machine only ever adds to it. Rows are visited in
turns, at moments that lie apart; one whose two best visits differ is visited again, and said to be
busy where they still do: beside twelve other users of a GPU a row once read a 150th of what it is.
The best visit that another confirms is a row's value: clocks jump, too, and 1,076 GFLOP/s were once
read of a processor that has 339. The fastest row of every type is measured once more at length, as
all that is said of percentages hangs on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import pairwise

from tilewright.engines.backend import Timing
from tilewright.engines.probes import FULL, Effort, PeakModule, Probe
from tilewright.errors import DeviceError, TilewrightError
from tilewright.facts.ceilings import Bandwidth, Ceilings, Latency, Rate, Row, from_dict
from tilewright.facts.device import Device
from tilewright.tuning import store
from tilewright.tuning.timer import LONG_ENOUGH, events_agree, events_lie
from tilewright.wording import in_one_line

_MOST_ROUNDS = 1 << 30  # what a kernel's 32-bit counter holds
_GROWTH = 16
_PATIENCE = 5  # times as many repeats, or as often longer
_VISITS = 2  # of every row, among which the repeats are shared out
_VISITS_MORE = 3  # at most, of rows whose visits differ
_AGREE = 1.15  # between the two best visits of a row
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
    visits, skipped = _visited(device, effort, report)
    if not visits:
        why = "; ".join(f"{row}: {reason}" for row, reason in skipped.items())
        raise DeviceError(f"device={device.id!r}: nothing could be measured ({why})")
    longer = replace(effort, repeats=4 * effort.repeats)
    rates = [row for row in visits if isinstance(row, Rate)]
    for dtype in dict.fromkeys(row.dtype for row in rates):
        some = [visits[row] for row in rates if row.dtype == dtype]
        fastest = max(some, key=lambda visit: visit.best.row.value)
        report(f"{fastest.best.row}, once more")
        fastest.add(longer, device.kind)
        if fastest.differ:
            fastest.add(longer, device.kind)
    bests = [visit.best for visit in visits.values()]
    rows = [best.row for best in bests]
    found = Ceilings(
        device.key,
        datetime.now(UTC).isoformat(timespec="seconds"),
        tuple(row for row in rows if isinstance(row, Rate)),
        tuple(row for row in rows if isinstance(row, Bandwidth)),
        tuple(row for row in rows if isinstance(row, Latency)),
        tuple(str(best.row) for best in bests if best.lied),
        tuple((str(row), reason) for row, reason in skipped.items()),
        tuple(str(row) for row, visit in visits.items() if visit.busy),
    )
    store.save(_key(device), found.as_dict())
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """One visit's row with its value, whether the timer lied, and whether cores were shared."""

    row: Row
    lied: bool
    shared: bool


class _Visits:
    """What was found of one row at moments that lie apart; what other work does only adds time."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.found: list[Found] = []

    def add(self, effort: Effort, kind: str) -> None:
        """One visit more. Raises TilewrightError where the probe fails."""
        self.found.append(run(self.probe, effort, kind))

    def _in_order(self) -> list[Found]:
        rate = not isinstance(self.probe.row, Latency)
        return sorted(self.found, key=lambda one: one.row.value, reverse=rate)

    @property
    def best(self) -> Found:
        """The visit that counts: the best that another confirms; the second best where none is."""
        found = self._in_order()
        confirmed = (one for one, next_ in pairwise(found) if _agree(one, next_))
        return next(confirmed, found[min(1, len(found) - 1)])

    @property
    def differ(self) -> bool:
        """Whether nothing confirms the best of them."""
        found = self._in_order()
        return len(found) < 2 or not _agree(*found[:2])

    @property
    def busy(self) -> bool:
        """Whether something else had a part of the processor or of the device."""
        return self.differ or self.best.shared


def _agree(one: Found, other: Found) -> bool:
    return 1 / _AGREE <= one.row.value / other.row.value <= _AGREE


def _visited(
    device: Device, effort: Effort, report: Callable[[str], None]
) -> tuple[dict[Row, _Visits], dict[Row, str]]:
    """Every row with its visits, and why rows have none.

    Each turn makes the probes anew: what one holds of the device's memory is gone before the next.
    """
    visits: dict[Row, _Visits] = {}
    skipped: dict[Row, str] = {}
    shorter = replace(effort, repeats=max(1, effort.repeats // _VISITS))
    for turn in range(_VISITS + _VISITS_MORE):
        again = [row for row, visit in visits.items() if turn < _VISITS or visit.differ]
        if turn and not again:
            break
        for probe in _probes(device).probes(device, effort):
            if turn and probe.row not in again:
                continue
            report(str(probe.row))
            held = visits.setdefault(probe.row, _Visits(probe))
            held.probe = probe
            try:
                held.add(shorter, device.kind)
            except TilewrightError as error:
                if not held.found:
                    del visits[probe.row]
                    skipped[probe.row] = in_one_line(error)
    return visits, skipped


def run(probe: Probe, effort: Effort, kind: str) -> Found:
    """The probe's row with its value, whether the device's timer lied, and whether cores were busy.

    On GPUs the device's events count where the wall clock confirms them, else the wall clock does.
    While something else takes a part of the cores, the probe is repeated for a while.
    """
    probe.run(1)
    rounds, timings = _long_enough(probe, effort)
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
    row = replace(probe.row, value=value, clock=clock)
    return Found(row, lied, _disturbed(probe, timings))


def _long_enough(probe: Probe, effort: Effort) -> tuple[int, list[Timing]]:
    """Rounds that last about as long as is wanted, and their times.

    A run that waited for others looks long enough after a round or two: where the repeats show
    that it was not, it is made longer.
    """
    rounds = _rounds(probe, effort.seconds)
    for _ in range(_PATIENCE):
        timings = [probe.run(rounds) for _ in range(effort.repeats)]
        least = min(timing.wall for timing in timings)
        if least >= 0.4 * effort.seconds or rounds == _MOST_ROUNDS:
            break
        rounds = _more(rounds, least, effort.seconds)
    return rounds, timings


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
        rounds = _more(rounds, timing.wall, seconds)
    return rounds


def _more(rounds: int, wall: float, seconds: float) -> int:
    """More rounds than those that took `wall`, so that they last about `seconds`."""
    # Far from there the launch is most of the time, so the step is bounded.
    wanted = 1.1 * seconds / max(wall, 1e-9)
    return min(_MOST_ROUNDS, int(rounds * min(max(wanted, 2), _GROWTH)))


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
