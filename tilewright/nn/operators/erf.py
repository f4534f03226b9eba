"""Erf, which NumPy has not: a Chebyshev series that `math.erf` gives the coefficients of.

    erf(x) = x * series(x * x) for |x| below the limit where it is 1 to the last bit, 1 beyond

The series is in x * x, since erf(x) / x is even and smooth, so that the error stays relative to the
result near zero. Libraries that have an erf of their own (torch, SciPy's arrays) use that.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tilewright.nn.graph import Node
from tilewright.nn.operators.base import FLOATS, Elementwise

# Beyond the limit 1 - erf is less than half a unit in the last place; so many terms bring the
# series to the rounding of the type.
_SINGLE = (3.95, 22)
_DOUBLE = (5.95, 56)
_CHUNK = 1 << 14  # elements at once, which stay in a core's cache for all terms


class Erf(Elementwise):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""

    name = "Erf"
    versions = (9, 13)
    dtypes = FLOATS

    def compute(self, xp: Any, node: Node, *given: Any) -> Any:
        """The library's own where there is one."""
        return erf(xp, given[0])


def erf(xp: Any, x: Any) -> Any:
    """The error function of every element of floats."""
    if hasattr(xp, "erf"):
        return xp.erf(x)
    x = xp.asarray(x)
    made = xp.empty(x.shape, dtype=x.dtype)
    flat, into = xp.reshape(x, (-1,)), xp.reshape(made, (-1,))
    for begin in range(0, flat.shape[0], _CHUNK):
        part = slice(begin, begin + _CHUNK)
        into[part] = _chunk(xp, flat[part])
    return made


def _chunk(xp: Any, x: Any) -> Any:
    """The error function of a few elements, by Clenshaw's recurrence."""
    limit, terms = _DOUBLE if x.dtype == xp.float64 else _SINGLE
    inside = xp.clip(x, -limit, limit)
    argument = inside * inside * (4 / limit**2) - 2  # twice the place in [-1, 1]
    first, *others = _series(limit, terms)
    later, total = xp.zeros_like(inside), xp.zeros_like(inside)
    for coefficient in reversed(others):
        later -= argument * total
        later -= coefficient
        later, total = total, xp.negative(later, out=later)
    series = 0.5 * argument * total - later + first
    return xp.where(xp.abs(x) < limit, xp.clip(inside * series, -1, 1), xp.sign(x))


@functools.cache
def _series(limit: float, terms: int) -> tuple[float, ...]:
    """Chebyshev coefficients of erf(sqrt(u)) / sqrt(u) for u from 0 to limit²."""
    count = 2 * terms
    angles = [math.pi * (at + 0.5) / count for at in range(count)]
    values = []
    for angle in angles:
        root = math.sqrt((math.cos(angle) + 1) / 2) * limit
        values.append(math.erf(root) / root)
    sums = [
        2 / count * math.fsum(v * math.cos(k * a) for v, a in zip(values, angles, strict=True))
        for k in range(terms)
    ]
    return (sums[0] / 2, *sums[1:])


OPERATORS = (Erf(),)
