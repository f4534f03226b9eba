"""Finds where shape classes end, from what products with one narrow side cost.

factor        seconds of a product with one side of some width, the others of LENGTH, over those
              of the square of equal arithmetic that the kernel's curve predicts
boundaries    of the best kernel's times: matrix-vector ends at the width that still costs about
              what width 1 does, skinny at the width whose rate is well below the square's,
              small at the square whose rate is well below the best
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.planning.classes import UNMEASURED, Boundaries
from tilewright.planning.cost import Curve, Narrow

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
LENGTH = 1024
# A kernel this many times slower than the best so far is not measured at larger widths.
HOPELESS = 3.0
# A width is free while it adds less than this share to the time of width 1.
_FREE = 1.25
# A rate below this share of the best one is another class's.
_FULL_RATE = 0.75

Flops = Callable[[int, int, int], float]
# Seconds by the side that is narrow and its width.
Seconds = Mapping[tuple[str, int], float]


def factors(seconds: Seconds, curve: Curve, computed: Flops) -> Narrow:
    """Seconds over the curve's; `computed` gives the arithmetic that the curve counts."""

    def of(side: str) -> tuple[tuple[float, float], ...]:
        return tuple(
            (float(width), value / curve.seconds(computed(*sides_of(side, width))))
            for (one, width), value in seconds.items()
            if one == side
        )

    return Narrow(of("m"), of("n"), of("k"))


def best_of(first: Seconds, second: Seconds) -> dict[tuple[str, int], float]:
    """The lesser time wherever both have one."""
    keys = dict.fromkeys((*first, *second))
    return {key: min(times[key] for times in (first, second) if key in times) for key in keys}


def boundaries(curves: Mapping[str, Curve], best: Seconds) -> Boundaries:
    """Where classes end, by the best of these kernels; the assumed ones where there are none."""
    if not curves or not all((side, WIDTHS[0]) in best for side in "mn"):
        return UNMEASURED
    squares = sorted({flops for curve in curves.values() for flops, _ in curve.points})
    rates = {
        flops: max(flops / curve.seconds(flops) for curve in curves.values()) for flops in squares
    }
    full = _FULL_RATE * max(rates.values())
    slow = [side_of(flops) for flops in squares if rates[flops] < full]
    widths = [w for w in WIDTHS if all((s, w) in best for s in "mn")]
    free = [w for w in widths if all(best[s, w] <= _FREE * best[s, 1] for s in "mn")]
    square = _FULL_RATE * max(f / s for curve in curves.values() for f, s in [_at(curve)])
    thin = [w for w in widths if any(2.0 * w * LENGTH**2 / best[s, w] < square for s in "mn")]
    matrix_vector = max(free)
    return Boundaries(
        matrix_vector, max([matrix_vector, *thin]), max(slow, default=0), measured=True
    )


def sides_of(side: str, width: int) -> tuple[int, int, int]:
    """m, n and k with one side of `width`."""
    m, n, k = (width if side == name else LENGTH for name in "mnk")
    return m, n, k


def _at(curve: Curve) -> tuple[float, float]:
    """Arithmetic and seconds of the square of LENGTH."""
    flops = 2.0 * LENGTH**3
    return flops, curve.seconds(flops)


def side_of(flops: float) -> int:
    """The square product's of so much arithmetic."""
    side: float = (flops / 2) ** (1 / 3)
    return round(side)
