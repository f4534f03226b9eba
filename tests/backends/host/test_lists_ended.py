"""Lists into results that are there, and with bias and relu, read in machine code: right however
all of it lies; what is not certainly apart is left to the checks, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.backends.host.test_lists import Odd, drawn, odd_ones, of
from tilewright import grouped_matmul
from tilewright.backends.host import compiled
from tilewright.backends.host.lists import DTYPES
from tilewright.calls import dense_quick_host
from tilewright.errors import OverlapError, TilewrightError
from tilewright.inputs.sums import same_places

pytestmark = pytest.mark.skipif(not compiled.available(), reason="needs Numba")
COUNTS = (1, 2, 6, 7, 30, 300)
SIDE = 6


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever plans fails."""

    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("this batch was checked and planned")

    for dtype in DTYPES:
        of(dtype)
    monkeypatch.delenv("TILEWRIGHT_DEVICE", raising=False)
    monkeypatch.setattr("tilewright.calls.grouped.grouped_matmul", refuse)
    monkeypatch.setattr(dense_quick_host, "planned", refuse)


def poisoned(a: list[Any], b: list[Any], how: str) -> tuple[list[Any], list[Any]]:
    """Results full of NaN that lie so, and the arrays that hold them, none of which may be written
    elsewhere."""
    dtype = a[0].dtype
    shapes = [(len(x), y.shape[1]) for x, y in zip(a, b, strict=True)]
    if how == "views of one array":
        flat = np.full(sum(m * n for m, n in shapes) + len(shapes) + 1, np.nan, dtype)
        ends = np.cumsum([m * n + 1 for m, n in shapes])
        out = [
            flat[end - m * n : end].reshape(m, n) for end, (m, n) in zip(ends, shapes, strict=True)
        ]
        return out, [flat]
    wholes = [np.full((2 * m + 2, 3 * n + 3), np.nan, dtype) for m, n in shapes]
    ways: dict[str, Callable[[Any, int, int], Any]] = {
        "rows": lambda whole, m, n: np.full((m, n), np.nan, dtype),
        "columns": lambda whole, m, n: np.full((m, n), np.nan, dtype, order="F"),
        "a part of rows": lambda whole, m, n: whole[1 : m + 1, 2 : n + 2],
        "steps": lambda whole, m, n: whole[1 : 2 * m + 1 : 2, 1 : 3 * n + 1 : 3],
        "turned steps": lambda whole, m, n: np.full((3 * n, 2 * m), np.nan, dtype)[::3, ::2].T,
        "from its end": lambda whole, m, n: np.full((m, n), np.nan, dtype)[::-1, ::-1],
    }
    return [ways[how](w, m, n) for w, (m, n) in zip(wholes, shapes, strict=True)], wholes


LAID = (
    *("rows", "columns", "views of one array", "a part of rows", "steps", "turned steps"),
    "from its end",
)


def check(found: Any, a: Any, b: Any, bias: Any = None, relu: bool = False) -> None:
    """Twice what NumPy is apart from float64, and a millionth."""
    for i, (x, y, z) in enumerate(zip(a, b, found, strict=True)):
        truth, usual = x.astype(float) @ y.astype(float), x @ y
        allowed = 2 * np.abs(usual - truth).max(initial=0.0) + 1e-6 * (1 + x.shape[1] ** 0.5)
        if bias is not None and bias[i] is not None:
            truth = truth + bias[i]
        if relu:
            truth = np.maximum(truth, 0)
        assert np.abs(z - truth).max(initial=0.0) <= allowed, i


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", LAID)
@pytest.mark.parametrize("count", COUNTS)
def test_results_are_written_however_they_lie_and_nothing_else_is(
    count: int, how: str, dtype: str
) -> None:
    a, b = drawn(count, 40, dtype, seed=count)
    out, wholes = poisoned(a, b, how)
    assert grouped_matmul(a, b, out=out) is out
    check(out, a, b)
    for z in out:
        z[:] = np.nan
    assert all(np.isnan(whole).all() for whole in wholes)


@pytest.mark.usefixtures("unplanned")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", [None, *LAID])
@pytest.mark.parametrize("count", COUNTS)
def test_bias_and_relu_follow_every_product(count: int, how: str | None, dtype: str) -> None:
    a, b = drawn(count, 40, dtype, seed=count)
    rng = np.random.default_rng(count)
    bias = [rng.standard_normal(y.shape[1]).astype(dtype) for y in b]
    for given in (bias, [None if i % 3 == 1 else v for i, v in enumerate(bias)], None):
        for activation in ("relu", None, "none"):
            out, wholes = (None, []) if how is None else poisoned(a, b, how)
            options: dict[str, Any] = {"bias": given, "activation": activation, "out": out}
            found = grouped_matmul(a, b, **options)
            assert out is None or found is out
            check(found, a, b, given, activation == "relu")
            for z in found:
                z[:] = np.nan
            assert all(np.isnan(whole).all() for whole in wholes)


LONG = {
    "cut along k": (17, 37, 30_001),
    "a giant": (300, 700, 600),
    "a BLAS's": (1000, 900, 920),
    "no steps": (9, 11, 0),
    "no rows": (0, 11, 4),
    "no columns": (7, 0, 4),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", [None, "rows", "steps", "turned steps"])
@pytest.mark.parametrize("name", LONG)
def test_one_unlike_the_others_is_ended_too(name: str, how: str | None, dtype: str) -> None:
    a, b = drawn(300, 20, dtype, seed=5)
    rng = np.random.default_rng(6)
    m, n, k = LONG[name]
    a[7], b[7] = (
        rng.standard_normal((m, k)).astype(dtype),
        rng.standard_normal((k, n)).astype(dtype),
    )
    bias = [rng.standard_normal(y.shape[1]).astype(dtype) for y in b]
    out, wholes = (None, []) if how is None else poisoned(a, b, how)
    held = (tuple(a), tuple(b), out and tuple(out), tuple(bias))
    read = of(dtype).read(held, "relu")
    assert read is not None
    options: dict[str, Any] = {"out": out, "bias": bias, "activation": "relu"}
    for multiply in (read.multiply, partial(grouped_matmul, a, b, **options)):
        found = multiply()
        assert found is not None
        check(found, a, b, bias, relu=True)
        for z in found:
            z[:] = np.nan
        assert all(np.isnan(whole).all() for whole in wholes)


@pytest.mark.parametrize("count", [1, 7, 300])
def test_nan_is_not_clipped(count: int) -> None:
    a, b = drawn(count, 20)
    of("float32")
    a[-1][:] = np.nan
    found = grouped_matmul(a, b, activation="relu")
    assert np.isnan(found[-1]).all()
    assert not any(np.isnan(one).any() for one in found[:-1])


def squares(count: int) -> list[list[Any]]:
    rng = np.random.default_rng(count)
    return [
        [rng.standard_normal((SIDE, SIDE)).astype(np.float32) for _ in range(count)] for _ in "ab"
    ]


def memory_of(x: Any) -> Any:
    """The same memory by another way than a view."""
    return np.frombuffer(memoryview(x), x.dtype).reshape(x.shape)


def warned(x: Any) -> Any:
    """A result of broadcasting, which NumPy lets nobody write without a word."""
    return np.broadcast_arrays(np.ones((1, SIDE), np.float32), x.copy())[0]


def within(x: Any) -> Any:
    """Memory that ends inside of `x`."""
    flat = x.reshape(-1)
    return np.lib.stride_tricks.as_strided(flat[4:], (SIDE, SIDE), (8, 4))


MET: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a itself": lambda a, b, out: a[-1],
    "a of another product": lambda a, b, out: a[0],
    "b of another product": lambda a, b, out: b[0],
    "the memory of b": lambda a, b, out: memory_of(b[-1]),
    "b turned": lambda a, b, out: b[0].T,
    "b from its end": lambda a, b, out: b[0][::-1],
    "a part of a": lambda a, b, out: within(a[0]),
    "one row": lambda a, b, out: np.lib.stride_tricks.as_strided(a[0].copy(), a[0].shape, (0, 4)),
    "steps that meet": lambda a, b, out: within(np.zeros(99, np.float32)),
    "read-only": lambda a, b, out: np.frombuffer(bytes(144), np.float32).reshape(SIDE, SIDE),
    "broadcast": lambda a, b, out: np.broadcast_to(np.float32(1), (SIDE, SIDE)),
    "another dtype": lambda a, b, out: np.empty((SIDE, SIDE)),
    "swapped bytes": lambda a, b, out: np.empty((SIDE, SIDE), ">f4"),
    "another size": lambda a, b, out: np.empty((SIDE, SIDE + 1), np.float32),
    "a vector": lambda a, b, out: np.empty(SIDE * SIDE, np.float32),
    "no array": lambda a, b, out: [[0.0] * SIDE] * SIDE,
    "none": lambda a, b, out: None,
}


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7, 60, 300])
@pytest.mark.parametrize("name", MET)
def test_what_cannot_be_written_is_refused_before_anything_is(
    name: str, count: int, with_bias: bool
) -> None:
    of("float32")
    a, b = squares(count)
    out = [np.full((SIDE, SIDE), 7, np.float32) for _ in range(count)]
    out[-1] = MET[name](a, b, out)
    before = [x.copy() for x in (*a, *b)]
    bias = [np.ones(SIDE, np.float32)] * count if with_bias else None
    held = (tuple(a), tuple(b), tuple(out), bias and tuple(bias))
    assert of("float32").read(held) is None
    with pytest.raises(TilewrightError, match="out"):
        grouped_matmul(a, b, out=out, bias=bias)
    for one, kept in zip((*a, *b), before, strict=True):
        assert np.array_equal(one, kept)
    assert all((z == 7).all() for z in out[:-1])


@pytest.mark.parametrize("count", [2, 60, 300])
@pytest.mark.parametrize("seed", range(5))
def test_of_results_drawn_from_one_array_those_that_meet_are_refused(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = squares(count)
    flat = np.full((3 * count, SIDE, SIDE), 7, np.float32)
    order = rng.permutation(3 * count)
    out = [flat[i] for i in order[:count]]
    grouped_matmul(a, b, out=out)
    check(out, a, b)
    flat[:] = 7
    one, other = rng.choice(count, 2, replace=False)
    shifted = (
        flat.reshape(-1)[SIDE * SIDE * order[one] + 5 :] if order[one] else flat.reshape(-1)[5:]
    )
    if len(shifted) < SIDE * SIDE:
        return
    out[other] = shifted[: SIDE * SIDE].reshape(SIDE, SIDE)
    with pytest.raises(OverlapError, match="out"):
        grouped_matmul(a, b, out=out)
    assert (flat == 7).all()


@pytest.mark.parametrize("count", [2, 60])
def test_results_between_operands_of_one_array_are_apart(count: int) -> None:
    of("float32")
    flat = np.random.default_rng(0).standard_normal((3 * count, SIDE, SIDE)).astype(np.float32)
    a, b, out = list(flat[::3]), list(flat[1::3]), list(flat[2::3])
    truth = [x @ y for x, y in zip(a, b, strict=True)]
    read = of("float32").read((tuple(a), tuple(b), tuple(out), None))
    assert read is not None
    grouped_matmul(a, b, out=out)
    for z, wanted in zip(out, truth, strict=True):
        np.testing.assert_allclose(z, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [2, 7, 60])
@pytest.mark.parametrize("options", [{}, {"activation": "relu"}])
def test_a_result_that_is_named_twice_is_a_sum(count: int, options: dict[str, Any]) -> None:
    a, b = squares(count)
    out = [np.full((SIDE, SIDE), np.nan, np.float32) for _ in range(count)]
    out[-1] = out[0]
    assert of("float32").read((tuple(a), tuple(b), tuple(out), None)) is None
    grouped_matmul(a, b, out=out, **options)
    whole = a[0] @ b[0] + a[-1] @ b[-1]
    np.testing.assert_allclose(
        out[0], np.maximum(whole, 0) if options else whole, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("kind", ["a subclass", "a masked array"])
def test_subclasses_go_to_the_checks(count: int, kind: str) -> None:
    a, b = squares(count)
    out = [np.full((SIDE, SIDE), np.nan, np.float32) for _ in range(count)]
    plain = out[-1]
    out[-1] = plain.view(Odd) if kind == "a subclass" else np.ma.array(plain, copy=False)
    assert of("float32").read((tuple(a), tuple(b), tuple(out), None)) is None
    try:
        grouped_matmul(a, b, out=out)
    except TilewrightError:
        assert kind == "a masked array"
        assert np.isnan(plain).all()
    else:
        check([np.asarray(z) for z in out], a, b)


BIASES: dict[str, Callable[[], Any]] = {
    "too long": lambda: np.ones(SIDE + 1, np.float32),
    "of one": lambda: np.ones(1, np.float32),
    "a matrix": lambda: np.ones((1, SIDE), np.float32),
    "another dtype": lambda: np.ones(SIDE),
    "a number": lambda: 1.0,
}


@pytest.mark.parametrize("count", [1, 3, 60])
@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("has_out", [False, True])
def test_a_bias_that_does_not_fit_is_refused(name: str, count: int, has_out: bool) -> None:
    of("float32")
    a, b = squares(count)
    out = [np.full((SIDE, SIDE), 7, np.float32) for _ in range(count)] if has_out else None
    bias = [np.ones(SIDE, np.float32) for _ in range(count)]
    bias[-1] = BIASES[name]()
    with pytest.raises(TilewrightError, match="bias"):
        grouped_matmul(a, b, bias=bias, out=out)
    with pytest.raises(TilewrightError, match="bias"):
        grouped_matmul(a, b, bias=bias[:-1], out=out)
    assert out is None or all((z == 7).all() for z in out)


@pytest.mark.parametrize("count", [1, 3, 60])
def test_a_bias_with_steps_is_added(count: int) -> None:
    of("float32")
    a, b = squares(count)
    whole = np.random.default_rng(0).standard_normal((count, 2 * SIDE)).astype(np.float32)
    bias = [row[::-2] for row in whole]
    check(grouped_matmul(a, b, bias=bias, activation="relu"), a, b, bias, relu=True)


@pytest.mark.parametrize("count", [1, 3, 60])
def test_a_bias_in_a_result_is_refused(count: int) -> None:
    of("float32")
    a, b = squares(count)
    out = [np.full((SIDE, SIDE), 7, np.float32) for _ in range(count)]
    bias = [np.ones(SIDE, np.float32) for _ in range(count)]
    bias[0] = out[-1][2]
    with pytest.raises(OverlapError, match="bias"):
        grouped_matmul(a, b, bias=bias, out=out)
    assert all((z == 7).all() for z in out)


@pytest.mark.parametrize("activation", ["softmax", "RELU", 1, "", ["relu"], np.array(["relu"])])
def test_an_activation_that_is_none_is_refused(activation: Any) -> None:
    of("float32")
    for count in (1, 60):
        a, b = squares(count)
        with pytest.raises(TilewrightError, match="activation"):
            grouped_matmul(a, b, activation=activation)


@pytest.mark.parametrize("name", sorted({*odd_ones()} - {"odd steps"}))  # NumPy's loop takes them
@pytest.mark.parametrize("options", [{"activation": "relu"}, {"out": True}])
@pytest.mark.parametrize("count", [1, 9, 300])
def test_odd_operands_end_as_by_the_checks(name: str, options: Any, count: int) -> None:
    def found(**more: Any) -> Any:
        sides = [[np.ones((4, 4), np.float32) for _ in range(count)] for _ in "ab"]
        sides[1][-1] = odd_ones()[name]
        out = [np.full((4, 4), 7, np.float32) for _ in range(count)]
        given = {**options, "out": out} if "out" in options else options
        try:
            return [np.asarray(z).tolist() for z in grouped_matmul(*sides, **given, **more)]
        except TilewrightError as error:
            assert all((z == 7).all() for z in out)
            return f"{type(error).__name__}: {error}"

    of("float32")
    assert found() == found(device="host")


def test_lists_that_another_thread_changes_meanwhile_are_whole_or_refused() -> None:
    a, b = drawn(300, 12)
    of("float32")
    expected = [x @ y for x, y in zip(a, b, strict=True)]
    out = [np.empty_like(one) for one in expected]
    shared, stop = [list(a), list(b), list(out)], []

    def disturb() -> None:
        while not stop:
            for one, whole in zip(shared, (a, b, out), strict=True):
                one.clear()
                one.extend(whole)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(disturb)
        try:
            for _ in range(200):
                try:
                    grouped_matmul(*shared[:2], out=shared[2])
                except TilewrightError:
                    continue
        finally:
            stop.append(True)
    grouped_matmul(a, b, out=out)
    for x, y in zip(out, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_sums_and_reading_agree_on_what_is_the_very_same() -> None:
    from tilewright.inputs.matrices import matrices

    one = np.zeros((SIDE, SIDE), np.float32)
    for out in ([one, one], [one, one[:]], [one, one.view()]):
        assert same_places(matrices(out, "out").at) is not None
        a, b = squares(2)
        assert of("float32").read((tuple(a), tuple(b), tuple(out), None)) is None
