"""What a back end offers to be measured: `backends/X/peak.py` with a function `probes`.

`probes(device, effort)` gives a `Probe` for every row of the device's ceilings; tuning/peak.py runs
them. A back end without the file has no ceilings, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tilewright.engines.backend import Timing
from tilewright.facts.ceilings import Latency, Row
from tilewright.facts.device import Device


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure.

    A run is made long enough to last `seconds` and repeated; the least time counts. `vectors` and
    `chains` are tried in every combination, `sizes` are the working sets in bytes, `sides` those of
    square products where the ceiling is a library's.
    """

    seconds: float = 0.01
    repeats: int = 4
    vectors: tuple[int, ...] = (1, 4, 8, 16)
    chains: tuple[int, ...] = (1, 8, 12, 16)
    sizes: tuple[int, ...] = tuple(1 << power for power in range(14, 32, 2))
    sides: tuple[int, ...] = (512, 1024, 2048)


FULL = Effort()
BRIEF = Effort(0.002, 5, (8,), (12,), (4 << 20,), (512,))  # what predictions need


@dataclass(frozen=True, slots=True)
class Probe:
    """One row to measure: `run(rounds)` does `work` operations (bytes, or one event) a round.

    `cores` is how many of this processor's it keeps busy all the time, 0 where nobody can say. The
    first run may compile. A TilewrightError costs this row only.
    """

    row: Row
    work: float
    run: Callable[[int], Timing]
    cores: int = 0


def distant_step(parts: int) -> int:
    """How many parts a GPU's group moves on from round to round, so that it meets no neighbour.

    Next to the golden section of them. On an H200, whose units have neighbouring groups, a step of
    1 read 256 MiB at 18 TB/s, four times what its memory gives.
    """
    return max(1, round(0.618 * parts))


def parts_of(vectors: int, groups: int, step: int) -> tuple[int, int]:
    """Parts of a set of so many vectors for `groups` groups, and vectors a part, whole steps."""
    parts = max(1, min(groups, vectors // step))
    return parts, max(1, vectors // parts // step) * step


def launches(launched: Callable[[int], Timing]) -> Iterator[Probe]:
    """Of a kernel that does nothing; `launched` enqueues it so often and waits for the last."""

    def one_by_one(rounds: int) -> Timing:
        runs = [launched(1) for _ in range(rounds)]
        return Timing(None, sum(run.wall for run in runs), sum(run.cpu for run in runs))

    def in_a_row(rounds: int) -> Timing:
        run = launched(rounds)
        return Timing(None, run.wall, run.cpu)

    yield Probe(Latency("launch and wait"), 1.0, one_by_one)
    yield Probe(Latency("launch in a row"), 1.0, in_a_row)


class PeakModule(Protocol):
    """A `peak.py` in the folder of a back end."""

    def probes(self, device: Device, effort: Effort) -> Iterable[Probe]:
        """Every row that can be measured there, in the order in which to show them."""
