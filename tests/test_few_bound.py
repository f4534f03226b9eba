"""Few bound products: wherever their operands and results lie, and whichever threads run them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.planning.test_quick import OPTIONS
from tilewright.errors import TilewrightError
from tilewright.products.reference import matmul as exactly


def at_an_odd_byte(values: Any) -> Any:
    memory = np.empty(values.nbytes + 1, np.uint8)[1:]
    view = np.ndarray(values.shape, values.dtype, memory)
    view[...] = values
    return view


def apart(values: Any) -> Any:
    wide = np.empty((2 * values.shape[0] + 1, 3 * values.shape[1] + 1), values.dtype)
    view = wide[1::2, 1::3][: values.shape[0], : values.shape[1]]
    view[...] = values
    return view


LIES: dict[str, Any] = {
    "at an odd byte": at_an_odd_byte,
    "apart": apart,
    "rows reversed": lambda values: values[::-1].copy()[::-1],
    "columns reversed": lambda values: values[:, ::-1].copy()[:, ::-1],
    "turned, at an odd byte": lambda values: at_an_odd_byte(values.T).T,
}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("lie", LIES)
def test_operands_and_results_of_a_loop_may_lie_anywhere(
    lie: str, dtype: str, options: dict[str, Any]
) -> None:
    generator = np.random.default_rng(6)
    sizes = [(5, 7, 3), (1, 1, 1), (4, 6, 0), (17, 33, 9)]

    def drawn(*shape: int) -> Any:
        return LIES[lie](generator.standard_normal(shape).astype(dtype))

    a, b = [drawn(m, k) for m, _, k in sizes], [drawn(k, n) for _, n, k in sizes]
    out = [drawn(m, n) for m, n, _ in sizes]
    given = dict(options)
    if given.pop("bias", False):
        given["bias"] = [generator.standard_normal(n).astype(dtype) for _, n, _ in sizes]
    bound = tw.plan_grouped(*np.array(sizes).T, dtype=dtype).bind(a, b, out, **given)
    bias = given.pop("bias", [None] * len(sizes))
    before = [one.copy() for one in out]
    bound()
    for i, got in enumerate(out):
        wanted = exactly(a[i], b[i], c=before[i], bias=bias[i], **given)
        slack = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(np.float64(got), wanted, atol=slack * 10, rtol=slack)


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("where", [None, "opencl", "host"])
def test_threads_that_run_one_bound_batch_take_turns(where: str | None) -> None:
    generator = np.random.default_rng(7)
    runs, threads, count = 60, 4, 6
    m, n, k = 30, 50, 40  # so large that NumPy lets other threads work meanwhile
    together = Barrier(threads)
    a = [generator.integers(-2, 3, (m, k)).astype("d") for _ in range(count)]
    b = [generator.integers(-2, 3, (k, n)).astype("d") for _ in range(count)]
    bias = [generator.integers(-2, 3, n).astype("d") for _ in range(count)]
    try:
        plan = tw.plan_grouped([m] * count, [n] * count, [k] * count, dtype="d", device=where)
    except TilewrightError:
        pytest.skip("no such device")
    made = [x @ y for x, y in zip(a, b, strict=True)]
    added = [np.zeros((m, n)) for _ in range(count)]
    sums = [np.zeros((m, n)) for _ in range(2)]
    left = [np.zeros((m, n)) for _ in range(count)]
    work = (
        plan.bind(a, b, left, alpha=3.0, bias=bias),
        plan.bind(a, b, added, beta=1.0, alpha=2.0),
        plan.bind(a, b, sums, into=[0, 1] * 3, beta=1.0),
    )

    def run() -> None:
        together.wait()
        for _ in range(runs):
            for launch in work:
                launch()

    running = [Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for i, got in enumerate(added):
        np.testing.assert_array_equal(got, 2 * runs * threads * made[i])
    for i, got in enumerate(sums):
        np.testing.assert_array_equal(got, runs * threads * (made[i] + made[i + 2] + made[i + 4]))
    for x, y, z in zip(left, made, bias, strict=True):
        np.testing.assert_array_equal(x, 3 * y + z)
