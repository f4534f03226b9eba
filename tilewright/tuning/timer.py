"""Tells whether a device's event times can be true, by the wall clock of the same runs.

An honest event leaves out only the launch, microseconds: it cannot exceed the wall clock, nor be
half of it once a run lasts a millisecond. Shorter runs prove nothing about the driver.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

EVENT_RATIO = (0.5, 1.05)
LONG_ENOUGH = 1e-3


def events_agree(events: Sequence[float], walls: Sequence[float]) -> bool:
    """Whether events and wall clock of the same runs tell about the same; true without events."""
    if not events:
        return True
    ratios = [event / wall for event, wall in zip(events, walls, strict=True)]
    low, high = EVENT_RATIO
    return low <= statistics.median(ratios) <= high


def events_lie(events: Sequence[float], walls: Sequence[float]) -> bool:
    """Whether event times cannot be true, given runs long enough to tell."""
    return statistics.median(walls) > LONG_ENOUGH and not events_agree(events, walls)
