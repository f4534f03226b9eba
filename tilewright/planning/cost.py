"""Predicted seconds of a product, from curves measured on the device and the traffic of the step.

A curve holds measured times of square products by their arithmetic. Another shape is predicted as
the square product of equal arithmetic (whole tiles counted, so a 12-row tile makes one row pay for
twelve), but never faster than its bytes at the measured bandwidth: that is what a matrix-vector
product costs. Williams, Waterman and Patterson's roofline (CACM 52, 2009), with the roof measured.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from tilewright.batch import Problem
from tilewright.kernel import Step


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured (flops, seconds) of square products, ascending."""

    points: tuple[tuple[float, float], ...]

    def seconds(self, flops: float) -> float:
        """Interpolated in logarithms; the last rate beyond the end, the first time before it."""
        flops_axis = [point[0] for point in self.points]
        if flops <= flops_axis[0]:
            return self.points[0][1]
        if flops >= flops_axis[-1]:
            return self.points[-1][1] * flops / flops_axis[-1]
        right = bisect_left(flops_axis, flops)
        (f0, s0), (f1, s1) = self.points[right - 1], self.points[right]
        share = math.log(flops / f0) / math.log(f1 / f0)
        return s0 * math.exp(share * math.log(s1 / s0))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one device for one dtype.

    `bandwidth` is bytes a second through the host's memory, `transfer` between host and device
    (None where nothing has to move). `curves` has one curve a kernel, operands on the device.
    """

    host: Curve
    curves: tuple[tuple[str, Curve], ...]
    bandwidth: float
    transfer: float | None

    def curve(self, kernel: str) -> Curve | None:
        """The kernel's curve, if it was measured."""
        return dict(self.curves).get(kernel)

    def wins(self) -> tuple[tuple[int, bool], ...]:
        """Side of every measured square, and whether the best kernel beats the host there.

        Transfer is counted. A gain under 3 % counts as none: that is the noise of the measurement.
        """
        found = []
        for flops, host_seconds in self.host.points:
            side = (flops / 2) ** (1 / 3)
            moved = 3 * side * side * 4 / self.transfer if self.transfer else 0.0
            best = min((curve.seconds(flops) + moved for _, curve in self.curves), default=math.inf)
            found.append((round(side), best * MARGIN <= host_seconds))
        return tuple(found)


# How much faster a device must be predicted before a product leaves the host.
MARGIN = 1.03


def device_seconds(step: Step, problem: Problem, measured: Measured, *, host: bool) -> float | None:
    """Predicted time of a step, transfer included where the operands are the host's."""
    curve = measured.curve(step.kernel)
    if curve is None:
        return None
    bytes_ = problem.traffic + step.moved_bytes
    seconds = max(curve.seconds(step.computed_flops), bytes_ / measured.bandwidth)
    if host and measured.transfer:
        seconds += problem.traffic / measured.transfer
    return seconds


def host_seconds(problem: Problem, measured: Measured) -> float:
    """Predicted time of NumPy's BLAS."""
    return max(measured.host.seconds(problem.flops), problem.traffic / measured.bandwidth)
