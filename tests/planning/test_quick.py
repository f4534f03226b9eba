"""A plain product of a shape never seen is left to NumPy at once where its plan would be."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.products.grouped  # its shelves are there
from tests.support.made_up import ADRENO_650, TWO_CORES
from tilewright import Device
from tilewright.backends import backends
from tilewright.calls.grouped_quick_host import is_worth_planning
from tilewright.engines.dense import plan
from tilewright.errors import ShapeError, TilewrightError
from tilewright.facts.problem import Problem
from tilewright.planning import quick
from tilewright.planning.classes import Tuned
from tilewright.planning.cost import Curve, Measured, Narrow, interpolated
from tilewright.planning.host_part import is_for_a_loop
from tilewright.planning.quick import Bounds
from tilewright.products.reference import matmul as exactly
from tilewright.remember import shelves

KERNELS = backends()["opencl"].kernels(TWO_CORES)
SIZES = (32, 128, 512, 2048)


def drawn(generator: np.random.Generator, transfer: float | None) -> Measured:
    """Curves of a host and three kernels, jagged as a busy machine leaves them."""

    def curve(rate: float) -> Curve:
        seconds = [2.0 * s**3 / rate * generator.uniform(0.5, 3) + 1e-6 for s in SIZES]
        return Curve(tuple((2.0 * s**3, t) for s, t in zip(SIZES, seconds, strict=True)))

    def side() -> tuple[tuple[float, float], ...]:
        return tuple((float(w), float(generator.uniform(0.5, 20))) for w in (1, 8, 64))

    names = ("panel", "coalesced", "naive")
    narrow = tuple((name, Narrow(side(), side(), side())) for name in ("host", *names))
    curves = tuple((name, curve(10 ** generator.uniform(10, 12))) for name in names)
    return Measured(curve(1e11), curves, 1e10, transfer, narrow)


def plain(m: int, n: int, k: int) -> Problem:
    return Problem(m, n, k, k, 1, n, 1, n, 1)


@pytest.mark.parametrize("place", [TWO_CORES, ADRENO_650], ids=["shared", "transfer"])
def test_what_is_the_hosts_for_certain_is_the_hosts_by_every_plan(place: Device) -> None:
    generator = np.random.default_rng(11)
    certain = there = 0
    for _ in range(12):
        measured = drawn(generator, None if place is TWO_CORES else 1e10)
        tuned = {"panel": Tuned("panel", KERNELS[0].configs(plain(9, 9, 9), place)[0], 0.4, "", "")}
        bounds = Bounds.of(measured, 4, {"panel": 0.4})
        for m, n, k in np.exp(generator.uniform(0, 7, (40, 3))).astype(int).tolist():
            made = plan(plain(m, n, k), place, KERNELS, measured=measured, tuned=tuned)
            if bounds.is_host(m, n, k):
                certain += 1
                assert made.kernel == "host", (m, n, k)
            there += made.kernel != "host"
    assert certain > 100
    assert there > 20


def test_a_device_that_costs_less_than_a_call_is_no_reason_to_leave_the_host() -> None:
    fast = Measured(
        Curve(((1e6, 9e-5), (1e9, 9e-2))), (("panel", Curve(((1e6, 1e-7),))),), 1e12, None
    )
    assert plan(plain(79, 79, 79), TWO_CORES, KERNELS, measured=fast).kernel == "host"
    slow = replace(fast, host=Curve(((1e6, 9e-3),)))
    assert plan(plain(79, 79, 79), TWO_CORES, KERNELS, measured=slow).kernel == "panel"


def test_the_epilogue_counts_on_either_side() -> None:
    """The host is a little faster at the product alone; behind it one core works, or two."""
    even = Curve(((1e6, 1e-4), (1e9, 0.1)))
    measured = Measured(Curve(((1e6, 9e-5), (1e9, 0.09))), (("panel", even),), 5e10, None)
    seconds = {}
    for activation, bias, wanted in (
        ("none", False, "host"),
        ("none", True, "host"),
        ("relu", False, "host"),
        ("gelu", False, "panel"),
        ("gelu", True, "panel"),
    ):
        problem = replace(plain(400, 400, 50), activation=activation, bias=bias)
        made = plan(problem, TWO_CORES, KERNELS, measured=measured)
        assert made.kernel == wanted, activation
        others = {part.kernel: part.seconds for part in made.rejected if part.seconds is not None}
        seconds[activation, bias] = {made.kernel: made.seconds, **others}
    hosts = {key: found["host"] or 0.0 for key, found in seconds.items()}
    assert hosts["none", False] < hosts["none", True] == hosts["relu", False]
    assert hosts["relu", False] < hosts["gelu", False] < hosts["gelu", True]
    spent = hosts["gelu", False] - hosts["none", False]
    more = (seconds["gelu", False]["panel"] or 0.0) - (seconds["none", False]["panel"] or 0.0)
    assert 1.8 * more < spent < 2.4 * more


def test_shapes_never_seen_are_not_planned_where_the_host_is_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "host")
    generator = np.random.default_rng(3)
    tw.matmul(np.ones((90, 80), "f"), np.ones((80, 70), "f"))
    plans = next(shelf for shelf in shelves() if shelf.name == "plans of products")
    before = len(plans)
    for m, n, k in generator.integers(1, 200, (50, 3)).tolist():
        a, b = generator.random((m, k), np.float32), generator.random((k, n), np.float32)
        np.testing.assert_array_equal(tw.matmul(a, b), a @ b)
        out = np.full((m, n), np.nan, np.float32)
        assert tw.matmul(a, b, out=out) is out
        np.testing.assert_array_equal(out, a @ b)
    assert len(plans) == before


@pytest.mark.parametrize(("a", "b"), [((3, 4), (5, 3)), ((70, 80), (81, 90))])
def test_sizes_that_do_not_fit_are_refused_however_plain(
    a: tuple[int, int], b: tuple[int, int]
) -> None:
    with pytest.raises(ShapeError, match="must equal"):
        tw.matmul(np.ones(a, "f"), np.ones(b, "f"))


def test_what_plain_products_leave_behind_is_bounded() -> None:
    shelf = next(shelf for shelf in shelves() if shelf.name == "plain products of the host")
    for count in range(1, 2000):
        tw.matmul(np.ones((count, 1, 2), "f"), np.ones((2, 1), "f"), device=None)
    assert shelf.bytes <= shelf.most
    tw.forget()
    assert len(shelf) == 0


@pytest.mark.parametrize("count", [1, 3, 40, 300])
@pytest.mark.parametrize("make", [list, tuple])
def test_a_small_plain_batch_is_multiplied_without_a_plan(
    count: int, make: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(count)
    plans = next(shelf for shelf in shelves() if shelf.name == "plans of batches")
    before = len(plans)
    sizes = generator.integers(0, 20, (count, 3)).tolist()
    a = make(generator.random((m, k), np.float32) for m, _, k in sizes)
    b = make(generator.random((k, n), np.float32) for _, n, k in sizes)
    for device in (None, "host"):
        if device:
            monkeypatch.setenv("TILEWRIGHT_DEVICE", device)
        got = tw.grouped_matmul(a, b)
        assert type(got) is list
        for x, y, z in zip(a, b, got, strict=True):
            np.testing.assert_allclose(z, np.float64(x) @ y, rtol=1e-5)
    assert len(plans) == before


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.ones((3, 4), "f"), np.ones((5, 3), "f")),
        (np.ones((3, 4), "f"), np.ones((4, 3), "d")),
        (np.ones(4, "f"), np.ones((4, 3), "f")),
        (np.ones((3, 4), "f"), np.ones((2, 4, 3), "f")),
        (np.ones((3, 4), "i"), np.ones((4, 3), "i")),
        (np.ones((3, 4), ">f4"), np.ones((4, 3), ">f4")),
    ],
)
def test_a_small_batch_is_checked_as_any_other(a: Any, b: Any) -> None:
    with pytest.raises(TilewrightError):
        tw.grouped_matmul([a], [b])
    fits = np.ones((3, 3), "f")
    with pytest.raises(TilewrightError):
        tw.grouped_matmul([fits, a], [fits, b])


@pytest.mark.parametrize("count", [1, 2, 8, 40])
@pytest.mark.parametrize(
    "odd",
    [
        np.ma.masked_array(np.ones((3, 3), "f")),
        np.ones((3, 3), "i"),
        np.ones((3, 3), "d"),
        np.ones((3, 3), complex),
        np.ones((3, 3, 3), "f"),
        np.ones(3, "f"),
        np.array(1.0, "f"),
        None,
        [[1.0]],
    ],
    ids=lambda odd: f"{type(odd).__name__} {getattr(odd, 'dtype', '')}",
)
def test_one_odd_matrix_anywhere_is_refused_by_its_index(odd: Any, count: int) -> None:
    fits = np.ones((3, 3), "f")
    for name in "ab":
        given = {"a": [fits] * count, "b": [fits] * count}
        given[name][count - 1] = odd
        index = 0 if getattr(odd, "dtype", None) == "d" and count == 1 else count - 1
        with pytest.raises(TilewrightError, match=rf"[ab](\[{index}\]|\.dtype)"):
            tw.grouped_matmul(**given)


def calls_of(work: Any) -> int:
    """How many functions written in Python one call enters, none of them the collector's.

    The least of three: after some hundred products a call looks whether machine code is there.
    """
    work()
    return min(_calls_of(work) for _ in range(3))


def _calls_of(work: Any) -> int:
    seen = []
    gc.disable()  # what looks on when garbage is collected, as Hypothesis does, would be counted
    sys.setprofile(lambda frame, event, _: seen.append(frame) if event == "call" else None)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return len(seen) - 1


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("make", [list, tuple])
def test_a_few_plain_products_cost_two_functions_and_named_options_one(
    count: int, make: type
) -> None:
    a = make(np.ones((3, 4), "f") for _ in range(count))
    b = make(np.ones((4, 5), "f") for _ in range(count))
    assert calls_of(lambda: tw.grouped_matmul(a, b)) <= 2
    assert calls_of(lambda: tw.grouped_matmul(a, b, alpha=1.0, beta=0.0, order="auto")) <= 3
    torch = pytest.importorskip("torch")
    a, b = (make(map(torch.from_numpy, part)) for part in (a, b))
    assert calls_of(lambda: tw.grouped_matmul(a, b)) <= 3


NO_OPENCL = """
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyopencl":
            raise ModuleNotFoundError(name)
if HIDDEN:
    sys.meta_path.insert(0, Refusing())
import numpy as np, tilewright as tw
assert not HIDDEN or [d.id for d in tw.devices() if d.backend == "opencl"] == []
g = np.random.default_rng(0)
from tilewright import remember
assert tw.grouped_matmul and tw.plan_grouped  # loaded now, with their shelves
plans = [s for s in remember.shelves() if s.name == "plans of batches"][0]
for count, most in ((1, 40), (3, 64), (40, 90), (600, 64), (30, 300)):
    sizes = g.integers(0, most, (count, 3))
    for dtype in "fd":
        a = [g.standard_normal((m, k)).astype(dtype) for m, n, k in sizes]
        b = [g.standard_normal((k, n)).astype(dtype) for m, n, k in sizes]
        for x, y, z in zip(a, b, tw.grouped_matmul(a, b)):
            np.testing.assert_allclose(z, x @ y, rtol=1e-4, atol=1e-3)
        assert len(plans) == 0, (count, most)
        plan = tw.plan_grouped(*sizes.T, dtype=dtype)
        bias = [g.standard_normal(n).astype(dtype) for m, n, k in sizes]
        out = [np.ones((m, n), dtype) for m, n, k in sizes]
        bound = plan.bind(a, b, out, beta=0.5, bias=bias, activation="relu")
        for x, y, v, z in zip(a, b, bias, bound()):
            np.testing.assert_allclose(z, np.maximum(x @ y + 0.5 + v, 0), rtol=1e-4, atol=1e-3)
        tw.forget()
try:
    tw.grouped_matmul(a, b, device="opencl")
except tw.errors.DeviceError:
    print("refused")
"""


@pytest.mark.parametrize("how", ["refused", "host"])
def test_without_opencl_batches_are_loops_and_right(how: str) -> None:
    environment = {**os.environ, **({"TILEWRIGHT_DEVICE": "host"} if how == "host" else {})}
    code = NO_OPENCL.replace("HIDDEN", str(how == "refused"))
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert how == "host" or ran.stdout == "refused\n"


def test_a_batch_of_a_plan_that_pays_is_planned() -> None:
    assert is_worth_planning(1000, 2e9)
    assert not is_worth_planning(1, 2e9)
    assert not is_worth_planning(1000, 9e6)
    assert "unbound" in tw.plan_grouped([3], [3], [3], device="opencl").explain()


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_epilogues_are_right_where_columns_lie_side_by_side_and_where_not(
    dtype: str, activation: str, opencl_device: Device
) -> None:
    generator = np.random.default_rng(8)
    for m, n, k in ((5, 7, 3), (50, 97, 200), (400, 49, 193), (33, 16, 0), (1, 130, 9)):
        a, b = (generator.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
        bias = generator.standard_normal(n).astype(dtype)
        for turned in (False, True):
            for beta in (0.0, -0.5):
                old = generator.standard_normal((m, n)).astype(dtype)
                out = np.asarray(old, order="F" if turned else "C").copy("K")
                wanted = exactly(
                    a, b, c=old, alpha=1.5, beta=beta, bias=bias, activation=activation
                )
                if beta == 0:
                    out[...] = np.nan
                tw.grouped_matmul(
                    [a],
                    [b],
                    out=[out],
                    alpha=1.5,
                    beta=beta,
                    bias=[bias],
                    activation=activation,
                    device=opencl_device,
                )
                slack = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-12}[dtype]
                np.testing.assert_allclose(np.float64(out), wanted, atol=slack * 10, rtol=slack)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"alpha": -0.5},
    {"alpha": 0.0},
    {"activation": "relu"},
    {"activation": "gelu"},
    {"bias": True},
    {"bias": True, "activation": "relu", "alpha": 2.0},
    {"beta": 1.0},
    {"beta": -0.5, "alpha": 3.0, "bias": True, "activation": "relu"},
    {"beta": 0.5, "alpha": 0.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_loop_of_few_bound_products_is_right_with_every_epilogue(
    options: dict[str, Any], dtype: str, turned: bool
) -> None:
    generator = np.random.default_rng(5)
    sizes = [(5, 7, 3), (1, 1, 1), (4, 6, 0), (0, 3, 2), (17, 33, 9)]
    a = [generator.standard_normal((m, k)).astype(dtype) for m, _, k in sizes]
    b = [generator.standard_normal((n, k)).astype(dtype).T for _, n, k in sizes]
    given = dict(options)
    if given.pop("bias", False):
        given["bias"] = [generator.standard_normal(n).astype(dtype) for _, n, _ in sizes]
    old = [generator.standard_normal((m, n)).astype(dtype) for m, n, _ in sizes]
    if not given.get("beta"):
        old = [np.full_like(one, np.nan) for one in old]
    out = [np.asarray(one, order="F" if turned else "C").copy("K") for one in old]
    plan = tw.plan_grouped(*np.array(sizes).T, dtype=dtype)
    assert "bound      a loop" in plan.explain() or "engine     host" in plan.explain()
    bound = plan.bind(a, b, out, **given)
    bias = given.pop("bias", [None] * len(sizes))
    for _ in range(2):
        before = [one.copy() for one in out]
        for i, got in enumerate(bound()):
            assert got is out[i]
            wanted = exactly(a[i], b[i], c=before[i], bias=bias[i], **given)
            slack = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-12}[dtype]
            np.testing.assert_allclose(np.float64(got), wanted, atol=slack * 10, rtol=slack)


def test_an_empty_batch_has_no_way_to_be_computed() -> None:
    text = tw.plan_grouped([], [], []).explain()
    assert "the batch is empty: nothing is computed" in text or "engine     host" in text
    assert "bound" not in text


def test_few_bound_products_are_a_loop_unless_the_device_is_named(opencl_device: Device) -> None:
    sizes = [3], [3], [3]
    a = [np.ones((3, 3), "f")]
    named = tw.plan_grouped(*sizes, device=opencl_device)
    assert "bound      " not in named.explain()
    np.testing.assert_array_equal(named.bind(a, a)()[0], 3 * a[0])
    free = tw.plan_grouped(*sizes)
    assert calls_of(free.bind(a, a)) <= 3
    many = tw.plan_grouped(*[np.full(4000, 30)] * 3)
    assert "bound      " not in many.explain()


@pytest.mark.parametrize("launch", [1e-6, 2.5e-5, 1e-4])
def test_the_more_products_the_sooner_a_kernel_pays(launch: float) -> None:
    def found(count: int, each: float, plain: bool) -> bool:
        return is_for_a_loop(count, count * each, launch, plain=plain)

    for plain in (True, False):
        for each in (0.0, 1e3, 1e6):
            row = [found(count, each, plain) for count in range(1, 1000)]
            assert row == sorted(row, reverse=True)
            assert not row[-1]
        assert not any(found(1, launch * 1e12, plain) for _ in range(1))
    assert found(1, 1e3, False) <= found(1, 1e3, True)


def test_a_bound_loop_keeps_its_operands_alive() -> None:
    bound = tw.plan_grouped([40], [40], [40]).bind(
        [np.ones((40, 40), "f")], [np.eye(40, dtype="f")]
    )
    junk = [np.full((40, 40), 7, "f") for _ in range(200)]
    np.testing.assert_array_equal(bound()[0], np.ones((40, 40)))
    assert len(junk) == 200


def test_a_bound_epilogue_lets_nan_through(opencl_device: Device) -> None:
    a, b = np.ones((2, 3), "f"), np.ones((3, 40), "f")
    a[0, 0] = np.nan
    run = tw.plan_grouped([2], [40], [3], device=opencl_device).bind([a], [b], activation="relu")
    got = run()[0]
    assert np.isnan(got[0]).all()
    assert (got[1] == 3).all()


def test_large_products_of_a_batch_go_to_numpy_and_the_rest_to_the_kernel(
    opencl_device: Device,
) -> None:
    generator = np.random.default_rng(9)
    sizes = [(5, 7, 3), (1000, 900, 900), (40, 30, 0), (1, 1, 1), (910, 905, 1001)]
    a = [generator.standard_normal((m, k)).astype("f") for m, _, k in sizes]
    b = [generator.standard_normal((k, n)).astype("f") for _, n, k in sizes]
    bias = [generator.standard_normal(n).astype("f") for _, n, _ in sizes]
    plan = tw.plan_grouped(*np.array(sizes).T, device=opencl_device)
    if opencl_device.kind == "cpu" and opencl_device.has("svm_system"):
        assert "2 large products by NumPy's BLAS" in plan.explain()
    run = plan.bind(a, b, bias=bias, alpha=[1.0, 2.0, 1.0, 1.0, -1.0], activation="relu")
    for got in (run(), run()):
        for i, x in enumerate(got):
            scale = (1.0, 2.0, 1.0, 1.0, -1.0)[i]
            wanted = exactly(a[i], b[i], alpha=scale, bias=bias[i], activation="relu")
            np.testing.assert_allclose(x, wanted, atol=2e-3, rtol=1e-4)


# The quick path's own arithmetic is the planner's.


@pytest.mark.parametrize("seed", range(20))
def test_bounds_are_read_off_the_same_curves(seed: int) -> None:
    """At the points, between them, before the first and beyond the last; narrow sides likewise."""
    generator = np.random.default_rng(seed)
    measured = drawn(generator, None)
    curve = measured.host
    line = quick._line(curve)
    at_points = [flops for flops, _ in curve.points]
    for flops in (*at_points, *(2 * generator.integers(1, 4096, 30).astype(float) ** 3)):
        found = math.exp(quick._at(line, math.log(flops)))
        assert found == pytest.approx(curve.seconds(flops), rel=1e-9)
    narrow = dict(measured.narrow)["panel"]
    sides = [int(x) for x in generator.integers(1, 2000, 3)]
    for m, n, k in ((1, 4, 4), (1, 3, 3), (4, 1, 4), (4, 4, 1), (64, 256, 255), (9, 9, 9), sides):
        sizes = ((narrow.m, m), (narrow.n, n), (narrow.k, k))
        few = [(points, size) for points, size in sizes if points and 4 * size <= max(m, n, k)]
        factors = [interpolated((*points, (1024.0, 1.0)), size) for points, size in few]
        assert narrow.factor(m, n, k) == pytest.approx(max(factors, default=1.0))


def test_a_curve_that_falls_is_bounded_from_below() -> None:
    curve = Curve(((1.0, 5.0), (2.0, 3.0), (3.0, 4.0), (4.0, 9.0), (5.0, 8.0)))
    rising = ((1.0, 3.0), (2.0, 3.0), (3.0, 4.0), (4.0, 8.0), (5.0, 8.0))
    assert quick._rising(curve).points == rising


def test_large_results_are_numpys_own_beside_small_ones_too() -> None:
    generator = np.random.default_rng(3)
    a, b = (generator.standard_normal(shape, np.float32) for shape in ((200, 4), (4, 200)))
    small = [generator.standard_normal((5, 5), np.float32)] * 9
    for count in (0, 3, 9):
        left, right = [*small[:count], a], [*small[:count], b]
        made = tw.grouped_matmul(left, right)
        assert all(np.array_equal(z, x @ y) for z, x, y in zip(made, left, right, strict=True))
