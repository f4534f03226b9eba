"""Plain products into `out` are written at once; whatever might overlap or not fit is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.calls import (
    dense_quick_host,
    grouped,
    grouped_quick_ended_host,
    grouped_quick_host,
)
from tilewright.calls.grouped_quick_host import lists_for
from tilewright.errors import OverlapError, TilewrightError

DTYPES = ["float32", "float64", "complex64", "complex128"]


def drawn(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Any:
    made = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(dtype)


def batch(count: int, dtype: str = "float32") -> tuple[list[Any], list[Any], list[Any]]:
    """Operands, some of them views, and results full of NaN."""
    rng = np.random.default_rng(count)
    sizes = rng.integers(0, 40, (count, 3))
    a = [drawn(rng, k, m, dtype=dtype).T for m, _, k in sizes]
    b = [drawn(rng, 2 * k, n, dtype=dtype)[::2] for _, n, k in sizes]
    out = [np.full((m, n), np.nan, dtype) for m, n, _ in sizes]
    return a, b, out


def close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever plans fails."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("this product was checked and planned")

    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    monkeypatch.setattr("tilewright.calls.grouped.grouped_matmul", refuse)
    monkeypatch.setattr(dense_quick_host, "planned", refuse)
    monkeypatch.setattr("tilewright.calls.dense.matmul", refuse)


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3, 60])
def test_plain_lists_are_written_without_a_plan(count: int, dtype: str) -> None:
    a, b, out = batch(count, dtype)
    named: list[dict[str, Any]] = [{}, {"alpha": 1.0, "beta": 0.0, "bias": None, "order": "auto"}]
    for options in named:
        for z in out:
            z[...] = np.nan
        assert tw.grouped_matmul(a, b, out=out, **options) is out
        for x, y, z in zip(a, b, out, strict=True):
            close(z, x @ y)


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(3, 4, 5), (60, 2, 60), (4, 0, 3), (0, 3, 4), (1, 1, 1)])
def test_a_plain_product_is_written_without_a_plan(sizes: tuple[int, ...], dtype: str) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, n, k, dtype=dtype).T
    whole = np.full((m + 2, n), np.nan, dtype)
    out = whole[1:-1]
    assert tw.matmul(a, b, out=out) is out
    close(out, a @ b)
    assert np.isnan(whole[[0, -1]]).all()


class Named(np.ndarray[Any, Any]):
    """A subclass that only has a name."""


def memory_of(x: Any) -> Any:
    """The same memory by another way than a view."""
    return np.frombuffer(memoryview(x), x.dtype).reshape(x.shape)


SQUARE = 6
ODD: dict[str, Callable[[Any, Any], Any]] = {
    "a view of a": lambda a, b: a.view(),
    "a itself": lambda a, b: a,
    "b turned": lambda a, b: b.T,
    "the memory of b": lambda a, b: memory_of(b),
    "read-only": lambda a, b: np.broadcast_to(np.float32(1), a.shape),
    "one row": lambda a, b: np.lib.stride_tricks.as_strided(a.copy(), a.shape, (0, 4)),
    "another dtype": lambda a, b: np.empty(a.shape),
    "another size": lambda a, b: np.empty((SQUARE, SQUARE + 1), np.float32),
    "a vector": lambda a, b: np.empty(SQUARE, np.float32),
    "bytes swapped": lambda a, b: np.empty(a.shape, ">f4"),
    "a list": lambda a, b: [[0.0] * SQUARE] * SQUARE,
}


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_written_is_refused_before_anything_is(name: str, count: int) -> None:
    rng = np.random.default_rng(1)
    a, b = [[drawn(rng, SQUARE, SQUARE) for _ in range(count)] for _ in "ab"]
    before = [x.copy() for x in (*a, *b)]
    out = [np.full((SQUARE, SQUARE), 7, np.float32) for _ in range(count)]
    out[-1] = ODD[name](a[0], b[-1])
    with pytest.raises(TilewrightError, match="out"):
        tw.grouped_matmul(a, b, out=out)
    with pytest.raises(TilewrightError, match="out"):
        tw.matmul(a[0], b[-1], out=out[-1])
    for one, kept in zip((*a, *b), before, strict=True):
        assert np.array_equal(one, kept)
    assert all((z == 7).all() for z in out[:-1])


LAID: dict[str, Callable[[], Any]] = {
    "columns": lambda: np.full((SQUARE, SQUARE), np.nan, np.float32, order="F"),
    "steps": lambda: np.full((2 * SQUARE, 3 * SQUARE), np.nan, np.float32)[::2, ::3],
    "upside down": lambda: np.full((SQUARE, SQUARE), np.nan, np.float32)[::-1],
    "a subclass": lambda: np.full((SQUARE, SQUARE), np.nan, np.float32).view(Named),
}


@pytest.mark.parametrize("name", LAID)
def test_results_that_lie_otherwise_are_written_too(name: str) -> None:
    rng = np.random.default_rng(2)
    a, b = [[drawn(rng, SQUARE, SQUARE) for _ in range(9)] for _ in "ab"]
    out = [LAID[name]() for _ in range(9)]
    tw.grouped_matmul(a, b, out=out)
    one = tw.matmul(a[0], b[0], out=LAID[name]())
    close(np.asarray(one), a[0] @ b[0])
    for x, y, z in zip(a, b, out, strict=True):
        close(np.asarray(z), x @ y)


@pytest.mark.parametrize("count", [2, 9])
def test_columns_of_one_matrix_are_refused_in_true_words(count: int) -> None:
    rng = np.random.default_rng(5)
    a, b = [[drawn(rng, SQUARE, SQUARE) for _ in range(count)] for _ in "ab"]
    whole = np.full((SQUARE, count * SQUARE), 7, np.float32)
    with pytest.raises(OverlapError, match=r"or lies between its rows"):
        tw.grouped_matmul(a, b, out=np.hsplit(whole, count))
    assert (whole == 7).all()
    tw.grouped_matmul(a, b, out=np.vsplit(whole.reshape(-1, SQUARE), count))
    close(whole.reshape(-1, SQUARE), np.concatenate([x @ y for x, y in zip(a, b, strict=True)]))


def test_a_result_that_is_named_twice_is_a_sum() -> None:
    a, b = (list(drawn(np.random.default_rng(at), 9, 6, 6)) for at in (3, 4))
    out = np.full((6, 6), np.nan, np.float32)
    tw.grouped_matmul(a, b, out=[out] * 9)
    close(out, sum(x @ y for x, y in zip(a, b, strict=True)))


@pytest.mark.parametrize("absent", ["nowhere", "cuda:77"])
def test_a_device_that_is_named_and_absent_is_told(
    absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEVICE", absent)
    a, b, out = batch(3)
    with pytest.raises(TilewrightError, match="TILEWRIGHT_DEVICE"):
        tw.grouped_matmul(a, b, out=out)
    with pytest.raises(TilewrightError, match="TILEWRIGHT_DEVICE"):
        tw.matmul(a[0], b[0], out=out[0])
    assert all(np.isnan(z).all() for z in out)


def test_lists_that_another_kernel_multiplies_sooner_are_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    monkeypatch.setattr(grouped_quick_host, "is_worth_planning", lambda *_: True)
    monkeypatch.setattr(grouped_quick_host, "is_ready", lambda *_: True)
    monkeypatch.setattr(grouped_quick_ended_host, "lists_for", lambda _: None)
    a, b, out = batch(9)
    assert grouped_quick_ended_host.ended_at_once(a, b, out, None, None) is None
    assert all(np.isnan(z).all() for z in out)


@pytest.mark.parametrize("has_results", [False, True])
def test_many_calls_before_machine_code_is_there_have_it_compiled(
    has_results: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    asked = []
    for module in (grouped_quick_host, grouped_quick_ended_host):
        monkeypatch.setattr(module, "lists_for", lambda _: None)
    monkeypatch.setattr(grouped_quick_host, "_lost", 0.0)
    monkeypatch.setattr(grouped_quick_host, "is_ready", lambda _, name: asked.append(name))
    a, b, out = batch(60)
    calls = 0
    while not asked and calls < 5000:
        tw.grouped_matmul(a, b, out=out if has_results else None)
        calls += 1
    assert asked == ["float32"]
    assert calls > 1000  # a few calls are not worth it


HOST = next(one for one in tw.devices() if one.backend == "host")


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("named", ["host", HOST])
@pytest.mark.parametrize("sizes", [(3, 4, 5), (300, 200, 100), (4, 0, 3), (0, 3, 4)])
def test_a_plain_product_on_the_host_that_is_named_needs_no_plan(
    sizes: tuple[int, ...], named: Any, dtype: str
) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, n, k, dtype=dtype).T
    close(tw.matmul(a, b, device=named), a @ b)
    out = np.full((m, n), np.nan, dtype)
    assert tw.matmul(a, b, device=named, out=out) is out
    close(out, a @ b)


@pytest.mark.parametrize("named", ["nowhere", "host:1", 7, ["host"], np.array(["host"])])
def test_what_names_no_device_is_refused_each_time(named: Any) -> None:
    a = drawn(np.random.default_rng(0), 6, 6)
    for count in (1, 3, 9):
        with pytest.raises(TilewrightError, match="device"):
            tw.matmul(a, a, device=named)
        with pytest.raises(TilewrightError, match="device"):
            tw.grouped_matmul([a] * count, [a] * count, device=named)


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("named", ["host", HOST, replace(HOST, id="".join(["ho", "st"]))])
@pytest.mark.parametrize("count", [1, 2, 5, 60])
def test_lists_on_the_host_that_is_named_need_no_plan(count: int, named: Any, dtype: str) -> None:
    a, b, out = batch(count, dtype)
    wanted = [x @ y for x, y in zip(a, b, strict=True)]
    for lists in ((a, b), (tuple(a), tuple(b))):
        for found, one in zip(tw.grouped_matmul(*lists, device=named), wanted, strict=True):
            close(found, one)
    assert tw.grouped_matmul(a, b, out=out, device=named, order="auto") is out
    for found, one in zip(out, wanted, strict=True):
        close(found, one)
    if dtype in ("float32", "float64") and (count < 7 or lists_for(np.dtype(dtype)) is not None):
        ended = tw.grouped_matmul(a, b, activation="relu", device=named)
        for found, one in zip(ended, wanted, strict=True):
            close(found, np.maximum(one, 0))


@pytest.mark.parametrize("more", [{"order": "given"}, {"kernel": "native"}, {"alpha": 2.0}])
def test_whoever_asks_for_more_than_the_host_gets_a_plan(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    seen = []

    def planned(*given: Any, **options: Any) -> Any:
        seen.append(options)
        return checked(*given, **options)

    checked = grouped.grouped_matmul
    monkeypatch.setattr(grouped, "grouped_matmul", planned)
    a, b, _ = batch(9)
    for found, x, y in zip(tw.grouped_matmul(a, b, device="host", **more), a, b, strict=True):
        close(found, more.get("alpha", 1.0) * (x @ y))
    assert [one["device"] for one in seen] == ["host"]


def test_a_name_stands_for_the_host_only_where_nothing_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, _, _ = batch(9)
    fewer = replace(HOST, compute_units=HOST.compute_units + 1)
    is_host = grouped_quick_host.is_host_anyway
    for value in (None, "", "host", "nowhere"):
        if value is None:
            monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
        else:
            monkeypatch.setenv("TILEWRIGHT_DEVICE", value)
        for named in ("host", HOST):
            assert is_host(named, a) is (value != "nowhere")
        for other in ("opencl", "hos", fewer, 7, None, np.array(["host"])):
            assert not is_host(other, a)
        for others in ([], (), None, "a", iter(a), [None], [7], [a[0].view(Named)]):
            assert not is_host("host", others)


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("count", [1, 3, 60])
def test_tensors_on_the_host_that_is_named_are_torchs_own_products(count: int) -> None:
    torch = pytest.importorskip("torch")
    a, b, _ = batch(count)
    lefts, rights = ([torch.from_numpy(x.copy()) for x in some] for some in (a, b))
    made = tw.grouped_matmul(lefts, rights, device="host")
    for found, x, y in zip(made, lefts, rights, strict=True):
        assert torch.equal(found, x @ y)
    away = [x.to("meta") for x in lefts]
    assert not grouped_quick_host.is_host_anyway("host", away)


@pytest.mark.parametrize("named", ["host", HOST])
def test_on_the_host_that_is_named_the_same_is_refused(named: Any) -> None:
    a, b = drawn(np.random.default_rng(0), 6, 5), drawn(np.random.default_rng(1), 6, 5)
    for _ in range(2):
        with pytest.raises(TilewrightError, match="b"):
            tw.matmul(a, b, device=named)
        with pytest.raises(TilewrightError, match="dtype"):
            tw.matmul(a, b.T.astype(np.float64), device=named)
        with pytest.raises(TilewrightError, match="dtype"):
            tw.matmul(a.astype(int), b.T.astype(int), device=named)
        for count in (1, 9):
            with pytest.raises(TilewrightError, match="b\\["):
                tw.grouped_matmul([a] * count, [b] * count, device=named)
            with pytest.raises(TilewrightError, match="out"):
                tw.grouped_matmul([a] * count, [b.T] * count, out=[a] * count, device=named)
    halves = a.astype(np.float16), b.T.astype(np.float16)
    assert tw.matmul(*halves, device=named).dtype == np.float16


def test_what_a_named_device_leaves_to_the_host_is_remembered_by_that_name() -> None:
    rng = np.random.default_rng(0)
    a, b = drawn(rng, 6, 5), drawn(rng, 5, 7)
    dense_quick_host._plain.clear()
    dense_quick_host._plain.keep(dense_quick_host._signature(a, b, "opencl:0"), True)
    assert dense_quick_host.is_host_product(a, b, "opencl:0")
    assert not dense_quick_host.is_host_product(a, b, "opencl:1")
    assert not dense_quick_host.is_host_product(a, b.astype(np.float64), "opencl:0")
    dense_quick_host._plain.clear()
    assert not dense_quick_host.is_host_product(a, b, "opencl:0")


class Place(StrEnum):
    """A text that is more than one."""

    HERE = "host"


@pytest.mark.parametrize("named", [np.str_("host"), Place.HERE])
def test_a_text_of_another_kind_names_a_device_and_nothing_else_does_from_then_on(
    named: Any,
) -> None:
    rng = np.random.default_rng(0)
    for shape in ((6, 6), (200, 200), (2, 6, 6)):
        a = drawn(rng, *shape)
        close(tw.matmul(a, a, device=named), a @ a)
        for nobody in (7, object(), ""):
            assert not dense_quick_host.is_host_product(a, a, nobody)
        with pytest.raises(TilewrightError, match="device"):
            tw.matmul(a, a, device=7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("named", [None, "host", "opencl:0"])
def test_swapped_bytes_are_refused_after_a_product_of_others_that_lie_alike(
    named: str | None, dtype: str
) -> None:
    a = drawn(np.random.default_rng(0), 2, 6, 6, dtype=dtype)
    swapped = a.astype(a.dtype.newbyteorder())
    dense_quick_host._plain.keep(dense_quick_host._signature(a, a, named), True)
    try:
        for one in (swapped, swapped[0]):
            with pytest.raises(TilewrightError):
                tw.matmul(one, one, device=named)
    finally:
        dense_quick_host._plain.clear()
