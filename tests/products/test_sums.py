"""Sums of blocks: several products of a batch are added into one result, in the caller's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import Device, RaggedBatch, grouped_matmul, plan_grouped
from tilewright.errors import ArgumentError, OverlapError, ShapeError
from tilewright.products.reference import matmul as exactly

INTO = [0, 2, 0, 1, 2, 0, 3]
SHAPES = [(33, 17), (5, 64), (1, 1), (70, 96)]


def drawn(dtype: str = "float32") -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Products of INTO, results that hold numbers, and a bias a result (one of them None)."""
    generator = np.random.default_rng(5)
    depths = [40, 3, 1, 300, 0, 7, 129]
    shapes = [(*SHAPES[r], k) for r, k in zip(INTO, depths, strict=True)]
    a = [generator.standard_normal((m, k)).astype(dtype) for m, _, k in shapes]
    b = [generator.standard_normal((k, n)).astype(dtype) for _, n, k in shapes]
    out = [generator.standard_normal(shape).astype(dtype) for shape in SHAPES]
    bias = [generator.standard_normal(n).astype(dtype) for _, n in SHAPES]
    return a, b, out, [*bias[:3], None]


def exact(
    a: list[Any], b: list[Any], alpha: Any, beta: Any, out: Any, bias: Any, activation: str
) -> list[Any]:
    """The sums in float64."""
    results = [np.float64(beta[r]) * (np.float64(out[r]) if beta[r] else 0) for r in range(4)]
    results = [np.broadcast_to(x, s) + np.zeros(s) for x, s in zip(results, SHAPES, strict=True)]
    for i, r in enumerate(INTO):
        results[r] = results[r] + alpha[i] * (np.float64(a[i]) @ np.float64(b[i]))
    shifted = [x if v is None else x + np.float64(v) for x, v in zip(results, bias, strict=True)]
    return [exactly(x, np.eye(x.shape[1]), activation=activation) for x in shifted]


def close(got: Any, wanted: list[Any], dtype: str) -> None:
    slack = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-11}[dtype]
    for x, y in zip(got, wanted, strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(np.float64(x), y, atol=slack * 8, rtol=slack)


@pytest.fixture(params=["host", "opencl"])
def where(request: pytest.FixtureRequest, opencl_device: Device) -> Any:
    return "host" if request.param == "host" else opencl_device


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
def test_into_adds_products_and_applies_beta_bias_and_activation_once(
    dtype: str, activation: str, where: Any
) -> None:
    a, b, out, bias = drawn(dtype)
    alpha, beta = np.linspace(0.5, 2, 7), [0.0, 0.5, 1.0, -2.0]
    wanted = exact(a, b, alpha, beta, out, bias, activation)
    out[0][...] = np.nan  # beta is 0 there
    got = grouped_matmul(
        a,
        b,
        out=out,
        into=INTO,
        alpha=alpha,
        beta=beta,
        bias=bias,
        activation=activation,
        device=where,
    )
    assert got is out
    close(got, wanted, dtype)


def test_an_out_named_more_than_once_is_the_same_sum(where: Any) -> None:
    a, b, out, bias = drawn()
    wanted = exact(a, b, [1.0] * 7, [0.5] * 4, out, bias, "relu")
    named = [out[r][:] if i % 2 else out[r] for i, r in enumerate(INTO)]  # another view, same place
    grouped_matmul(
        a,
        b,
        out=named,
        beta=0.5,
        bias=[bias[r] for r in INTO],
        activation="relu",
        device=where,
    )
    close(out, wanted, "float32")


def test_results_are_made_one_a_sum_and_bound_plans_add_again_at_every_call(where: Any) -> None:
    a, b, out, _ = drawn()
    wanted = exact(a, b, [1.0] * 7, [0.0] * 4, out, [None] * 4, "none")
    made = grouped_matmul(a, b, into=INTO, device=where)
    assert [x.shape for x in made] == SHAPES
    close(made, wanted, "float32")
    sizes = ([x.shape[0] for x in a], [x.shape[1] for x in b], [x.shape[1] for x in a])
    run = plan_grouped(*sizes, device=where).bind(a, b, into=INTO)
    for _ in range(2):
        close(run(), wanted, "float32")
    first = [x.tobytes() for x in run()]
    assert [x.tobytes() for x in run()] == first


def test_the_order_is_the_callers_and_neighbours_change_no_bit(where: Any) -> None:
    generator = np.random.default_rng(2)
    a = [generator.standard_normal((40, 30)).astype("f") * 10.0 ** (i % 5) for i in range(12)]
    b = [generator.standard_normal((30, 50)).astype("f") for _ in range(12)]
    alone = grouped_matmul(a, b, into=[0] * 12, device=where)[0]
    step = np.zeros((40, 50), "f")
    for x, y in zip(a, b, strict=True):
        grouped_matmul([x], [y], out=[step], beta=1.0, device=where)
    among = grouped_matmul(
        [z for x in a for z in (x, x)],
        [z for y in b for z in (y, y)],
        into=[0, 1] * 12,
        device=where,
    )
    np.testing.assert_array_equal(alone, step)
    np.testing.assert_array_equal(among[0], among[1])
    if str(where) == "host":  # twice as many products have another engine there
        np.testing.assert_allclose(alone, among[0], rtol=0, atol=2e-6 * float(np.abs(alone).max()))
    else:
        np.testing.assert_array_equal(alone, among[0])


def test_batches_on_a_device_are_added_where_they_lie(opencl_device: Device) -> None:
    a, b, out, bias = drawn()
    wanted = exact(a, b, [1.0] * 7, [0.0] * 4, out, bias, "relu")
    there = [RaggedBatch.from_list(part).to(opencl_device) for part in (a, b)]
    got = grouped_matmul(*there, into=INTO, bias=bias, activation="relu")
    assert isinstance(got, RaggedBatch)
    close(list(got.to("host")), wanted, "float32")


def ones(*shape: int) -> Any:
    return np.ones(shape, "f")


@pytest.mark.parametrize(
    ("into", "message"),
    [
        ([0], "accepted are 2 whole numbers"),
        ([0.0, 1.0], "accepted are 2 whole numbers"),
        ("ab", "accepted are 2 whole numbers"),
        ([[0, 1]], "accepted are 2 whole numbers"),
        ([0, -1], r"into\[1\]=-1"),
        ([0, 2], "no product names result 1"),
        ([0, 2**40], "largest is 1099511627776"),
    ],
)
def test_an_into_that_names_no_result_is_refused(into: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        grouped_matmul([ones(2, 3)] * 2, [ones(3, 4)] * 2, into=into)


def test_what_cannot_be_added_is_refused_before_anything_is_written() -> None:
    a, b, out = [ones(2, 3), ones(5, 3)], [ones(3, 4), ones(3, 4)], np.full((2, 4), 7, "f")
    with pytest.raises(ShapeError, match=r"into\[1\]=0: product 1 is 5 x 4; must be 2 x 4"):
        grouped_matmul(a, b, into=[0, 0])
    with pytest.raises(ShapeError, match=r"out\[1\].shape"):
        grouped_matmul(a, b, out=[out, out])
    with pytest.raises(ArgumentError, match=r"into\[1\]=1: accepted are 0 to 0"):
        grouped_matmul([a[0]] * 2, b, out=[out], into=[0, 1])
    with pytest.raises(ArgumentError, match=r"beta\[1\]=2.0: out\[1\] is out\[0\]"):
        grouped_matmul([a[0]] * 2, b, out=[out, out], beta=[1.0, 2.0])
    with pytest.raises(ArgumentError, match=r"bias\[1\]: out\[1\] is out\[0\]"):
        grouped_matmul([a[0]] * 2, b, out=[out, out], bias=[ones(4), ones(4)])
    with pytest.raises(ArgumentError, match="accepted are a real number"):
        grouped_matmul([a[0]] * 2, b, out=[out, out], beta="x")
    assert (out == 7).all()


@pytest.mark.parametrize("shift", [(1, 0), (0, 1), (1, 1)])
def test_matrices_that_overlap_in_part_are_still_refused(shift: tuple[int, int]) -> None:
    whole = np.full((4, 8), 7, "f")
    parts = [whole[:2, :4], whole[shift[0] : 2 + shift[0], shift[1] : 4 + shift[1]]]
    with pytest.raises(OverlapError, match="or be the very same"):
        grouped_matmul([ones(2, 3)] * 2, [ones(3, 4)] * 2, out=parts)
    with pytest.raises(OverlapError, match="or be the very same"):
        grouped_matmul([ones(2, 3)] * 2, [ones(3, 4)] * 2, out=parts, into=[0, 1])
    assert (whole == 7).all()
