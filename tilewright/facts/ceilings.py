"""Ceilings: what a device was measured to reach at most, and the roof that follows from it.

Rows are kept as measured, the best and the rest: multiply-add rates by type, way, vector width and
number of independent chains; bandwidths by path and working set; latencies. The roof over a product
is Williams, Waterman and Patterson's roofline (CACM 52, 2009) with both parts measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FMA, READ = "fma", "read"
# What a product of this type may sum in: halves are summed in singles by default.
_SUMS = {"float16": ("float16", "float32"), "bfloat16": ("bfloat16", "float32")}


@dataclass(frozen=True, slots=True)
class Rate:
    """Operations a second, a multiplication and an addition being two.

    `way` is how they were written: "a*b+c", "mad", "fma", a call of a library. `vector` is the
    width of a variable, `chains` how many of them depend on nothing but themselves; 0 where the way
    has no such thing. `clock` says which clock was believed, "events" or "wall".
    """

    dtype: str
    way: str
    vector: int = 0
    chains: int = 0
    value: float = 0.0
    clock: str = "wall"

    def __str__(self) -> str:
        if not self.chains:
            return f"{self.dtype} {self.way}"
        return f"{self.dtype} {self.way}, vector {self.vector} × {self.chains} chains"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes a second over `path`, with a working set of `size` bytes; a copy counts both ways."""

    path: str
    size: int
    value: float = 0.0
    clock: str = "wall"

    def __str__(self) -> str:
        return f"{self.path}, {bytes_text(self.size)}"


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that `what` takes at least, with nothing to do."""

    what: str
    value: float = 0.0
    clock: str = "wall"

    def __str__(self) -> str:
        return self.what


Row = Rate | Bandwidth | Latency


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Everything measured of one device; `key` names it with its driver, `date` is UTC.

    `lies` names the rows whose event times could not be true beside the wall clock, which counted
    instead; `busy` the rows during which something else had a part of the processor or of the
    device; `skipped` has a row and a reason for each that could not be measured.
    """

    key: str
    date: str
    rates: tuple[Rate, ...]
    bandwidths: tuple[Bandwidth, ...]
    latencies: tuple[Latency, ...] = ()
    lies: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    busy: tuple[str, ...] = ()

    def best(self, dtype: str, way: str | None = None) -> Rate | None:
        """The fastest row of a type, of one way alone where that is named.

        Busy ones count only where there are no others: their clocks read twice too much at times.
        """
        rows = [rate for rate in self.rates if rate.dtype == dtype and way in (None, rate.way)]
        calm = [rate for rate in rows if str(rate) not in self.busy]
        return max(calm or rows, key=lambda rate: rate.value, default=None)

    def peak(self, dtype: str) -> Rate | None:
        """The fastest row that a product of this type may use: halves are summed in singles too."""
        rows = (self.best(name) for name in _SUMS.get(dtype, (dtype,)))
        return max((row for row in rows if row), key=lambda rate: rate.value, default=None)

    def memory(self, size: float = math.inf) -> Bandwidth | None:
        """The fastest read of a working set of `size` bytes or more: a bound, not a mean.

        Beyond the largest set that was measured it is that set's.
        """
        reads = sorted((row for row in self.bandwidths if row.path == READ), key=lambda r: r.size)
        if not reads:
            return None
        # A set between two that were measured is bounded by the smaller of them.
        start = max((i for i, row in enumerate(reads) if row.size <= size), default=0)
        return max(reads[start:], key=lambda row: row.value)

    def seconds(self, flops: float, size: float, dtype: str) -> float:
        """The least time in which the device can do `flops` on `size` bytes, each moved once.

        0 where nothing that bounds it was measured.
        """
        peak, memory = self.peak(dtype), self.memory(size)
        busy = flops / peak.value if peak else 0.0
        return max(busy, size / memory.value if memory else 0.0)

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON types."""
        return asdict(self)


def from_dict(document: Mapping[str, Any]) -> Ceilings:
    """The record that `as_dict` wrote. Raises ValueError or KeyError or TypeError for others."""
    found = Ceilings(
        key=str(document["key"]),
        date=str(document["date"]),
        rates=tuple(Rate(**row) for row in document["rates"]),
        bandwidths=tuple(Bandwidth(**row) for row in document["bandwidths"]),
        latencies=tuple(Latency(**row) for row in document["latencies"]),
        lies=tuple(str(name) for name in document["lies"]),
        skipped=tuple((str(name), str(why)) for name, why in document["skipped"]),
        busy=tuple(str(name) for name in document["busy"]),
    )
    rows: tuple[Row, ...] = (*found.rates, *found.bandwidths, *found.latencies)
    for row in rows:
        if not (isinstance(row.value, float) and 0 < row.value < math.inf):
            raise ValueError(f"{row}: {row.value!r} is no measurement")
    return found


def bytes_text(count: int) -> str:
    """`48 KiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}".replace(".0 ", " ")
    return f"{count} B"
