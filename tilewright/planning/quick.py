"""Tells in microseconds, without a plan, whether a plain product is certainly the host's.

A plan of a shape never seen lowers every kernel, which takes a millisecond; the product itself may
take a twentieth of that. `Bounds` says before any of it what the plan would: no kernel can be
predicted faster than its curve at the product's own arithmetic, as whole tiles only add to that,
nor than its best tuned configuration. Where the host wins even so, the plan would name the host.

Worked example: a host of 10 GFLOP/s from 1 µs on, and a kernel of 40 GFLOP/s that takes 100 µs.

>>> from tilewright.planning.cost import Curve, Measured
>>> points = lambda rate, least: Curve(((2e4, least), (2e10, 2e10 / rate)))
>>> measured = Measured(points(1e10, 2e-6), (("k", points(4e10, 1e-4)),), 1e12, None)
>>> bounds = Bounds.of(measured, itemsize=4)
>>> bounds.is_host(64, 64, 64), bounds.is_host(2000, 2000, 2000)
(True, False)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.planning.cost import CALL, MARGIN, NO_NARROW, Curve, Measured, Narrow

NO_RATIOS: Mapping[str, float] = {}
_Line = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True)
class _Bound:
    """A curve in logarithms, its sides, and what its best tuned configuration leaves of it."""

    line: _Line
    narrow: Narrow
    ratio: float

    def seconds(self, log_flops: float, m: int, n: int, k: int) -> float:
        """Predicted seconds, tiles and bytes left aside."""
        return math.exp(_at(self.line, log_flops)) * self.narrow.factor(m, n, k) * self.ratio


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds of a device's kernels beside the host, for one dtype."""

    host: _Bound | None
    kernels: tuple[_Bound, ...]
    bandwidth: float
    transfer: float | None
    itemsize: int

    @classmethod
    def of(
        cls, measured: Measured, itemsize: int, ratios: Mapping[str, float] = NO_RATIOS
    ) -> Bounds:
        """From what was measured; `ratios` has the least of every tuned kernel."""
        narrow = dict(measured.narrow)
        kernels = tuple(
            _Bound(_line(_rising(curve)), narrow.get(name, NO_NARROW), ratios.get(name, 1.0))
            for name, curve in measured.curves
        )
        host = _Bound(_line(measured.host), narrow.get("host", NO_NARROW), 1.0)
        return cls(host, kernels, measured.bandwidth, measured.transfer, itemsize)

    def is_host(self, m: int, n: int, k: int) -> bool:
        """Whether every plan of a plain product of these sizes, all above 0, is the host's."""
        if self.host is None:
            return True
        x = math.log(2.0 * m * n * k)
        traffic = (m * k + k * n + m * n) * self.itemsize
        host = max(self.host.seconds(x, m, n, k), traffic / self.bandwidth)
        moved = CALL if self.transfer is None else CALL + traffic / self.transfer
        if moved * MARGIN > host:  # as it is for most small products: no curve need be asked
            return True
        return all((kernel.seconds(x, m, n, k) + moved) * MARGIN > host for kernel in self.kernels)


HOST_ALONE = Bounds(None, (), 0.0, None, 0)


def _rising(curve: Curve) -> Curve:
    """The largest curve that never falls and lies nowhere above: more arithmetic, no less time."""
    points: list[tuple[float, float]] = []
    least = math.inf
    for flops, seconds in reversed(curve.points):
        least = min(least, seconds)
        points.append((flops, least))
    return Curve(tuple(reversed(points)))


def _line(curve: Curve) -> _Line:
    """Logarithms of the points, with one beyond the end at the last rate."""
    flops, seconds = (list(column) for column in zip(*curve.points, strict=True))
    return (
        [math.log(value) for value in (*flops, flops[-1] * 1e30)],
        [math.log(value) for value in (*seconds, seconds[-1] * 1e30)],
    )


def _at(line: _Line, x: float) -> float:
    """As `Curve.seconds`: the first time before the first point."""
    xs, ys = line
    at = bisect_right(xs, x)
    if at == 0:
        return ys[0]
    if at == len(xs):
        return ys[-1]
    x0, y0 = xs[at - 1], ys[at - 1]
    return y0 + (ys[at] - y0) * (x - x0) / (xs[at] - x0)
