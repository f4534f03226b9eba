"""Products of tensors lose no gradient, tangent or batch dimension without a word.

On a processor here; the same tests run on a GPU where there is one (marker gpu).
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright as tw  # noqa: E402
from tilewright.errors import OperandError  # noqa: E402
from tilewright.pytorch import lists  # noqa: E402

HAS_GPU = torch.cuda.is_available()
GPU = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")],
)
DEVICES = ["cpu", GPU]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def leaf(*shape: int, where: str = "cpu") -> Any:
    """float64 and small, for finite differences."""
    return torch.randn(*shape, dtype=torch.float64).to(where).requires_grad_()


DENSE: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), (4, 5), {}),
    ((3, 4), (4, 5), {"alpha": -1.5, "activation": "gelu"}),
    ((4, 3), (5, 4), {"transpose_a": True, "transpose_b": True, "activation": "relu"}),
    ((4,), (4, 5), {"transpose_a": True}),
    ((3, 4), (4,), {}),
    ((4,), (4,), {"alpha": 2.0}),
    ((2, 3, 4), (4, 5), {}),
    ((3, 4), (2, 4, 5), {}),
    ((2, 1, 3, 4), (3, 4, 2), {}),
    ((4,), (2, 4, 5), {}),
    ((0, 4), (4, 5), {}),
    ((3, 0), (0, 5), {}),
    ((2, 3, 4), (2, 5, 4), {"transpose_b": True}),
]


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("a", "b", "options"), DENSE, ids=str)
def test_matmul_has_the_derivatives_of_finite_differences(
    a: tuple[int, ...], b: tuple[int, ...], options: dict[str, Any], biased: bool, where: str
) -> None:
    n = 1 if len(b) == 1 else b[-2] if options.get("transpose_b") else b[-1]
    operands = [leaf(*a, where=where), leaf(*b, where=where)]
    operands += [leaf(n, where=where)] if biased else []

    def product(a: Any, b: Any, bias: Any = None) -> Any:
        return tw.matmul(a, b, bias=bias, **options)

    every = {"check_batched_grad": True, "check_forward_ad": True}
    assert torch.autograd.gradcheck(product, operands, **every, check_batched_forward_grad=True)
    if "activation" not in options:
        assert torch.autograd.gradgradcheck(product, operands, check_fwd_over_rev=True)


LISTS = [(2, 3, 1), (1, 1, 4), (0, 2, 3), (3, 2, 0), (3, 2, 2)]


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("function", ["products", "grouped_matmul"])
def test_lists_have_the_derivatives_of_finite_differences(function: str, where: str) -> None:
    count = len(LISTS)
    a = [leaf(m, k, where=where) for m, _, k in LISTS]
    b = [leaf(k, n, where=where) for _, n, k in LISTS]
    bias = [leaf(LISTS[1][1], where=where), leaf(LISTS[4][1], where=where)]
    alpha = [1.0, -2.0, 0.5, 3.0, 1.5]

    def products(*given: Any) -> tuple[Any, ...]:
        left, right, (one, two) = given[:count], given[count : 2 * count], given[2 * count :]
        biases = [None, one, None, None, two]
        if function == "products":
            return tuple(lists.products(left, right, biases, alpha))
        turned = [matrix.t() for matrix in right]
        return tuple(tw.grouped_matmul(left, turned, bias=biases, alpha=alpha, transpose_b=True))

    every = {"check_batched_grad": True, "check_forward_ad": True}
    operands = (*a, *b, *bias)
    assert torch.autograd.gradcheck(products, operands, **every, check_batched_forward_grad=True)
    assert torch.autograd.gradgradcheck(products, operands, check_fwd_over_rev=True)


@pytest.mark.parametrize("where", DEVICES)
def test_out_is_refused_where_a_gradient_would_be_lost(where: str) -> None:
    a, b = leaf(3, 4, where=where), leaf(4, 5, where=where)
    out = torch.full((3, 5), float("nan"), dtype=torch.float64, device=where)
    learns = torch.empty_like(out, requires_grad=True)
    calls = [
        lambda: tw.matmul(a, b.detach(), out=out),
        lambda: tw.matmul(a.detach(), b.detach(), out=learns),
        lambda: tw.matmul(a.detach(), b.detach(), out=out, bias=leaf(5, where=where)),
        lambda: tw.grouped_matmul([a.detach()], [b], out=[out]),
        lambda: tw.grouped_matmul([a.detach()], [b.detach()], out=[learns]),
        lambda: tw.plan_grouped([3], [5], [4], dtype="float64").bind([a], [b]),
    ]
    for call in calls:
        with pytest.raises(OperandError, match="requires a gradient"):
            call()
    assert out.isnan().all()
    with torch.no_grad():
        assert tw.matmul(a, b, out=out) is out
        torch.testing.assert_close(out, a @ b)
        tw.grouped_matmul([a], [b], out=[learns])
        torch.testing.assert_close(learns, a @ b)


@pytest.mark.parametrize("where", DEVICES)
def test_what_is_written_in_place_is_known_to_autograd(where: str) -> None:
    a = torch.randn(4, 4, device=where)
    plan = tw.plan_grouped([4], [4], [4], device=None if where == "cpu" else where)
    writes = [
        lambda out: tw.matmul(a, a, out=out),
        lambda out: tw.matmul(a, a, out=out),  # the second call may go another way
        lambda out: tw.grouped_matmul([a], [a], out=[out]),
        lambda out: plan.bind([a], [a], [out])(),
        lambda out: tw.ragged_matmul(a, a[None], torch.tensor([4], device=where), out=out),
    ]
    for write in writes:
        x = torch.randn(4, 4, device=where, requires_grad=True)
        y = x.exp()
        loss = y.sum()
        with torch.no_grad():
            write(y.detach())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_gradient_is_not_lost_between_kinds_of_arrays() -> None:
    a, b = leaf(3, 4), leaf(4, 5)
    array = b.detach().numpy()
    calls = [
        lambda: tw.matmul(a, array),
        lambda: tw.matmul(array.T, b),
        lambda: tw.grouped_matmul([a], [array]),
        lambda: tw.grouped_matmul([array.T, array.T], [array, b]),
        lambda: tw.matmul(array.T, array, bias=leaf(5)),
    ]
    for call in calls:
        with pytest.raises(OperandError, match="accepted are"):
            call()
    with torch.no_grad():
        torch.testing.assert_close(tw.matmul(a, array), a @ b)
        assert isinstance(tw.matmul(array.T, b), type(array))
