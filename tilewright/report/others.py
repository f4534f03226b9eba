"""Tells whether other processes used the processor during a measurement.

Linux counts the busy time of all cores in /proc/stat, in hundredths of a second; elsewhere nothing
is known, and nothing is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

# Cores of other work from which a measurement counts as disturbed. A desktop at rest takes less.
_MUCH = 0.2
_TICKS = 100.0
_IDLE = (3, 4)  # columns of /proc/stat: idle, and waiting for a disk


def busy_seconds(text: str) -> float:
    """Seconds of work of all cores since the machine started, by the first line of /proc/stat."""
    columns = [int(value) for value in text.split("\n", 1)[0].split()[1:9]]
    return sum(value for index, value in enumerate(columns) if index not in _IDLE) / _TICKS


def watch(
    machine: Callable[[], float | None] | None = None,
    own: Callable[[], float] = time.process_time,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[], bool]:
    """Begin to watch; the answer tells whether others took much of the processor since then."""
    machine = machine or _machine
    begun = machine(), own(), clock()

    def disturbed() -> bool:
        now = machine()
        if now is None or begun[0] is None:
            return False
        wall = max(clock() - begun[2], 1.0 / _TICKS)
        others = (now - begun[0]) - (own() - begun[1])
        return others - 2.0 / _TICKS > _MUCH * wall

    return disturbed


def _machine() -> float | None:
    try:
        return busy_seconds(Path("/proc/stat").read_text())
    except (OSError, ValueError, IndexError):
        return None
