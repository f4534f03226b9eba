"""fp32 numbers as two halves: how accurate that is, and that what it does not suit is found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.hopper_work import Memory
from tests.support.split_twin import (
    constant,
    exponent,
    fails,
    few,
    panels,
    product,
    split,
    unpacked,
)
from tilewright.backends.cuda.hopper import engine, packing
from tilewright.backends.cuda.hopper.blocks import SPLIT

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def _powers(low: int, high: int) -> Draw:
    return lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(low, high, shape)


def _normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_normal(shape)


# What two halves serve, and what they do not.
SERVED: dict[str, Draw] = {
    "uniform": lambda rng, shape: rng.random(shape),
    "normal": _normal,
    "lognormal": lambda rng, shape: np.exp(1.5 * rng.standard_normal(shape)),
    "all large": lambda rng, shape: 1e18 * rng.standard_normal(shape),
    "all small": lambda rng, shape: 1e-18 * rng.standard_normal(shape),
    "scaled by 2^-5 to 2^5": _powers(-5, 6),
    "rows scaled by 2^-5 to 2^5": lambda rng, shape: (
        rng.standard_normal(shape) * 2.0 ** rng.integers(-5, 6, (shape[0], 1))
    ),
    "half zeros": lambda rng, shape: np.maximum(rng.standard_normal(shape), 0),
    "a column a hundred times larger": lambda rng, shape: (
        rng.standard_normal(shape) * np.where(np.arange(shape[1]) == 5, 100, 1)
    ),
    "zeros": lambda rng, shape: np.zeros(shape),
}


def _with(value: float, *, times: bool = False) -> Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        x = rng.standard_normal(shape)
        x[shape[0] // 2, shape[1] // 3] = value * (x[0, 0] if times else 1)
        return x

    return draw


def _line(axis: int) -> Draw:
    """One row or column of tiny numbers among ordinary ones."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        tiny = np.arange(shape[axis]) == 3
        factors = np.expand_dims(np.where(tiny, 2.0**-40, 1), 1 - axis)
        drawn: np.ndarray = rng.standard_normal(shape) * factors
        return drawn

    return draw


LEFT_OUT: dict[str, Draw] = {
    "infinity": _with(np.inf),
    "minus infinity": _with(-np.inf),
    "NaN": _with(np.nan),
    "near fp32's largest": _with(3e38),
    "one 2^20 times as large": _with(2.0**20, times=True),
    "scaled by 2^-30 to 2^30": _powers(-30, 31),
    "a diagonal of all sizes": lambda rng, shape: (
        np.eye(*shape) * 2.0 ** np.linspace(-30, 30, shape[1])
    ),
}


def _drawn(draw: Draw, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    return draw(np.random.default_rng(seed), shape).astype(np.float32)


def _summed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product with every partial sum rounded to fp32, as one thread with fma has it."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for at in range(a.shape[1]):
        total = (total + a[:, at, None].astype(float) * b[at].astype(float)).astype(np.float32)
    return total


def _error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(found - exact))


@pytest.mark.parametrize("k", [17, 64, 300])
@pytest.mark.parametrize("kind", SERVED)
def test_errors_are_at_most_twice_those_of_fp32(kind: str, k: int) -> None:
    a, b = _drawn(SERVED[kind], (90, k)), _drawn(SERVED[kind], (k, 70), seed=1)
    found, failed = product(a, b)
    if failed and few(a, b):
        assert "zeros" in kind
        return
    assert not failed
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert _error(found, exact) <= 2 * _error(_summed(a, b), exact)


@pytest.mark.parametrize(
    ("k", "share", "found"),
    [(9, 0.05, True), (512, 0.05, True), (8000, 0.05, False), (9, 1.0, False), (64, 0.5, False)],
)
def test_sums_of_few_products_are_found(k: int, share: float, found: bool) -> None:
    rng = np.random.default_rng(k)
    a, b = (
        (rng.standard_normal(shape) * (rng.random(shape) < share)).astype(np.float32)
        for shape in ((90, k), (k, 70))
    )
    assert product(a, b)[1] == few(a, b) == found


@pytest.mark.parametrize("mn", [False, True])
@pytest.mark.parametrize("kind", LEFT_OUT)
def test_what_two_halves_do_not_suit_is_found(kind: str, mn: bool) -> None:
    x = _drawn(LEFT_OUT[kind], (200, 200))
    assert fails(x, exponent(x), 200, mn)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("mn", [False, True])
def test_a_tiny_row_of_the_left_or_column_of_the_right_operand_is_found(
    mn: bool, axis: int
) -> None:
    # Runs along k: a row is one run. Else a run holds one of each row.
    x = _drawn(_line(axis), (200, 300))
    k = 200 if mn else 300
    harmful = (axis == 1) == mn
    assert fails(x, exponent(x), k, mn) >= harmful


def test_every_size_of_number_is_found_or_kept_to_fp32s_accuracy() -> None:
    for scale in range(-149, 128, 4):
        with np.errstate(over="ignore"):
            x = _drawn(_normal, (40, 64)) * np.float32(2.0**scale)
        e = exponent(x)
        if fails(x, e, 64, mn=False):
            assert scale < -110 or scale > 124
            continue
        first, rest = (half.astype(np.float64) for half in split(x, e))
        kept = (first + rest * 2.0 ** -constant("SHIFT")) * 2.0**-e
        assert (
            np.abs(kept - x) <= np.maximum(2.0**-22 * np.abs(x), 2.0**-43 * np.abs(x).max())
        ).all()


def test_the_sample_covers_small_matrices_and_spreads_over_large_ones() -> None:
    small = np.zeros((15, 17), np.float32)
    small[7, 11] = 1.0
    assert exponent(small) == constant("TOP")
    found = 0
    for band in range(32):
        large = np.ones((1024, 1024), np.float32)
        large[32 * band : 32 * band + 32] = 4.0
        found += exponent(large) == constant("TOP") - 2
        large = np.ones((1024, 1024), np.float32)
        large[:, 32 * band : 32 * band + 32] = 4.0
        found += exponent(large) == constant("TOP") - 2
    assert found == 64


@pytest.mark.parametrize("layout", ["rrr", "rcr", "crr", "ccr", "rrc"])
def test_the_tables_split_every_layout(layout: str) -> None:
    mnk = [(65, 100, 65), (130, 31, 200), (1, 257, 64), (63, 1, 40), (30, 30, 4), (30, 30, 0)]
    memory = Memory(mnk, layout, offset=1)
    buffer = np.random.default_rng(3).standard_normal(memory.elements).astype(np.float32)
    work = memory.work(buffer.ctypes.data, "float32", precision="fp32x")
    for bucket in engine.plan(work, (SPLIT,)):
        planes = panels(bucket, buffer)
        for side, operand in enumerate((bucket.batch.left, bucket.batch.right)):
            which = side ^ bucket.batch.turned
            for problem in bucket.which[packing.deep(work.k[bucket.which]) > 0]:
                x = memory.view(which, problem, buffer)
                runs = x.T if bool(operand.mn[problem]) == (which == 0) else x
                laid = bucket.panels[side]
                found = [unpacked(plane, laid, problem, runs.shape) for plane in planes]
                for half, expected in zip(found, split(runs, exponent(runs)), strict=True):
                    np.testing.assert_array_equal(half, expected)


def test_shapes_of_operands_decide_how_small_elements_count() -> None:
    free, k = np.array([4096, 4096, 100]), np.array([4096, 4096, 60])
    allowed, alone, beside = packing.small_elements(np.array([False, True, True]), free, k)
    assert allowed.tolist() == [9, 4097, 61]
    assert beside.tolist() == [0, 2, 2]
    strays = 1 + (free * k >> 22)
    assert (alone * strays > allowed).all()
    assert (alone * (strays - 1) + alone // 2 <= allowed).all()


def test_up_to_four_products_are_not_split() -> None:
    memory = Memory([(70, 80, k) for k in (0, 1, 4)])
    (bucket,) = engine.plan(memory.work(1 << 20, "float32", precision="fp32x"), (SPLIT,))
    assert bucket.scratch == 0
    deeper = Memory([(70, 80, k) for k in (0, 1, 4, 17)])
    (bucket,) = engine.plan(deeper.work(1 << 20, "float32", precision="fp32x"), (SPLIT,))
    assert bucket.scratch == 2 * packing.ROW * (72 + 2 * packing.SPLIT_FILL)


def test_one_small_element_at_a_rows_end_may_be_chance_two_are_not() -> None:
    x = _drawn(_normal, (50, 33))
    x[7, 32] = 1e-12
    assert not fails(x, exponent(x), 33, mn=False)
    x[9, 32] = 1e-12
    assert fails(x, exponent(x), 33, mn=False)
    x = np.diag(np.where(np.arange(40) == 5, np.float32(1e-12), np.float32(1)))
    assert fails(x, exponent(x), 40, mn=False)
    assert fails(x, exponent(x), 40, mn=True)
