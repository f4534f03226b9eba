"""Products dealt out to ranks: every row once, shares even, the same for whoever asks."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import tilewright as tw
from tilewright import suites
from tilewright.errors import ArgumentError, ShapeError
from tilewright.planning.ranks import Share


def _rows_once(m: list[int], shares: tuple[Share, ...]) -> None:
    """Every row of every product is somebody's, once, and no piece is empty but of no rows."""
    seen = [np.zeros(rows, np.int64) for rows in m]
    empty = np.zeros(len(m), np.int64)
    for share in shares:
        for problem, begin, end in zip(share.problem, share.begin, share.end, strict=True):
            assert 0 <= begin <= end <= m[problem]
            assert begin < end or m[problem] == 0
            seen[problem][begin:end] += 1
            empty[problem] += m[problem] == 0
    assert all((rows == 1).all() for rows in seen)
    assert (empty == (np.asarray(m) == 0)).all()


def _uneven(shares: tuple[Share, ...], longest: float) -> float:
    lasting = [share.seconds for share in shares]
    return max(lasting) / max(sum(lasting) / len(lasting), longest)


@pytest.mark.parametrize("ranks", [2, 3, 7, 8, 64, 1024])
@pytest.mark.parametrize("name", suites.names())
def test_of_every_suite_no_rank_has_a_tenth_more_than_an_even_share(name: str, ranks: int) -> None:
    batch = suites.load(name)
    shares = tw.split(batch.m, batch.n, batch.k, ranks)
    assert len(shares) == ranks
    _rows_once(batch.m.tolist(), shares)
    (alone,) = tw.split(batch.m, batch.n, batch.k, 1)
    assert sum(share.seconds for share in shares) == pytest.approx(alone.seconds)
    each = [tw.split([m], [n], [k], 1)[0].seconds for m, n, k in zip(*_unlike(batch), strict=True)]
    assert _uneven(shares, max(each)) <= 1.1 + 1e-9


def _unlike(batch: suites.Suite) -> tuple[list[int], list[int], list[int]]:
    sizes = np.unique(np.stack([batch.m, batch.n, batch.k]), axis=1)
    largest = np.argsort(-sizes.astype(float).prod(0))[:40]
    m, n, k = sizes[:, largest].tolist()
    return m, n, k


@hypothesis.given(
    sizes=st.lists(st.tuples(*[st.integers(0, 300)] * 3), max_size=30),
    ranks=st.integers(1, 12),
)
@hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
def test_whatever_is_drawn_every_row_is_somebody_s_once(
    sizes: list[tuple[int, int, int]], ranks: int
) -> None:
    m, n, k = (list(column) for column in zip(*sizes, strict=True)) if sizes else ([], [], [])
    shares = tw.split(m, n, k, ranks)
    _rows_once(m, shares)
    again = tw.split(np.array(m, np.int32), np.array(n, np.uint16), k, ranks)
    for one, other in zip(shares, again, strict=True):
        assert one.problem.tolist() == other.problem.tolist()
        assert one.begin.tolist() == other.begin.tolist()
        assert one.end.tolist() == other.end.tolist()


def test_eight_equal_experts_on_three_ranks_are_cut_between_rows() -> None:
    shares = tw.split([4096] * 8, [1024] * 8, [1024] * 8, ranks=3)
    assert _uneven(shares, 0.0) < 1.001
    assert sum(len(share) for share in shares) == 10  # two cuts
    assert sorted(shares[0].problem.tolist()) == [0, 1, 2]


def test_shares_multiplied_apart_are_the_whole_bit_for_bit() -> None:
    draw = np.random.default_rng(3)
    m, n, k = draw.integers(1, 60, (3, 11)).tolist()
    a = [draw.integers(-8, 9, (x, z)).astype(np.float32) for x, z in zip(m, k, strict=True)]
    b = [draw.integers(-8, 9, (z, y)).astype(np.float32) for z, y in zip(k, n, strict=True)]
    whole = tw.grouped_matmul(a, b, device="host")
    found = [np.full_like(c, np.nan) for c in whole]
    for share in tw.split(m, n, k, 4):
        parts = list(zip(share.problem, share.begin, share.end, strict=True))
        outs = [found[p][begin:end] for p, begin, end in parts]
        lefts, rights = [a[p][begin:end] for p, begin, end in parts], [b[p] for p, *_ in parts]
        tw.grouped_matmul(lefts, rights, out=outs, device="host")
    for one, other in zip(found, whole, strict=True):
        assert np.array_equal(one, other)


def test_products_that_only_move_bytes_are_dealt_by_bytes() -> None:
    """Of equal operations, a thin product takes longer than a cube."""
    cube = tw.split([256], [256], [256], 1)[0].seconds
    thin = tw.split([256**3], [1], [1], 1)[0].seconds
    assert thin > 5 * cube
    slow = tw.split([256], [256], [256], 1, flops=1e9)[0].seconds
    assert slow == pytest.approx(2 * 256**3 / 1e9 + 1e-8)


@pytest.mark.parametrize("ranks", [0, -1, 2.0, True, "two", None])
def test_no_ranks_are_refused_by_name(ranks: object) -> None:
    with pytest.raises(ArgumentError, match=r"ranks=.*accepted are whole numbers from 1"):
        tw.split([1], [1], [1], ranks)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["itemsize", "flops", "bandwidth", "overhead"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "4", None, [1.0], 1j])
def test_rates_that_cannot_be_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"{name}="):
        tw.split([1], [1], [1], 2, **{name: value})  # type: ignore[arg-type]


def test_columns_that_are_not_sizes_are_refused() -> None:
    for m, n in (([1, 2], [1]), ([-1], [1]), ([1.5], [1])):
        with pytest.raises(ShapeError):
            tw.split(m, n, [1], 2)
