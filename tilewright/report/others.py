"""Tells whether other processes used the processor during a measurement.

Systems count the busy time of all cores, Linux and macOS in hundredths of a second; where one does
not, nothing is known, and nothing is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tilewright.facts.machine import busy_seconds

# Cores of other work from which a measurement counts as disturbed. A desktop at rest takes less.
_MUCH = 0.2
_TICKS = 100.0


def watch(
    machine: Callable[[], float | None] = busy_seconds,
    own: Callable[[], float] = time.process_time,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[], bool]:
    """Begin to watch; the answer tells whether others took much of the processor since then."""
    begun = machine(), own(), clock()

    def disturbed() -> bool:
        now = machine()
        if now is None or begun[0] is None:
            return False
        wall = max(clock() - begun[2], 1.0 / _TICKS)
        others = (now - begun[0]) - (own() - begun[1])
        return others - 2.0 / _TICKS > _MUCH * wall

    return disturbed
