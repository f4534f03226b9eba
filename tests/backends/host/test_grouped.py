"""Batches on the host's own micro-kernels: right by every case, alike in every run and thread."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import Any

import numpy as np
import pytest

from tests.support.batches import arguments, batches, check_all, given_of, lists, small
from tests.support.cases import Case
from tests.support.checks import assert_right_together
from tests.support.processors import HASWELL
from tilewright import grouped_matmul, plan_grouped
from tilewright.backends.host import compiled
from tilewright.backends.host import grouped as native
from tilewright.backends.host.narrow import KINDS
from tilewright.calls import grouped_plan
from tilewright.calls.grouped_loop_host import operands_of
from tilewright.errors import KernelError
from tilewright.inputs.batch import checked
from tilewright.inputs.batch_place import host_place
from tilewright.inputs.devices import host

pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs Numba")
NATIVE: dict[str, Any] = {"device": "host", "kernel": "native"}
HELD = {
    "haswell": HASWELL,
    "nehalem": "+sse4.2,+popcnt",
}


def of(*dtypes: str) -> list[Any]:
    return [one for one in batches() if str(one.id).split("-")[0] in dtypes]


@pytest.mark.parametrize("cases", of("float32", "float64"))
def test_every_case_and_every_edge_of_a_tile_is_right(cases: list[Case]) -> None:
    given = given_of(cases)
    out = [one.out for one in given]
    with np.errstate(all="ignore"):
        assert grouped_matmul(**arguments(given), out=out, **NATIVE) is out
    check_all(out, given)


def test_a_sum_of_twenty_thousand_terms_is_as_exact_as_numpys() -> None:
    given = given_of([Case(1, 1, 20_011)] * 40)
    assert_right_together(grouped_matmul(*lists(given), **NATIVE), given)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_long_product_among_small_ones_is_cut_and_right_with_every_end(dtype: str) -> None:
    cases = [Case(5, 6, 7, dtype=dtype)] * 20
    for bias, alpha, out in ((False, 1.0, "C"), (True, 0.5, "C"), (True, 0.5, "F")):
        more = {"alpha": alpha, "beta": 1 - alpha, "bias": bias, "out": out}
        given = given_of([*cases, Case(17, 9, 60_000, dtype=dtype, **more)])
        sizes = ([one.case.m for one in given], [one.case.n for one in given])
        plan = plan_grouped(*sizes, [one.case.k for one in given], dtype=dtype, device="host")
        assert plan.layout is not None
        assert plan.layout.parts[-1] > 1
        grouped_matmul(**arguments(given), out=[one.out for one in given], **NATIVE)
        assert_right_together([one.out for one in given], given)


@pytest.mark.parametrize("spares", [True, False])
def test_large_products_among_small_ones_are_right_with_every_end_whoever_multiplies_them(
    spares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native.NativeGroups, "spares_large", spares)
    cases = [Case(5, 6, 7)] * 20
    cases[4] = Case(1000, 900, 820, a="strided", out="F", alpha=0.5, beta=2.0)
    cases[11] = Case(520, 1600, 900, b="F", bias=True)
    for at in ((4, 11), (4,), ()):
        given = given_of([cases[i] if i in at else cases[0] for i in range(20)])
        a, b = lists(given)
        sizes = [(*x.shape, y.shape[1]) for x, y in zip(a, b, strict=True)]
        m, k, n = zip(*sizes, strict=True)
        told = plan_grouped(m, n, k, device="host").explain()
        assert (f"{len(at)} large product" in told) is (spares and bool(at))
        out = [one.out for one in given]
        assert grouped_matmul(**arguments(given), out=out, **NATIVE) is out
        check_all(out, given)


ENDS: list[dict[str, Any]] = [
    {},
    {"beta": 1.0},
    {"activation": "relu"},
    {"bias": True},
    {"bias": True, "activation": "relu"},
    {"beta": 1.0, "bias": True, "activation": "relu"},
    {"beta": -0.5, "bias": True, "activation": "relu"},
    {"alpha": 2.0, "activation": "relu"},
    {"alpha": 0.0, "beta": 1.0, "activation": "relu"},
]


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_registers_end_is_right_and_the_same_bits_as_where_memory_does(
    dtype: str, ends: dict[str, Any]
) -> None:
    """Results whose columns follow each other are ended in registers, all others in memory."""
    rng = np.random.default_rng(3)
    sizes = [(m, n, k) for m in (1, 7, 8, 25) for n in (1, 15, 33, 97) for k in (0, 1, 70, 600)]
    sizes += [(100, 300, 40), (9, 1, 900)]
    a, b = ([rng.standard_normal(x[i : i + 2]) for x in _sides(sizes)] for i in (0, 1))
    more = {name: value for name, value in ends.items() if name != "bias"}
    bias = [rng.standard_normal(n).astype(dtype) for _, n, _ in sizes] if "bias" in ends else None
    a, b = ([one.astype(dtype) for one in part] for part in (a, b))
    starts = [rng.standard_normal((m, n)).astype(dtype) for m, n, _ in sizes]
    if not ends.get("beta"):
        starts = [np.full_like(one, np.nan) for one in starts]
    wide = [np.full((m + 2, n + 5), 7, dtype) for m, n, _ in sizes]
    high = [np.full((n + 2, m + 5), 7, dtype) for m, n, _ in sizes]
    rows, columns = [one[1:-1, 2:-3] for one in wide], [one[1:-1, 2:-3].T for one in high]
    for out in (rows, columns):
        for z, start in zip(out, starts, strict=True):
            z[...] = start
        grouped_matmul(a, b, out=out, bias=bias, **more, **NATIVE)
    assert all(map(np.array_equal, rows, columns))
    for i, (x, y, z, start) in enumerate(zip(a, b, rows, starts, strict=True)):
        truth = ends.get("alpha", 1.0) * (x.astype(float) @ y)
        truth += ends["beta"] * start.astype(float) if ends.get("beta") else 0.0
        truth += bias[i].astype(float) if bias else 0.0
        truth = np.maximum(truth, 0.0) if "activation" in ends else truth
        allowed = np.finfo(dtype).eps * 100 * max(1, x.shape[1]) ** 0.5
        assert np.abs(z - truth).max(initial=0.0) <= allowed
        for whole in (wide[i], high[i]):
            whole[1:-1, 2:-3] = 7
            assert (whole == 7).all()


def _sides(sizes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Rows of A, the steps of k, columns of B."""
    return [(m, k, n) for m, n, k in sizes]


def test_what_is_no_number_stays_one_where_registers_clip() -> None:
    a, b = [np.full((9, 3), np.nan, np.float32)] * 30, [np.ones((3, 40), np.float32)] * 30
    bias = [np.zeros(40, np.float32)] * 30
    for one in grouped_matmul(a, b, bias=bias, activation="relu", **NATIVE):
        assert np.isnan(one).all()
    low = [-np.ones((9, 3), np.float32)] * 30
    for one in grouped_matmul(low, b, activation="relu", **NATIVE):
        assert (one == 0).all()


def test_runs_give_the_same_bits_and_threads_do_not_disturb_each_other() -> None:
    batch = [given_of([Case(90 + i, 70, 300 + i) for i in range(40)]), small(seed=1)]
    plans = [plan_grouped(*_sizes(given), device="host").bind(*lists(given)) for given in batch]
    first = [[one.copy() for one in plan()] for plan in plans]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(grouped_matmul, *lists(batch[i % 2]), **NATIVE) for i in range(40)]
        for i, run in enumerate(runs):
            assert all(map(np.array_equal, run.result(), first[i % 2]))


@pytest.mark.parametrize("lies", ["C", "F", "strided"])
def test_what_is_fetched_ahead_of_large_products_changes_no_result(lies: str) -> None:
    rng = np.random.default_rng(5)
    sizes = [(70 + 9 * i, 40 + 13 * i, (90, 300, 700)[i % 3]) for i in range(12)]

    def lying(rows: int, cols: int) -> Any:
        wide = rng.random((rows, 2 * cols), np.float32)
        kinds = {"C": np.ascontiguousarray, "F": np.asfortranarray, "strided": lambda x: x}
        return kinds[lies](wide[:, ::2])

    a = [lying(m, k) for m, _, k in sizes]
    b = [lying(k, n) for _, n, k in sizes]
    for x, y, found in zip(a, b, grouped_matmul(a, b, **NATIVE), strict=True):
        assert np.allclose(found, x.astype(np.float64) @ y, rtol=1e-5)


@pytest.mark.usefixtures("two_cores")
def test_tiles_of_a_product_are_even_and_cover_it_once() -> None:
    sizes = np.arange(1, 1200)
    rows = *((m, step) for m in (96, 192, 384) for step in (24, 32)), (48, 24)
    for most, step in (*rows, (96, 32), (256, 32), (512, 16)):
        each = native._even(sizes, np.full_like(sizes, most), step)
        count = -(-sizes // most)
        assert (each <= most).all()
        assert (each * count >= sizes).all()
        assert (each * (count - 1) < sizes).all()
    given = given_of([Case(300, 700, 40)] + [Case(3, 4, 5)] * 20)
    plan = plan_grouped(*_sizes(given), device="host")
    assert plan.layout is not None
    call = checked(host_place(), *lists(given), None)
    records = native._records(plan.layout, operands_of(call), KINDS["float32"])
    tiles, _ = native._tiles(plan.layout, records, KINDS["float32"])
    of_first = tiles[tiles[:, 0] == records.ctypes.data]
    assert of_first[:, 3:].prod(axis=1).sum() == 300 * 700
    assert np.ptp(of_first[:, 3:].prod(axis=1)) <= 0.2 * of_first[:, 3:].prod(axis=1).max()


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("count", [2, 3, 8, 50])
def test_equal_tiles_are_dealt_evenly_to_tasks(count: int) -> None:
    given = given_of([Case(288, 280, 290)] * count)
    plan = plan_grouped(*_sizes(given), device="host")
    assert plan.layout is not None
    call = checked(host_place(), *lists(given), None)
    records = native._records(plan.layout, operands_of(call), KINDS["float32"])
    tiles, cuts = native._tiles(plan.layout, records, KINDS["float32"])
    assert np.ptp(np.diff(cuts)) == 0
    assert len(cuts) - 1 == len(tiles)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86's registers")
@pytest.mark.parametrize("dtype", ["single", "double"])
def test_no_sum_leaves_its_register_between_steps_of_k(dtype: str) -> None:
    from numba import cfunc, types

    from tilewright.backends.host.kernels import grouped, grouped_tile

    multiply = getattr(grouped, f"_{dtype}")
    made = cfunc(types.void(*[types.intp] * len(signature(multiply).parameters)))(multiply)
    text = made._library.get_asm_str()
    sums = grouped_tile.ROWS * grouped_tile.WIDEST
    blocks = [block for block in re.split(r"\n\.L\w+:", text) if block.count("vfmadd") >= sums]
    assert len(blocks) >= 2
    for block in blocks:
        inner = block[: block.rindex("vfmadd")]
        assert not re.search(r"%[xyz]mm\d+, -?\d*\(%rsp\)|\(%rsp\), %[xyz]mm", inner), inner


def test_other_types_are_refused_with_what_there_is() -> None:
    given = given_of([Case(3, 4, 5, dtype="float16")] * 9)
    with pytest.raises(KernelError, match=r"kernel='native': .*no grouped kernel for float16"):
        grouped_matmul(*lists(given), **NATIVE)
    with pytest.raises(KernelError, match=r"kernel='nativ': 'host' knows 'native'"):
        grouped_matmul(*lists(small()), device="host", kernel="nativ")


def test_until_it_is_compiled_a_call_is_a_loop_and_a_bound_plan_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(native, "_compiled", set())
    monkeypatch.setattr(native, "_begin", lambda device, dtype: begun.append(dtype))
    m = n = k = np.array([64] * 90)
    asked = (m, n, k, "float32", host(), "auto")
    plan = grouped_plan.plan_of(*asked, named=True, at_once=True)
    assert plan.layout is None
    assert "rejected   native: its machine code is not compiled yet" in plan.explain()
    assert begun == ["float32"]
    assert grouped_plan.plan_of(*asked, named=True).layout is not None
    native.compile_for(host(), "float32")
    assert grouped_plan.plan_of(*asked, named=True, at_once=True).layout is not None


def test_a_call_that_meets_no_machine_code_leaves_no_thread_behind_that_a_fork_would_lose() -> None:
    given = small(count=60)
    expected = grouped_matmul(*lists(given), **NATIVE)
    child = os.fork()
    if child == 0:
        right = all(map(np.array_equal, grouped_matmul(*lists(given), **NATIVE), expected))
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86's older processors")
@pytest.mark.parametrize("core", HELD)
def test_narrower_registers_give_right_results(core: str) -> None:
    code = (
        "from tests.backends.host.test_grouped import *\n"
        "cases = [Case(m, n, k, dtype=d) for d in ('float32',) for m in (1, 5, 7, 25)"
        " for n in (1, 4, 9, 16, 35) for k in (1, 3, 300)]\n"
        "given = given_of(cases)\n"
        "check_all(grouped_matmul(*lists(given), **NATIVE), given)\n"
    )
    told = {"NUMBA_CPU_NAME": core, "NUMBA_CPU_FEATURES": HELD[core]}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env={**os.environ, **told}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_compiler_that_fails_is_named_and_calls_are_right_without_a_word_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise OSError(28, "No space left on device")

    _left_to_the_compiler(monkeypatch, [fails])
    given = given_of([Case(9, 20, 30 + i) for i in range(60)])
    for _ in range(2):
        out = [one.out for one in given]
        results = grouped_matmul(*lists(given), out=out, device="host", order="given")
        assert_right_together(results, given)
        native._end()
        native._LOCK.release()
    assert capfd.readouterr().err == ""
    with pytest.raises(KernelError, match=r"cannot be compiled: OSError: .*No space left"):
        plan_grouped(*_sizes(given), device="host").bind(*lists(given), kernel="native")
    plan = plan_grouped(*_sizes(given), device="host")
    assert_right_together(plan.bind(*lists(given))(), given)
    grouped_plan._plans.clear()


def test_a_process_that_ends_waits_for_one_function_and_not_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    alive = [True]

    class Main:
        def is_alive(self) -> bool:
            return alive[0]

        def join(self, timeout: float) -> None:
            """The call that asks ends first."""

    def first() -> None:
        made.append(1)
        alive[0] = False

    _left_to_the_compiler(monkeypatch, [first, lambda: made.append(2)])
    monkeypatch.setattr(native, "main_thread", Main)
    native._begin(host(), "float32")
    native._begun["float32"].join()
    assert made == [1]
    assert not native.is_compiled("float32")


def test_where_numba_was_told_to_interpret_batches_are_right_and_nothing_is_printed() -> None:
    code = (
        "from tests.backends.host.test_grouped import *\n"
        "from tests.backends.host.test_grouped import _sizes\n"
        "given = given_of([Case(9, 20, 30 + i) for i in range(60)])\n"
        "out = [one.out for one in given]\n"
        "how = {'out': out, 'device': 'host', 'order': 'given'}\n"
        "assert_right_together(grouped_matmul(*lists(given), **how), given)\n"
        "plan = plan_grouped(*_sizes(given), device='host')\n"
        "assert plan.layout is None\n"
        "assert_right_together(plan.bind(*lists(given))(), given)\n"
        "with pytest.raises(KernelError, match='NUMBA_DISABLE_JIT is set'):\n"
        "    grouped_matmul(*lists(given), device='host', kernel='native')\n"
    )
    told = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=told, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _sizes(given: Any) -> tuple[list[int], list[int], list[int]]:
    return tuple([getattr(one.case, name) for one in given] for name in "mnk")  # type: ignore[return-value]


def _left_to_the_compiler(monkeypatch: pytest.MonkeyPatch, stages: list[Any]) -> None:
    """A process in which nothing is compiled yet, and these are the stages of that."""
    for name, empty in (("_compiled", set()), ("_begun", {}), ("_refused", {})):
        monkeypatch.setattr(native, name, empty)
    monkeypatch.setattr(native, "_stages", lambda device, dtype: stages)
    grouped_plan._plans.clear()
