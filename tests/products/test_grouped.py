"""Products of unlike sizes in one call: right, in the caller's order, and never past their memory.

Every problem is a case of `cases.py`, or a size at the edge of a tile, held to the rule of
`tests/support/checks.py`; a batch is all of them that share a dtype and an activation.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.conftest import DRIVERS, find_device
from tests.support import tiny_dlpack
from tests.support.batches import arguments, batches, check_all, edges, given_of, lists, small
from tests.support.cases import Case, Operands, operands
from tests.support.checks import assert_right_together
from tilewright import Device, GroupedPlan, RaggedBatch, grouped_matmul, plan_grouped
from tilewright.calls import grouped_plan, grouped_run_host
from tilewright.errors import DtypeError, OperandError, ShapeError

ORDERS = ("auto", "given", "k-descending", "bucketed", "longest-first")


def places() -> list[Any]:
    names: list[Any] = ["host", *DRIVERS]
    if any(d.kind == "gpu" and d.backend == "opencl" for d in tilewright.devices()):
        names.append(pytest.param("gpu", marks=pytest.mark.gpu))
    return names


@pytest.fixture(params=places())
def where(request: pytest.FixtureRequest) -> Device | str:
    return "host" if request.param == "host" else find_device(request.param)


@pytest.fixture
def without_svm(intel: Device) -> Device:
    """Intel's device, were it one that cannot reach the host's memory."""
    grouped_plan._plans.clear()
    return replace(intel, features=intel.features - {"svm_system"})


def skip_without(where: Device | str, dtype: str) -> None:
    if isinstance(where, Device) and dtype not in where.dtypes:
        pytest.skip(f"{where.id} has no {dtype}")


# Right, whatever is multiplied.


@pytest.mark.parametrize("cases", batches())
def test_every_case_and_every_edge_of_a_tile_is_right_in_one_batch(
    cases: list[Case], where: Device | str
) -> None:
    skip_without(where, cases[0].dtype)
    given = given_of(cases)
    out = [one.out for one in given]
    with np.errstate(all="ignore"):
        results = grouped_matmul(**arguments(given), out=out, device=where)
    assert results is out
    check_all(results, given)


def test_a_sum_of_twenty_thousand_terms_is_as_exact_as_numpys(device: Device) -> None:
    given = given_of([Case(1, 1, 20_011)] * 40)
    assert_right_together(grouped_matmul(*lists(given), device=device), given)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_many_whole_panels_are_right_with_every_epilogue(
    dtype: str, device: Device
) -> None:
    sizes = [(768, 512, 256), (767, 511, 257)] + [(766, 509, 600)] * (dtype == "float32")
    cases = [Case(*size, dtype=dtype, out="offset") for size in sizes]
    cases[1] = replace(cases[1], a="F", b="F", beta=0.5, alpha=2.0, bias=True, out="strided")
    if dtype == "float64" and not device.has("fp64"):
        pytest.skip(f"{device.name} has no float64")
    plan = plan_grouped(*zip(*sizes, strict=True), dtype=dtype, device=device)
    if device.kind == "cpu":
        assert plan.layout.tiles[plan.layout.tile[0]].m < 768
    cases = [replace(case, activation="relu") for case in cases]
    given = given_of(cases)
    for one in (given, given_of([replace(case, activation=None) for case in cases[:2]])):
        out = [each.out for each in one]
        grouped_matmul(**arguments(one), out=out, device=device)
        check_all(out, one)


@pytest.mark.parametrize("order", ORDERS)
def test_results_come_in_the_callers_order_whatever_the_order_of_launches(
    order: str, where: Device | str
) -> None:
    given = small()
    results = grouped_matmul(*lists(given), order=order, device=where)
    check_all(results, given)
    assert [result.flags.c_contiguous for result in results] == [True] * len(given)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_repeated_call_gives_the_same_bits(dtype: str, where: Device | str) -> None:
    skip_without(where, dtype)
    given = [*small(dtype), operands(Case(385, 257, 300, dtype=dtype))]
    first, second = (grouped_matmul(*lists(given), device=where) for _ in range(2))
    assert [one.tobytes() for one in first] == [one.tobytes() for one in second]
    assert first[0] is not second[0]


def test_one_alpha_beta_transpose_and_bias_serve_all_problems(where: Device | str) -> None:
    cases = [
        Case(m, n, k, transpose_a=True, alpha=-1.5, beta=0.5, bias=m % 2 == 0)
        for m, n, k in ((5, 7, 3), (40, 33, 20), (1, 1, 1), (97, 3, 11))
    ]
    given = given_of(cases)
    options = {"alpha": -1.5, "beta": 0.5, "transpose_a": True, "transpose_b": False}
    out = [one.out for one in given]
    bias = [one.bias for one in given]
    grouped_matmul(*lists(given), out=out, bias=bias, device=where, **options)
    check_all(out, given)


def test_foreign_arrays_give_results_of_their_own_kind(where: Device | str) -> None:
    given = small(count=5)
    a, b = lists(given)
    results = grouped_matmul([tiny_dlpack.Tensor(x) for x in a], b, device=where)
    assert {type(result) for result in results} == {tiny_dlpack.Tensor}
    check_all([np.from_dlpack(result) for result in results], given)


def test_matrices_that_lie_at_odd_bytes_are_right(where: Device | str) -> None:
    given = small(count=6)
    odd = []
    for one in given:
        memory = np.empty(one.a.nbytes + 1, np.uint8)[1:]
        view = np.ndarray(one.a.shape, one.a.dtype, memory)
        view[...] = one.a
        odd.append(view)
    check_all(grouped_matmul(odd, lists(given)[1], device=where), given)


def test_an_empty_batch_is_an_empty_list(where: Device | str, without_svm: Device) -> None:
    for device in (where, without_svm):
        assert grouped_matmul([], [], device=device) == []
        assert grouped_matmul([], [], out=[], device=device) == []


def test_problems_without_elements_write_nothing(where: Device | str) -> None:
    given = given_of([Case(0, 5, 3), Case(4, 0, 3), Case(0, 0, 0), Case(4, 5, 0)])
    results = grouped_matmul(*lists(given), device=where)
    assert [result.shape for result in results] == [(0, 5), (4, 0), (0, 0), (4, 5)]
    assert not results[3].any()


def test_empty_outputs_may_lie_anywhere(where: Device | str) -> None:
    base = np.full((4, 4), 7, np.float32)
    a = [np.ones((4, 2), np.float32), np.ones((0, 2), np.float32)]
    b = [np.ones((2, 4), np.float32)] * 2
    grouped_matmul(a, b, out=[base, base[2:2]], device=where)
    np.testing.assert_array_equal(base, 2)
    grouped_matmul(a[1:], b[1:], out=[b[1][1:1]], device=where)


def test_a_hundred_thousand_tiny_problems_are_right(where: Device | str) -> None:
    count = 100_000
    generator = np.random.default_rng(3)
    m, n, k = generator.integers(1, 6, (3, count)).astype(np.int64)
    a = RaggedBatch.empty(np.stack((m, k), 1))
    b = RaggedBatch.empty(np.stack((k, n), 1))
    for batch in (a, b):
        batch.flat[:] = generator.standard_normal(batch.flat.size)
    if where == "host":
        a, b = list(a), list(b)
    results = grouped_matmul(a, b, device=where)
    assert len(results) == count
    for index in [0, count - 1, *generator.integers(0, count, 500).tolist()]:
        truth = a[index].astype(np.float64) @ b[index]
        np.testing.assert_allclose(results[index], truth, rtol=1e-5, atol=1e-5)


def test_one_problem_a_thousand_times_the_rest_is_right_and_so_is_the_rest(
    where: Device | str,
) -> None:
    cases = [Case(16, 16, 16)] * 200
    cases[77] = Case(160, 160, 160)
    given = given_of(cases)
    check_all(grouped_matmul(*lists(given), device=where), given)


# Plans and bound batches.


def test_a_bound_batch_sees_changed_inputs_and_writes_the_same_results(
    where: Device | str,
) -> None:
    given = small()
    a, b = lists(given)
    plan = plan_grouped(*sizes_of(given), device=where)
    bound = plan.bind(a, b)
    first = bound()
    check_all(first, given)
    before = [result.copy() for result in first]
    for one in a:
        one *= -2
    second = bound()
    assert second is first
    for result, old in zip(second, before, strict=True):
        np.testing.assert_array_equal(result, -2 * old)


def test_a_bound_batch_takes_every_option(where: Device | str) -> None:
    cases = [replace(c, activation="relu", bias=True, beta=0.5) for c in edges()[:9]]
    given = given_of(cases)
    options = arguments(given)
    out = [one.out for one in given]
    bound = plan_grouped(*sizes_of(given), device=where).bind(out=out, **options)
    assert bound() is out
    check_all(out, given)


def test_a_bound_batch_keeps_its_operands_alive(where: Device | str) -> None:
    given = small(count=10)
    plan = plan_grouped(*sizes_of(given), device=where)
    a, b = ([np.array(x) for x in part] for part in lists(given))
    alive = [weakref.ref(x) for x in (*a, *b)]
    bound = plan.bind(a, b)
    a.clear()
    b.clear()
    gc.collect()
    assert all(reference() is not None for reference in alive)
    check_all(bound(), given)


def sizes_of(given: Sequence[Operands]) -> tuple[list[int], list[int], list[int]]:
    cases = [one.case for one in given]
    return [c.m for c in cases], [c.n for c in cases], [c.k for c in cases]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (([4, 4], [3, 3], [5, 5]), ["1 matrices", "the plan is for 2"]),
        (([5], [3], [5]), ["m[0]=4", "5"]),
        (([4], [2], [5]), ["n[0]=3", "2"]),
        (([4], [3], [6]), ["k[0]=5", "6"]),
    ],
)
def test_a_plan_refuses_operands_of_other_sizes(
    sizes: tuple[list[int], ...], words: list[str], where: Device | str
) -> None:
    a, b = np.ones((4, 5), np.float32), np.ones((5, 3), np.float32)
    out = [np.full((4, 3), 7, np.float32)]
    plan = plan_grouped(*sizes, device=where)
    with pytest.raises(ShapeError) as caught:
        plan.bind([a], [b], out)
    assert all(word in str(caught.value) for word in words), caught.value
    assert (out[0] == 7).all()


def test_a_plan_refuses_operands_of_another_dtype(where: Device | str) -> None:
    plan = plan_grouped([4], [3], [5], dtype="float32", device=where)
    with pytest.raises(DtypeError, match=r"a\.dtype='float64'.*'float32'"):
        plan.bind([np.ones((4, 5))], [np.ones((5, 3))])


def test_plans_are_cached_by_sizes_dtype_device_and_order(where: Device | str) -> None:
    sizes = [40, 3], [5, 60], [7, 80]
    plan = plan_grouped(*sizes, device=where)
    assert plan_grouped(*map(np.array, sizes), device=where) is plan
    assert plan_grouped(*sizes, device=where, order="given") is not plan
    assert plan_grouped(*sizes, device=where, dtype="float64") is not plan
    assert plan_grouped(sizes[0][::-1], *sizes[1:], device=where) is not plan


def test_a_plan_does_not_follow_its_callers_columns(where: Device | str) -> None:
    m = np.array([4, 9])
    plan = plan_grouped(m, [3, 3], [5, 5], device=where)
    m[0] = 77
    assert plan.m.tolist() == [4, 9]
    assert plan_grouped([4, 9], [3, 3], [5, 5], device=where) is plan


def test_a_saved_plan_loads_as_the_same_plan(where: Device | str, tmp_path: Path) -> None:
    given = small()
    plan = plan_grouped(*sizes_of(given), device=where)
    plan.save(tmp_path / "plan.json")
    loaded = GroupedPlan.load(tmp_path / "plan.json", device=where)
    assert loaded.order.tolist() == plan.order.tolist()
    assert loaded.dtype == plan.dtype
    assert loaded.buckets == plan.buckets
    check_all(loaded.bind(*lists(given))(), given)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_plan_explains_itself_and_shows_its_balance(intel: Device, dtype: str) -> None:
    plan = plan_grouped([100, 5], [100, 7], [100, 3], dtype=dtype, device=intel)
    text = plan.explain()
    assert "2 products" in text
    assert dtype in text
    assert intel.id in text
    assert sorted(plan.order.tolist()) == [0, 1]
    assert plan.balance().after.sum() > 0


# RaggedBatch in, RaggedBatch out.


def test_ragged_batches_give_a_ragged_batch(where: Device | str) -> None:
    given = small()
    a, b = (RaggedBatch.from_list(part) for part in lists(given))
    result = grouped_matmul(a, b, device=where)
    assert isinstance(result, RaggedBatch)
    check_all(result, given)


def test_lists_and_ragged_batches_mix_on_the_host(where: Device | str) -> None:
    given = small()
    a, b = lists(given)
    check_all(grouped_matmul(a, RaggedBatch.from_list(b), device=where), given)
    check_all(grouped_matmul(RaggedBatch.from_list(a), b, device=where), given)


def test_a_ragged_out_is_written_in_place(where: Device | str) -> None:
    given = small()
    out = RaggedBatch.from_list([np.full_like(one.out, np.nan, order="C") for one in given])
    out.flat[:] = np.nan
    assert grouped_matmul(*lists(given), out=out, device=where) is out
    check_all(out, given)
    written = sum(result.size for result in out)
    assert np.count_nonzero(np.isnan(out.flat)) == out.flat.size - written


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_batches_that_live_on_a_device_are_multiplied_there(device: Device, dtype: str) -> None:
    skip_without(device, dtype)
    given = [*small(dtype), operands(Case(385, 257, 300, dtype=dtype), 99)]
    a, b = (RaggedBatch.from_list(part).to(device) for part in lists(given))
    result = grouped_matmul(a, b)
    assert isinstance(result, RaggedBatch)
    assert "host" not in repr(result)
    check_all(result.to("host"), given)


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_every_option_reaches_batches_on_a_device(device: Device, activation: str | None) -> None:
    cases = [
        Case(
            *(m, n, k),
            transpose_a=m % 2 == 0,
            transpose_b=n % 2 == 0,
            alpha=m / 4,
            beta=n / 8,
            bias=m % 3 == 0 or k == 0,
            activation=activation,
        )
        for m, n, k in ((6, 7, 5), (50, 34, 9), (51, 33, 20), (100, 130, 3), (3, 40, 0))
    ]
    given = given_of(cases)
    options = arguments(given)
    options |= {name: RaggedBatch.from_list(options[name]).to(device) for name in "ab"}
    out = RaggedBatch.from_list([one.out for one in given]).to(device)
    assert grouped_matmul(**options, out=out) is out
    check_all(out.to("host"), given)


def test_a_batch_sent_to_the_host_by_its_device_is_a_host_batch() -> None:
    host = next(device for device in tilewright.devices() if device.backend == "host")
    given = small(count=4)
    a, b = (RaggedBatch.from_list(part).to(host) for part in lists(given))
    assert isinstance(a.flat, np.ndarray)
    check_all(grouped_matmul(a, b, device=host), given)


def test_batches_on_two_devices_are_refused(intel: Device, pocl: Device) -> None:
    a, b = (RaggedBatch.from_list([np.ones((3, 3), np.float32)]) for _ in range(2))
    out = RaggedBatch.from_list([np.ones((3, 3), np.float32)])
    with pytest.raises(OperandError, match="b: lies elsewhere"):
        grouped_matmul(a.to(intel), b.to(pocl))
    with pytest.raises(OperandError, match="b: lies elsewhere"):
        grouped_matmul(a.to(intel), b)
    with pytest.raises(OperandError, match="out: lies elsewhere"):
        grouped_matmul(a.to(intel), b.to(intel), out=out.to(pocl))
    with pytest.raises(OperandError, match="out: lies elsewhere"):
        grouped_matmul(a, b, out=out.to(pocl))


def test_a_plan_refuses_batches_on_another_device(intel: Device, pocl: Device) -> None:
    a = RaggedBatch.from_list([np.ones((3, 3), np.float32)]).to(intel)
    b = RaggedBatch.from_list([np.ones((3, 3), np.float32)]).to(intel)
    for device in ("host", pocl):
        with pytest.raises(OperandError, match="a: lies on"):
            plan_grouped([3], [3], [3], device=device).bind(a, b)


def test_a_batch_on_a_device_without_a_grouped_kernel_is_refused(
    intel: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = RaggedBatch.from_list([np.ones((3, 37), np.float32)]).to(intel)
    b = RaggedBatch.from_list([np.ones((37, 3), np.float32)]).to(intel)
    host = type("Without", (), {"grouped": lambda self, device, dtype: None})()
    monkeypatch.setattr(grouped_run_host, "backend_of", lambda device: host)
    with pytest.raises(OperandError, match=r"no grouped kernel for float32.*to\('host'\)"):
        grouped_matmul(a, b)


# Devices that cannot reach the host's memory.


def test_a_device_without_system_svm_goes_through_copies_and_is_right(
    without_svm: Device,
) -> None:
    sizes = ((5, 7, 3), (0, 3, 2), (40, 33, 20), (385, 257, 30), (4, 5, 0))
    cases = [
        Case(m, n, k, a="F", out="strided", beta=0.5, alpha=2.0, bias=m != 5, activation="relu")
        for m, n, k in sizes
    ]
    given = given_of(cases)
    out = [one.out for one in given]
    grouped_matmul(**arguments(given), out=out, device=without_svm)
    check_all(out, given)


def test_a_bound_batch_on_copies_sees_changed_inputs(without_svm: Device) -> None:
    given = small()
    a, b = lists(given)
    bound = plan_grouped(*sizes_of(given), device=without_svm).bind(a, b)
    check_all(bound(), given)
    before = [result.copy() for result in bound()]
    for one in a:
        one *= 2
    for result, old in zip(bound(), before, strict=True):
        np.testing.assert_array_equal(result, 2 * old)
