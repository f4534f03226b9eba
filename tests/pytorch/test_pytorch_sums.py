"""Sums of blocks of tensors: like NumPy's, and seen by all that looks at torch's products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright as tw  # noqa: E402
from tests.support.torch_places import DEVICES  # noqa: E402
from tilewright.errors import ArgumentError, OperandError, OverlapError, ShapeError  # noqa: E402

INTO = [0, 1, 0, 0, 1]
SIZES = [(3, 4), (5, 2)]  # of the results
DEPTHS = [3, 1, 0, 7, 5]


def drawn(where: str, dtype: Any = torch.float32) -> tuple[list[Any], list[Any]]:
    torch.manual_seed(0)
    a = [torch.randn(SIZES[r][0], k, dtype=dtype) for r, k in zip(INTO, DEPTHS, strict=True)]
    b = [torch.randn(k, SIZES[r][1], dtype=dtype) for r, k in zip(INTO, DEPTHS, strict=True)]
    return [x.to(where) for x in a], [x.to(where) for x in b]


def summed(a: list[Any], b: list[Any], alpha: list[float] | None = None) -> list[Any]:
    """What torch makes of the same sums."""
    scales = alpha or [1.0] * len(a)
    found: list[Any] = [0, 0]
    for x, y, scale, result in zip(a, b, scales, INTO, strict=True):
        found[result] = found[result] + scale * (x @ y)
    return found


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tensors_are_added_into_one_result(where: str, dtype: Any) -> None:
    a, b = drawn(where, dtype)
    wanted = summed([x.double() for x in a], [x.double() for x in b])
    close = {"atol": 0.2, "rtol": 0.05} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}
    for into in (INTO, np.array(INTO), torch.tensor(INTO), tuple(INTO)):
        for found, one in zip(tw.grouped_matmul(a, b, into=into), wanted, strict=True):
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), one, **close)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("named", [True, False])
def test_beta_bias_and_activation_count_once_a_result(where: str, named: bool) -> None:
    a, b = drawn(where)
    alpha = [0.5, 1.0, 2.0, -1.0, 0.0]
    out = [torch.ones(size, device=where) for size in SIZES]
    bias = [None, torch.randn(2, device=where)]
    sums = summed(a, b, alpha)
    wanted = [torch.relu(sums[0] + 2), torch.relu(sums[1] - 1 + bias[1])]
    options: dict[str, Any] = {"beta": [2.0, -1.0], "bias": bias, "out": out, "into": INTO}
    if not named:
        options = {name: [options[name][r] for r in INTO] for name in ("beta", "bias", "out")}
    got = tw.grouped_matmul(a, b, alpha=alpha, activation="relu", **options)
    assert got is options["out"]
    torch.testing.assert_close(out, wanted)


@pytest.mark.parametrize("where", DEVICES)
def test_a_bound_plan_of_tensors_adds_into_one_result(where: str) -> None:
    a, b = drawn(where)
    rows, cols = zip(*(SIZES[r] for r in INTO), strict=True)
    device = "cuda" if where == "cuda" else None
    run = tw.plan_grouped(rows, cols, DEPTHS, device=device).bind(a, b, into=INTO)
    torch.testing.assert_close(list(run()), summed(a, b))
    a[0].mul_(2)
    torch.testing.assert_close(list(run()), summed(a, b))


@pytest.mark.parametrize("where", DEVICES)
def test_gradients_tangents_and_maps_go_through_sums(where: str) -> None:
    a, b = drawn(where, torch.float64)
    for values in (a, b):
        for one in values:
            one.requires_grad_()

    def total(multiply: Any) -> Any:
        return sum((one**2).sum() for one in multiply(a, b))

    by_hand = torch.autograd.grad(total(summed), [*a, *b])
    ours = torch.autograd.grad(
        total(lambda a, b: tw.grouped_matmul(a, b, into=INTO)), [*a, *b], create_graph=True
    )
    torch.testing.assert_close(ours, by_hand)
    assert all(one.requires_grad for one in ours)

    def first(x: Any, multiply: Any) -> Any:
        return multiply([x, *a[1:]], b)[0]

    def mine(a: Any, b: Any) -> Any:
        return tw.grouped_matmul(a, b, into=INTO)

    point = a[0].detach()
    with torch.no_grad():
        for way in (
            lambda f: torch.func.jvp(lambda x: first(x, f), (point,), (point,))[1],
            lambda f: torch.func.vmap(lambda x: first(x, f))(torch.stack([point, 2 * point])),
        ):
            torch.testing.assert_close(way(mine), way(summed))


@pytest.mark.parametrize("view", [False, True])
def test_what_torch_looks_at_is_not_written_twice_over_itself(view: bool) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        a, b = drawn("cpu")
        out = [torch.full(size, 7.0) for size in SIZES]
        named = [out[r][:] if view and i else out[r] for i, r in enumerate(INTO)]
        with pytest.raises(OverlapError, match=r"out\[2\]"):
            tw.grouped_matmul(a, b, out=named)


@pytest.mark.parametrize("where", DEVICES)
def test_sums_of_tensors_that_cannot_be_are_refused(where: str) -> None:
    a, b = drawn(where)
    out = [torch.full(size, 7.0, device=where) for size in SIZES]
    with pytest.raises(ArgumentError, match=r"into: no product names result 1"):
        tw.grouped_matmul(a, b, into=[0, 2, 0, 0, 2])
    with pytest.raises(ShapeError, match=r"into\[1\]=0: product 1 is 5 x 2; must be 3 x 4"):
        tw.grouped_matmul(a, b, into=[0] * 5)
    with pytest.raises(ShapeError, match=r"out: has 1 matrices|into"):
        tw.grouped_matmul(a, b, into=[0] * 5, out=out[:1])
    with pytest.raises(ArgumentError, match=r"beta\[\d\].*agree"):
        tw.grouped_matmul(a, b, out=[out[r] for r in INTO], beta=[1.0, 0, 2.0, 0, 0])
    a[0].requires_grad_()
    with pytest.raises((ArgumentError, OperandError), match=r"requires a gradient|out=None"):
        tw.grouped_matmul(a, b, out=out, into=INTO)
    assert all((one == 7).all() for one in out)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_nothing_is_read_where_alpha_is_zero(where: str, learn: bool, batched: bool) -> None:
    a = torch.full((2, 3, 3) if batched else (3, 3), float("nan"), device=where)
    b = torch.full((3, 4), float("inf"), device=where, requires_grad=learn)
    bias = torch.arange(4.0, device=where)
    found = tw.matmul(a, b, alpha=0.0, bias=bias)
    torch.testing.assert_close(found, bias.expand(found.shape), check_stride=False)
    if not batched:
        found = tw.grouped_matmul([a], [b], alpha=0.0, bias=[bias])[0]
        torch.testing.assert_close(found, bias.expand(found.shape), check_stride=False)
