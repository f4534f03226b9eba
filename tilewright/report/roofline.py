"""Places measured work under a device's measured roof.

intensity   operations a byte, every operand counted once: what a product has to move at least
roof        operations / the least time: by the arithmetic peak of the type, or by those bytes at
            the bandwidth measured for a working set of that size (Ceilings.seconds)
share       rate / roof

No work can be above the roof, so a point that is says that one of the two measurements is wrong:
a clock, a count of bytes or operations, a ceiling taken on a busy machine or with another driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.facts.ceilings import Ceilings
from tilewright.facts.device import Device
from tilewright.report.document import provenance
from tilewright.report.grouped_records import NUMPY_LOOP, OUR_LOOP, Report
from tilewright.report.ladder import problem_of
from tilewright.report.peers import NUMPY, SERIAL
from tilewright.report.records import KERNEL, Ladder

SCHEMA = "tilewright-roofline/1"
# Ceilings are least times and rates are medians, each of its own run on a machine that others use.
TOLERANCE = 1.05


@dataclass(frozen=True, slots=True)
class Point:
    """Work that was measured: operations, least bytes, and the seconds that it took."""

    name: str
    dtype: str
    flops: float
    size: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.size

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.flops / self.seconds


@dataclass(frozen=True, slots=True)
class Placed:
    """A point, the roof over it in operations a second, and which part of the roof that is."""

    point: Point
    roof: float
    bound: str

    @property
    def share(self) -> float:
        """Of the roof; 1 is on it."""
        return self.point.rate / self.roof

    @property
    def above(self) -> bool:
        """Whether it is above the roof by more than noise, which cannot be."""
        return self.share > TOLERANCE


@dataclass(frozen=True, slots=True)
class Roofline:
    """A device's ceilings with the points under them."""

    device: Device
    ceilings: Ceilings
    title: str
    dtype: str
    points: tuple[Placed, ...]

    @property
    def errors(self) -> tuple[str, ...]:
        """A sentence for every point above the roof."""
        return tuple(
            f"{placed.point.name}: {placed.point.rate / 1e9:,.1f} GFLOP/s is"
            f" {100 * placed.share:.0f} % of its roof of {placed.roof / 1e9:,.1f} GFLOP/s"
            f" ({placed.bound}): one of the two measurements is wrong"
            for placed in self.points
            if placed.above
        )


def place(point: Point, ceilings: Ceilings) -> Placed:
    """The point under the roof. The ceilings must have a peak for its type."""
    seconds = ceilings.seconds(point.flops, point.size, point.dtype)
    peak = ceilings.peak(point.dtype)
    arithmetic = point.flops / peak.value if peak else 0.0
    return Placed(point, point.flops / seconds, "arithmetic" if arithmetic == seconds else "memory")


def of_ladders(ladders: Sequence[Ladder], ceilings: Ceilings) -> Roofline:
    """What ran on the ladders' device: its kernels, or NumPy and the serial loop on the host."""
    first = ladders[0]
    points = tuple(point for ladder in ladders for point in _rungs(ladder))
    sizes = ", ".join(str(ladder.size) for ladder in ladders)
    title = f"Kernels at m = n = k = {sizes}, {first.dtype}"
    return _roofline(first.device, ceilings, title, first.dtype, points)


def of_batch(report: Report, ceilings: Ceilings) -> Roofline:
    """The ways of a batch that ran on its device."""
    itemsize = np.dtype(report.dtype).itemsize
    m, n, k = (column.astype(np.float64) for column in (report.m, report.n, report.k))
    size = float(np.sum(m * k + k * n + m * n)) * itemsize
    on_host = report.device.backend == "host"
    points = tuple(
        Point(way.name, report.dtype, report.flops, size, way.seconds)
        for way in report.ways
        if way.skipped is None
        and report.flops
        and (
            way.name in (NUMPY_LOOP, OUR_LOOP)
            if on_host
            else way.planning is not None and way.planning.balance is not None
        )
    )
    title = f"{len(report.m)} products, {report.title}, {report.dtype}"
    return _roofline(report.device, ceilings, title, report.dtype, points)


def _roofline(
    device: Device, ceilings: Ceilings, title: str, dtype: str, points: Iterable[Point]
) -> Roofline:
    return Roofline(
        device, ceilings, title, dtype, tuple(place(point, ceilings) for point in points)
    )


def _rungs(ladder: Ladder) -> Iterable[Point]:
    on_host = ladder.device.backend == "host"
    for rung in ladder.rungs:
        if (rung.name in (NUMPY, SERIAL)) if on_host else (rung.kind == KERNEL):
            problem = problem_of(rung.size, ladder.dtype)
            name = f"{rung.name} {rung.size}"
            yield Point(name, ladder.dtype, problem.flops, problem.traffic, rung.seconds)


def document(roofline: Roofline) -> dict[str, Any]:
    """Plain JSON types: where and with what, the ceilings with every row, and `figures`."""
    return {
        "schema": SCHEMA,
        **provenance(roofline.device),
        "ceilings": roofline.ceilings.as_dict(),
        **figures(roofline),
    }


def figures(roofline: Roofline) -> dict[str, Any]:
    """Every point under its roof, and a sentence for each above it."""
    return {
        "title": roofline.title,
        "dtype": roofline.dtype,
        "tolerance": TOLERANCE,
        "points": [
            {
                "name": placed.point.name,
                "flops": placed.point.flops,
                "bytes": placed.point.size,
                "ms": placed.point.seconds * 1e3,
                "flops_per_byte": placed.point.intensity,
                "gflops": placed.point.rate / 1e9,
                "roof_gflops": placed.roof / 1e9,
                "bound": placed.bound,
                "share": placed.share,
                "above": placed.above,
            }
            for placed in roofline.points
        ],
        "errors": list(roofline.errors),
    }
