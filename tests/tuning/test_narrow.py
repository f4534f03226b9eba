"""What a narrow side costs and where classes end, worked out by hand on made-up times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.planted import Planted
from tilewright.planning.classes import UNMEASURED, Boundaries
from tilewright.planning.cost import Curve
from tilewright.tuning import narrow
from tilewright.tuning.tasks import representatives, tasks

# Squares in operations a second: up to 256 below three quarters of the best, and faster still
# beyond 1024, where narrow products are compared.
RATES = {32: 0.2e12, 64: 0.5e12, 128: 0.7e12, 256: 0.8e12, 1024: 1.0e12, 2048: 1.3e12}
QUICK = Curve(tuple((2.0 * side**3, 2.0 * side**3 / rate) for side, rate in RATES.items()))
# Better at nothing but the smallest, and there not by enough.
EARLY = Curve(((2.0 * 32**3, 2.0 * 32**3 / 0.3e12), (2.0 * 2048**3, 2.0 * 2048**3 / 0.3e12)))
CURVES = {"quick": QUICK, "early": EARLY}


def at_rate(width: int, rate: float) -> float:
    """Seconds of a product with one side of `width`."""
    return 2.0 * width * 1024 * 1024 / rate


def times(**other: float) -> dict[tuple[str, int], float]:
    """Width 4 costs a quarter more than width 1 and no more; from 64 on the rate is a square's."""
    one = 2.0**-14
    columns = {1: one, 2: 1.1 * one, 4: 1.25 * one, 8: 1.3 * one, 16: 1.4 * one}
    columns |= {32: at_rate(32, 0.74e12), 64: at_rate(64, 0.76e12)}
    found = {(side, width): seconds for side in "mn" for width, seconds in columns.items()}
    return found | {(name[0], int(name[1:])): seconds for name, seconds in other.items()}


def test_classes_end_where_a_width_costs_more_and_where_the_rate_is_a_squares() -> None:
    assert narrow.boundaries(CURVES, times()) == Boundaries(4, 32, 256, measured=True)


@pytest.mark.parametrize(
    ("other", "matrix_vector", "skinny"),
    [
        ({"n4": 1.26 * 2.0**-14}, 2, 32),  # both sides must be free
        ({"m2": 1.26 * 2.0**-14}, 4, 32),  # the largest width that is free counts
        ({"n8": 1.25 * 2.0**-14}, 4, 32),
        ({"m64": at_rate(64, 0.74e12)}, 4, 64),  # one side is enough to be slow
        ({"n64": at_rate(64, 0.74e12)}, 4, 64),
        ({"m32": at_rate(32, 0.76e12)}, 4, 32),
        ({"m32": at_rate(32, 0.76e12), "n32": at_rate(32, 0.76e12)}, 4, 16),
    ],
    ids=str,
)
def test_each_side_counts(other: dict[str, float], matrix_vector: int, skinny: int) -> None:
    found = narrow.boundaries(CURVES, times(**other))
    assert (found.matrix_vector, found.skinny) == (matrix_vector, skinny)


def test_the_best_kernel_decides_at_every_square() -> None:
    """A slow one beside it moves nothing, whichever comes first; one good at small squares does."""
    turned = dict(reversed(CURVES.items()))
    assert narrow.boundaries(turned, times()) == narrow.boundaries({"quick": QUICK}, times())
    rates = {**RATES, 64: 1.1e12, 128: 1.1e12, 256: 1.1e12}
    better = Curve(tuple((2.0 * side**3, 2.0 * side**3 / rate) for side, rate in rates.items()))
    assert narrow.boundaries({**CURVES, "better": better}, times()).small == 32
    fast = Curve(tuple((flops, flops / 1.04e12) for flops, _ in QUICK.points))
    assert narrow.boundaries({"fast": fast}, times()).small == 0


def test_skinny_is_never_narrower_than_matrix_vector() -> None:
    """Where no width is slower than a square, what is free is skinny too."""
    all_fast = dict.fromkeys(times(), 1e-09)
    found = narrow.boundaries(CURVES, all_fast)
    assert (found.matrix_vector, found.skinny) == (64, 64)


def test_without_kernels_or_times_the_assumed_ones_stand() -> None:
    assert narrow.boundaries({}, times()) == UNMEASURED
    assert narrow.boundaries(CURVES, {}) == UNMEASURED
    assert not UNMEASURED.measured
    assert narrow.boundaries(CURVES, times()) != replace(UNMEASURED, measured=True)


def test_a_factor_is_the_time_over_the_curves_for_what_is_computed() -> None:
    """A kernel whose tiles have 8 rows computes 8 where one is asked for."""
    seconds = {("m", 1): 3e-3, ("m", 16): 4e-3, ("k", 2): 5e-3}
    line = Curve(((1e3, 1e-9), (1e12, 1.0)))  # 1e-12 seconds an operation
    found = narrow.factors(seconds, line, lambda m, n, k: 2.0 * max(m, 8) * n * k)
    assert found.m == (
        (1.0, pytest.approx(3e-3 / (2e-12 * 8 * 1024**2))),
        (16.0, pytest.approx(4e-3 / (2e-12 * 16 * 1024**2))),
    )
    assert found.n == ()
    assert found.k == ((2.0, pytest.approx(5e-3 / (2e-12 * 1024 * 1024 * 2))),)


def test_the_lesser_time_counts_wherever_both_have_one() -> None:
    first = {("m", 1): 1.0, ("m", 2): 5.0}
    second = {("m", 2): 4.0, ("n", 1): 7.0}
    wanted = {("m", 1): 1.0, ("m", 2): 4.0, ("n", 1): 7.0}
    assert narrow.best_of(first, second) == narrow.best_of(second, first) == wanted


def test_one_side_is_narrow_and_the_others_are_long() -> None:
    assert narrow.sides_of("m", 2) == (2, 1024, 1024)
    assert narrow.sides_of("n", 3) == (1024, 3, 1024)
    assert narrow.sides_of("k", 4) == (1024, 1024, 4)


@pytest.mark.parametrize("boundaries", [UNMEASURED, Boundaries(4, 32, 300), Boundaries(1, 64, 96)])
def test_of_every_class_a_shape_ends_between_the_edges_of_tiles(boundaries: Boundaries) -> None:
    """Long sides of narrow ones are odd: vectors and pairs of columns end within them too."""
    for task in tasks(
        (Planted(),), representatives(boundaries, "float32", "rows-rows"), boundaries
    ):
        narrow_side = task.shape_class not in ("small", "large")
        step = 2 if narrow_side else 16
        long = [sorted((s.m, s.n, s.k))[1 if narrow_side else 0 :] for s in task.shapes]
        assert any(all(side % step for side in sides) for sides in long), task.shape_class
