"""Records of a measured batch of unlike products, and the figures that follow from them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from tilewright.facts.device import Device
from tilewright.facts.dtypes import sums_of
from tilewright.facts.problem import Column
from tilewright.planning.grouped import Balance
from tilewright.tuning.trial import allowed_error

NUMPY_LOOP, OUR_LOOP = "loop of numpy.matmul", "loop of tilewright.matmul"
OUR_CALL, PADDED = "tilewright.grouped_matmul", "padded to the largest"


@dataclass(frozen=True, slots=True)
class Planning:
    """Seconds to plan anew, to find the plan again, and to bind; and what was decided."""

    chosen: str
    reason: str
    anew: float
    cached: float
    bind: float
    predicted: float | None
    balance: Balance | None


@dataclass(frozen=True, slots=True)
class Way:
    """One way, measured: seconds of every counted run, and its error against float64.

    `error` is the largest over all problems, each relative to its largest magnitude or to √k where
    that is larger, as operands are standard normal. `skipped` is why it did not run.
    """

    name: str
    times: tuple[float, ...] = ()
    error: float = 0.0
    planning: Planning | None = None
    skipped: str | None = None

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.times)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The rate that percentages count from, in flops a second, and where it comes from."""

    rate: float
    source: str


@dataclass(frozen=True)
class Report:
    """A batch on a device, every way."""

    title: str
    device: Device
    dtype: str
    seed: int
    m: Column
    n: Column
    k: Column
    ways: tuple[Way, ...]
    ceiling: Ceiling | None

    @property
    def flops(self) -> float:
        """Multiplications and additions of the batch; padding does not count."""
        return flops_of(self.m, self.n, self.k)

    def right(self, way: Way) -> bool:
        """Whether its error is rounding: twice NumPy's, 1e-6, and what a plain sum of k adds."""
        numpy = next((w.error for w in self.ways if w.name == NUMPY_LOOP), 0.0)
        allowed = allowed_error(sums_of(self.dtype), int(self.k.max(initial=0)), numpy)
        return way.skipped is not None or way.error <= allowed

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names of ways whose results are not right."""
        return tuple(way.name for way in self.ways if not self.right(way))


def flops_of(m: Column, n: Column, k: Column) -> float:
    """Multiplications and additions of a batch."""
    return 2.0 * float(np.sum(m.astype(np.float64) * n * k))
