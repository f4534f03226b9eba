"""A plain product of a shape never seen is left to NumPy at once where its plan would be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_up import ADRENO_650, TWO_CORES

import tilewright as tw
from tilewright import Device
from tilewright.backends import backends
from tilewright.batch import Problem
from tilewright.errors import ShapeError
from tilewright.planning import plan
from tilewright.planning.classes import Tuned
from tilewright.planning.cost import Curve, Measured, Narrow
from tilewright.planning.quick import Bounds
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
