"""Repeats a run as often as it needs, and says which clock to believe: device events or the wall.

Ten warm-ups and the median of twenty; fewer for what is so slow that it would take too long, never
fewer than three. How many there were is kept with the samples.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.engines.backend import Timing
from tilewright.tuning.timer import events_agree, events_lie

MIN_REPEATS = 3
# Seconds before a block of another library: threads of OpenMP and MKL spin for 0.2 s after a run,
# and would take a core of two from whoever comes next.
REST = 0.25


@dataclass(frozen=True, slots=True)
class Effort:
    """How often to run, and about how many seconds that may take."""

    warmups: int = 10
    repeats: int = 20
    budget: float = 6.0

    def affordable(self, seconds: float) -> tuple[int, int]:
        """Warm-ups and repeats for a run of so many seconds."""
        runs = self.budget / max(seconds, 1e-9)
        if runs >= self.warmups + self.repeats:
            return self.warmups, self.repeats
        share = self.repeats / (self.warmups + self.repeats)
        repeats = min(self.repeats, max(MIN_REPEATS, int(runs * share)))
        return min(self.warmups, max(1, int(runs * (1 - share)))), repeats


FULL = Effort()


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of every counted run. `events` is empty where there is no device to give any."""

    warmups: int
    walls: tuple[float, ...]
    cpus: tuple[float, ...]
    events: tuple[float, ...] = ()

    @property
    def repeats(self) -> int:
        """Runs that counted."""
        return len(self.walls)

    @property
    def wall(self) -> float:
        """Median by the wall clock."""
        return statistics.median(self.walls)

    @property
    def event(self) -> float | None:
        """Median by the device's events."""
        return statistics.median(self.events) if self.events else None

    @property
    def cpu_use(self) -> float:
        """Processor time over wall time: 1.0 is one core busy throughout."""
        return sum(self.cpus) / max(sum(self.walls), 1e-9)

    @property
    def events_lie(self) -> bool:
        """Whether event times cannot be true, given the wall clock of the same runs."""
        return events_lie(self.events, self.walls)

    @property
    def events_agree(self) -> bool:
        """Whether events and wall clock tell about the same; true where there are no events."""
        return events_agree(self.events, self.walls)

    def clock(self, device_kind: str) -> str:
        """ "events" on a GPU whose events agree with the wall clock, else "wall"."""
        on_gpu = device_kind in ("gpu", "accelerator")
        return "events" if on_gpu and self.events and self.events_agree else "wall"


def seconds_of(call: Callable[[], object]) -> float:
    """Of one call, by the wall clock."""
    return Timing.of(call).wall


def block(call: Callable[[], object], seconds: float, least: int = 1) -> list[float]:
    """Seconds of each call of a block that lasts so long, of so many calls at the least."""
    values: list[float] = []
    begun = time.perf_counter()
    while len(values) < least or time.perf_counter() - begun < seconds:
        values.append(seconds_of(call))
    return values


def sample(run: Callable[[], Timing], effort: Effort) -> Samples:
    """Run as often as the effort allows. The first run, which may compile, never counts."""
    run()
    second = run()
    warmups, repeats = effort.affordable(second.wall)
    for _ in range(warmups - 2):
        run()
    kept = [second] if warmups == 1 else []
    kept += [run() for _ in range(repeats - len(kept))]
    return Samples(
        max(warmups, 1),
        tuple(timing.wall for timing in kept),
        tuple(timing.cpu for timing in kept),
        tuple(timing.events for timing in kept if timing.events is not None),
    )
