"""Predicted seconds of a product, from curves measured on the device and the traffic of the step.

A curve holds measured times of square products by their arithmetic. Another shape is predicted as
the square product of equal arithmetic (whole tiles counted, so a 12-row tile makes one row pay for
twelve), times what was measured of products with one narrow side, but in the host's memory never
faster than its bytes at the bandwidth measured there: that is what a matrix-vector product costs.
Williams, Waterman and Patterson's roofline (CACM 52, 2009), with the roof measured.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from tilewright.facts.device import Device
from tilewright.facts.kernel import Step
from tilewright.facts.problem import Problem
from tilewright.planning.classes import UNMEASURED, Boundaries


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured (flops, seconds) of square products, ascending."""

    points: tuple[tuple[float, float], ...]

    def seconds(self, flops: float) -> float:
        """Interpolated in logarithms; the last rate beyond the end, the first time before it."""
        most, seconds = self.points[-1]
        return seconds * flops / most if flops >= most else interpolated(self.points, flops)


@dataclass(frozen=True, slots=True)
class Narrow:
    """What a narrow side costs beyond its arithmetic: (width, factor) for m, n and k, ascending.

    A factor is measured seconds over those of a square of equal arithmetic.
    """

    m: tuple[tuple[float, float], ...] = ()
    n: tuple[tuple[float, float], ...] = ()
    k: tuple[tuple[float, float], ...] = ()

    def factor(self, m: int, n: int, k: int) -> float:
        """The worst factor of the sides that are narrow; 1 where none is."""
        widest = max(m, n, k)
        if m * 4 > widest and n * 4 > widest and k * 4 > widest:
            return 1.0
        factors = [
            interpolated((*points, (float(SQUARE), 1.0)), size)
            for points, size in ((self.m, m), (self.n, n), (self.k, k))
            if points and size * 4 <= widest
        ]
        return max(factors, default=1.0)


# The width from which a side is not narrow to any kernel.
SQUARE = 1024
NO_NARROW = Narrow()


def interpolated(points: tuple[tuple[float, float], ...], x: float) -> float:
    """Between (x, y) points, in logarithms between ascending points, constant beyond them."""
    at = bisect_left(points, (x, 0.0))
    if at == 0 or at == len(points):
        return points[min(at, len(points) - 1)][1]
    (x0, y0), (x1, y1) = points[at - 1], points[at]
    return y0 * math.exp(math.log(x / x0) / math.log(x1 / x0) * math.log(y1 / y0))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one device for one dtype.

    `bandwidth` is bytes a second through the host's memory, `transfer` between host and device
    (None where nothing has to move). `curves` has one curve a kernel, operands on the device;
    `narrow` the same names and "host". `boundaries` are those of the shape classes; `wrong` names
    kernels whose results on this driver are not the product.
    """

    host: Curve
    curves: tuple[tuple[str, Curve], ...]
    bandwidth: float
    transfer: float | None
    narrow: tuple[tuple[str, Narrow], ...] = ()
    boundaries: Boundaries = UNMEASURED
    wrong: tuple[str, ...] = ()

    def curve(self, kernel: str) -> Curve | None:
        """The kernel's curve, if it was measured."""
        return dict(self.curves).get(kernel)

    @property
    def launch(self) -> float:
        """Seconds of the smallest product that was measured, which are a launch and little else."""
        return min((curve.points[0][1] for _, curve in self.curves), default=math.inf)

    def factor(self, name: str, problem: Problem) -> float:
        """What the narrow sides of a problem cost a kernel, or "host"."""
        return dict(self.narrow).get(name, NO_NARROW).factor(problem.m, problem.n, problem.k)

    def wins(self, itemsize: int) -> tuple[tuple[int, bool], ...]:
        """Side of every measured square, and whether the best kernel beats the host there.

        Transfer is counted, of elements of `itemsize` bytes. A gain under 3 % counts as none: that
        is the noise of the measurement.
        """
        found = []
        for flops, host_seconds in self.host.points:
            side = (flops / 2) ** (1 / 3)
            moved = 3 * side * side * itemsize / self.transfer if self.transfer else 0.0
            best = min((curve.seconds(flops) + moved for _, curve in self.curves), default=math.inf)
            found.append((round(side), best * MARGIN <= host_seconds))
        return tuple(found)


# How much faster a device must be predicted before a product leaves the host.
MARGIN = 1.03
# What a call on the host's arrays costs besides its launches, which is all that curves hold: views,
# checks, arguments. Two cores and Intel's driver, 48 to 384 a side: 100 to 150 µs.
CALL = 1e-4


def device_seconds(step: Step, problem: Problem, measured: Measured, *, host: bool) -> float | None:
    """Predicted time of a step, transfer included where the operands are the host's.

    The step is of the kernel's default configuration, as the curves are.
    """
    curve = measured.curve(step.kernel)
    if curve is None:
        return None
    seconds = curve.seconds(step.computed_flops) * measured.factor(step.kernel, problem)
    if measured.transfer is None:  # the host's memory is the device's own
        seconds = max(seconds, (problem.traffic + step.moved_bytes) / measured.bandwidth)
    elif host:
        seconds += problem.traffic / measured.transfer
    return seconds + CALL if host else seconds


def roof_seconds(problem: Problem, device: Device) -> float:
    """The least time that the device's measured ceilings allow; 0 where none were measured."""
    if device.ceilings is None:
        return 0.0
    return device.ceilings.seconds(problem.flops, problem.traffic, problem.dtype)


def host_seconds(problem: Problem, measured: Measured) -> float:
    """Predicted time of NumPy's BLAS and, behind it, of NumPy's passes for bias and activation."""
    seconds = measured.host.seconds(problem.flops) * measured.factor("host", problem)
    seconds = max(seconds, problem.traffic / measured.bandwidth)
    passes = problem.bias + (problem.activation == "relu")
    if problem.bias or problem.activation != "none":
        passes += 1  # from the product into C
    return seconds + _elements(problem) * (
        passes * 2 * problem.itemsize / measured.bandwidth + _gelu(problem)
    )


def epilogue_seconds(problem: Problem, device: Device) -> float:
    """What the epilogue adds to a kernel's time: nothing but a CPU's gelu, shared by its cores."""
    if device.kind != "cpu":
        return 0.0
    return _elements(problem) * _gelu(problem) / max(1, device.compute_units)


# Seconds of a core for the exact gelu of one element, mostly erf: SciPy's for the host 20 to 24 ns,
# in a kernel 21. Without SciPy the host takes 80 and more.
_GELU = 2.1e-8


def _gelu(problem: Problem) -> float:
    return _GELU if problem.activation == "gelu" else 0.0


def _elements(problem: Problem) -> float:
    return float(problem.m) * problem.n
