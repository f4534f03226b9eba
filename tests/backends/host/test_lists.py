"""Lists read in machine code: right however matrices lie; only plain matrices are read."""

from __future__ import annotations

import ctypes
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.batches import given_of, lists
from tests.support.cases import Case
from tests.support.checks import assert_right_together
from tilewright import errors, grouped_matmul, plan_grouped
from tilewright.backends.host import compiled, grouped
from tilewright.backends.host.lists import DTYPES, Lists, are_uneven, lists_of
from tilewright.calls.grouped_quick_host import unbound
from tilewright.inputs.devices import host
from tilewright.planning.host_part import SMALL, rule_of_lists

pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs Numba")
EDGES = (0, 1, 15, 24, 33, 64, 97)


def of(dtype: str) -> Lists:
    grouped.compile_for(host(), dtype)
    found = lists_of(host(), dtype)
    assert found is not None
    return found


def drawn(count: int, largest: int, dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, (count, 3)).tolist()
    a = [rng.standard_normal((m, k)).astype(dtype) for m, _, k in sizes]
    return a, [rng.standard_normal((k, n)).astype(dtype) for _, n, k in sizes]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_edge_however_matrices_lie_is_right(dtype: str) -> None:
    rng = np.random.default_rng(1)
    sizes = [(m, n, k) for m in EDGES for n in EDGES[::3] for k in (0, 1, 64, 300)]
    sizes += [(700, 40, 30), (9, 1100, 300), (400, 520, 260), (1, 1, 3000)]
    cases = [
        Case(m, n, k, dtype=dtype, a=str(a), b=str(b))
        for (m, n, k), a, b in zip(
            sizes,
            rng.choice(["C", "F", "strided"], len(sizes)),
            rng.choice(["C", "F", "strided"], len(sizes)),
            strict=True,
        )
    ]
    given = given_of(cases)
    a, b = lists(given)
    read = of(dtype).read((tuple(a), tuple(b), None, None))
    assert read is not None
    assert read.flops == sum(2.0 * m * n * k for m, n, k in sizes)
    found = read.multiply()
    assert found is not None
    assert [one.shape for one in found] == [(m, n) for m, n, _ in sizes]
    filled = [i for i, one in enumerate(found) if one.size]
    assert_right_together([found[i] for i in filled], [given[i] for i in filled])


@pytest.mark.usefixtures("two_cores")
def test_results_are_apart_and_the_same_bits_as_a_plans() -> None:
    a, b = drawn(400, 60)
    sizes = [(*x.shape, y.shape[1]) for x, y in zip(a, b, strict=True)]
    m, k, n = zip(*sizes, strict=True)
    plan = plan_grouped(m, n, k, device="host")
    planned = [one.copy() for one in plan.bind(a, b)()]
    of("float32")
    found = grouped_matmul(a, b)
    assert all(map(np.array_equal, found, planned))
    found[17][:] = np.nan
    assert all(map(np.array_equal, found[:17] + found[18:], planned[:17] + planned[18:]))


def test_more_tiles_than_there_was_room_for_are_right() -> None:
    a, b = drawn(7, 400, seed=3)
    a, b = [x.repeat(4, axis=0) for x in a], [y.repeat(4, axis=1) for y in b]
    read = of("float32").read((tuple(a), tuple(b), None, None))
    assert read is not None
    for x, y, z in zip(a, b, read.multiply() or [], strict=True):
        np.testing.assert_allclose(z, x.astype(float) @ y, rtol=1e-4, atol=1e-3)


LONG = {
    "one long": [(16, 16, 200_000)],
    "one as wide as its registers are not": [(17, 37, 30_001)],
    "several tiles, each cut along k": [(60, 130, 9_000)],
    "three": [(5, 3, 70_000), (1, 1, 100_000), (24, 96, 33_000)],
    "wide, of few rows": [(3, 700, 12_000)],
    "large, which a BLAS multiplies": [(1000, 900, 920)],
    "large and long": [(1000, 900, 920), (16, 16, 90_000)],
    "two that are large": [(1000, 900, 920), (520, 1700, 910)],
    "a giant": [(100, 300, 2000)],
    "a giant with tiles of the middle": [(300, 700, 600)],
    "as deep as is just cut, and one step less": [(40, 90, 512), (40, 90, 511)],
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("how", ["C", "F", "strided", "backwards", "repeated"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_and_long_products_among_small_ones_are_right(
    name: str, how: str, dtype: str
) -> None:
    if "large" in name and (how, dtype) not in (("C", "float32"), ("strided", "float64")):
        pytest.skip("NumPy's BLAS multiplies it, however it lies")
    a, b = drawn(300, 20, dtype, seed=5)
    rng = np.random.default_rng(6)
    for at, (m, n, k) in zip((7, 150, 299), LONG[name], strict=False):
        a[at], b[at] = (_laid(rng, size, how, dtype) for size in ((m, k), (k, n)))
    a[20], b[20] = np.ones((0, 4), dtype), np.ones((4, 9), dtype)
    a[21], b[21] = np.ones((5, 0), dtype), np.ones((0, 9), dtype)
    read = of(dtype).read((tuple(a), tuple(b), None, None))
    assert read is not None
    ways = zip(a, b, grouped_matmul(a, b), read.multiply() or [], strict=True)
    for x, y, *found in ways:
        truth = x.astype(float) @ y.astype(float)
        allowed = 2 * np.abs(x @ y - truth).max(initial=0.0) + 1e-6 * x.shape[1] ** 0.5
        for z in found:
            assert np.abs(z - truth).max(initial=0.0) <= allowed


def _laid(rng: Any, size: tuple[int, int], how: str, dtype: str) -> Any:
    """A matrix of such a size that lies so: with gaps, from its end, or one row again and again."""
    rows, cols = size
    if how == "repeated":
        return np.broadcast_to(rng.standard_normal((1, cols)).astype(dtype), size)
    made = rng.standard_normal(size).astype(dtype)
    if how == "strided":
        gaps = np.full((2 * rows, 3 * cols), np.nan, dtype)
        gaps[::2, ::3] = made
        return gaps[::2, ::3]
    return {"C": made, "F": np.asfortranarray(made), "backwards": made[::-1, ::-1]}[how]


@pytest.mark.usefixtures("two_cores")
def test_a_giant_that_two_threads_share_has_a_plans_bits_as_it_is_summed_in_one_piece() -> None:
    a, b = drawn(99, 9, seed=5)
    rng = np.random.default_rng(6)
    a[40], b[40] = (rng.random(one, np.float32) for one in ((300, 1800), (1800, 700)))
    m, k, n = zip(*[(*x.shape, y.shape[1]) for x, y in zip(a, b, strict=True)], strict=True)
    planned = plan_grouped(m, n, k, device="host").bind(a, b)()
    native = Lists(host(), "float32")
    read = native.read((tuple(a), tuple(b), None, None))
    assert read is not None
    assert all(map(np.array_equal, read.multiply() or [], planned))
    read.leave()
    assert native.free[0]._found[compiled.kernels("lists").ALL_TILES] == 98 + 2


def test_nan_in_a_large_product_stays_there_and_no_result_holds_what_memory_held() -> None:
    a, b = drawn(300, 20, seed=5)
    a[7], b[7] = np.full((900, 900), np.nan, np.float32), np.ones((900, 910), np.float32)
    a[9] = np.full(a[9].shape, np.nan, np.float32)
    native = of("float32")
    for _ in range(2):  # the second finds memory full of NaN
        read = native.read((tuple(a), tuple(b), None, None))
        assert read is not None
        assert read.large_flops > 0
        found = read.multiply() or []
        read.leave()
        assert [i for i, one in enumerate(found) if np.isnan(one).any()] == [7, 9]
        assert np.isnan(found[7]).all()


def test_a_large_matrix_that_gets_another_shape_meanwhile_is_left_to_the_checks() -> None:
    a, b = drawn(300, 20, seed=5)
    a[7], b[7] = np.ones((900, 1000), np.float32), np.ones((1000, 910), np.float32)
    read = of("float32").read((tuple(a), tuple(b), None, None))
    assert read is not None
    a[7].shape = (1000, 900)
    assert read.multiply() is None


def test_long_products_have_the_same_bits_at_every_call_and_with_nan_in_what_was_used() -> None:
    a, b = drawn(300, 30, seed=5)
    rng = np.random.default_rng(6)
    a[7], b[7] = (rng.standard_normal(one).astype(np.float32) for one in ((9, 50_000), (50_000, 8)))
    native = of("float32")
    poisoned = [x.copy() for x in a]
    for x in poisoned:
        x[:] = np.nan
    runs = []
    for left in (a, poisoned, a, a):
        read = native.read((tuple(left), tuple(b), None, None))
        assert read is not None
        runs.append(read.multiply() or [])
        read.leave()
    assert all(np.isnan(one).all() for one in runs[1])
    for one in runs[2:]:
        assert all(map(np.array_equal, one, runs[0]))


class Odd(np.ndarray):
    """A subclass, which may multiply in another way."""


def odd_ones() -> dict[str, Any]:
    whole = np.ones((4, 4), np.float32)
    misaligned = np.zeros(4 * 16 + 1, np.uint8)[1:].view(np.float32).reshape(4, 4)
    steps = np.ndarray((4, 4), np.float32, np.zeros(200, np.uint8), 0, (18, 4))
    return {
        "another type": 7,
        "none": None,
        "a subclass": whole.view(Odd),
        "a masked array": np.ma.array(whole),
        "a vector": whole[0],
        "a stack": whole[None],
        "a number": np.array(1.0, np.float32),
        "another dtype": whole.astype(np.float64),
        "whole numbers": whole.astype(np.int32),
        "swapped bytes": whole.astype(">f4"),
        "misaligned": misaligned,
        "odd steps": steps,
        "other sizes": np.ones((3, 3), np.float32),
    }


@pytest.mark.parametrize("name", odd_ones())
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_no_plain_matrix_of_the_dtype_is_left_to_the_checks(name: str, side: int) -> None:
    sides = [[np.ones((4, 4), np.float32) for _ in range(1000)] for _ in range(2)]
    sides[side][900] = odd_ones()[name]
    assert of("float32").read((tuple(sides[0]), tuple(sides[1]), None, None)) is None
    at_once, checked = outcome(*sides), outcome(*sides, device="host")
    if isinstance(checked, str) and name != "odd steps":  # which NumPy's own loop takes
        assert at_once == checked
    elif not isinstance(checked, str):
        assert [one.tolist() for one in at_once] == [one.tolist() for one in checked]
    else:
        assert np.array_equal(at_once[900], sides[0][900] @ sides[1][900])


def outcome(*sides: Any, **options: Any) -> Any:
    """The results, or what was said."""
    try:
        return grouped_matmul(*sides, **options)
    except errors.TilewrightError as error:
        return f"{type(error).__name__}: {error}"


def test_lists_that_another_thread_empties_meanwhile_are_whole_or_refused() -> None:
    a, b = drawn(600, 12)
    of("float32")
    expected = [x @ y for x, y in zip(a, b, strict=True)]
    shared = [list(a), list(b)]
    stop = []

    def disturb() -> None:
        while not stop:
            for one, whole in zip(shared, (a, b), strict=True):
                one.clear()
                one.extend(x.copy() for x in whole)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(disturb)
        try:
            for _ in range(200):
                try:
                    found = grouped_matmul(*shared)
                except errors.TilewrightError:
                    continue
                for x, y in zip(found, expected, strict=False):
                    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
        finally:
            stop.append(True)


def test_threads_at_once_have_memory_of_their_own() -> None:
    batches = [drawn(300, 40, seed=seed) for seed in range(4)]
    of("float32")
    alone = [grouped_matmul(*one) for one in batches]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(grouped_matmul, *batches[i % 4]) for i in range(60)]
        for i, run in enumerate(runs):
            assert all(map(np.array_equal, run.result(), alone[i % 4]))


@pytest.mark.parametrize("fits", [True, False])
def test_memory_of_very_many_products_is_not_kept_whatever_became_of_them(fits: bool) -> None:
    of("float32")
    native = Lists(host(), "float32")
    one, last = np.ones((1, 1), np.float32), np.ones((1 if fits else 2, 1), np.float32)
    read = native.read(((one,) * 70_000, (one,) * 69_999 + (last,), None, None))
    assert (read is not None) is fits
    if read is not None:
        read.leave()
    assert not native.free


def test_objects_are_given_back() -> None:
    a, b = drawn(300, 40)
    of("float32")
    grouped_matmul(a, b)
    counted = ctypes.c_ssize_t.from_address(id(a[5]))
    before = counted.value
    for _ in range(5):
        made = grouped_matmul(a, b)
    assert counted.value == before
    kept = made[3]
    expected = kept.copy()
    del made, a, b
    assert np.array_equal(kept, expected)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(
    ("sizes", "way"),
    [
        ([(20, 30, 40)] * 300, "lists"),
        ([(90, 80, 70)] * 2000, "lists"),  # a plan is worth its time, and lists still less of it
        ([(5, 5, 5)] * 6, "loop"),
        ([(2, 2, 2)] * 8, "loop"),
        ([(20, 30, 4000), *[(2, 2, 2)] * 99], "lists"),  # cut along k
        ([(48, 96, 500), *[(2, 2, 2)] * 99], "loop"),  # of all that is to do one tile has the most
        ([(1000, 1000, 1000)] * 8, "loop"),  # a BLAS's home game
        ([(1000, 1000, 1000), *[(8, 9, 10)] * 800], "lists"),  # and a BLAS for the first
        ([(300, 700, 5000), *[(8, 9, 10)] * 800], "lists"),  # as narrow as gains nothing there
        ([(1000, 1000, 1000), *[(300, 300, 300)] * 200], "lists"),  # the others gain more
    ],
)
def test_explain_says_what_becomes_of_lists(sizes: list[tuple[int, int, int]], way: str) -> None:
    m, n, k = np.array(sizes).T
    rng = np.random.default_rng(0)
    a = tuple(rng.random((rows, depth), np.float32) for rows, _, depth in sizes)
    b = tuple(rng.random((depth, cols), np.float32) for _, cols, depth in sizes)
    read = of("float32").read((a, b, None, None))
    assert read is not None
    assert read.is_uneven == are_uneven(host(), "float32", (m, n, k))
    assert unbound(host(), "float32", (m, n, k)) == way
    words = {"lists": "read and cut anew", "loop": "a loop of NumPy's", "plan": "this plan"}
    told = [line for line in plan_grouped(m, n, k).explain().split("\n") if "unbound" in line]
    assert len(told) == 1
    assert words[way] in told[0]


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("ends", ["none", "relu", "bias"])
def test_machine_code_says_whether_it_ends_before_a_loop_by_the_planners_rule(
    ends: str, into: bool
) -> None:
    each, operation, call = rule_of_lists(into=into, plain=ends == "none")
    said = []
    for count in (1, 2, 4, 7, 8, 9, 12, 20, 40, 90):
        for largest in (2, 20, 90):
            a, b = map(tuple, drawn(count, largest, seed=count))
            bias = tuple(np.ones(y.shape[1], np.float32) for y in b) if ends == "bias" else None
            out = tuple(
                np.empty((len(x), y.shape[1]), np.float32) for x, y in zip(a, b, strict=True)
            )
            held = (a, b, out if into else None, bias)
            read = of("float32").read(held, "relu" if ends == "relu" else "none")
            assert read is not None
            flops = sum(min(2.0 * x.size * y.shape[1], SMALL) for x, y in zip(a, b, strict=True))
            assert read.is_sooner == (each * count + operation * flops > call)
            said.append(read.is_sooner)
    assert {True, False} == {*said}


@pytest.mark.parametrize("count", [7, 8, 12])
def test_lists_of_a_few_small_products_are_read_in_few_steps(count: int) -> None:
    """Each takes 0.05 us, and such a product 1.2: eight took 1.2 times their loop."""
    of("float32")
    a, b = drawn(count, 8)
    grouped_matmul(a, b)
    steps: list[Any] = []
    gc.disable()  # what looks on when garbage is collected would be counted
    sys.setprofile(lambda frame, event, _: steps.append(frame.f_code.co_name))
    try:
        grouped_matmul(a, b)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert len(steps) <= 2 * count + 80
