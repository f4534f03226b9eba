"""Products of tensors lose no gradient, tangent or batch dimension without a word.

On a processor here; the same tests run on a GPU where there is one (marker gpu).
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright as tw  # noqa: E402
from tests.support.torch_places import DEVICES  # noqa: E402
from tilewright.errors import OperandError  # noqa: E402
from tilewright.torch_ops import autocast, lists  # noqa: E402


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


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("leading", [False, True])
def test_ragged_products_have_the_derivatives_of_finite_differences(
    where: str, leading: bool
) -> None:
    x, w, bias = leaf(8, 3, where=where), leaf(3, 3, 2, where=where), leaf(3, 2, where=where)
    ends = torch.tensor([1, 3, 3, 7] if leading else [3, 3, 7], device=where)

    def rows(x: Any, w: Any, bias: Any) -> Any:
        return tw.ragged_matmul(x, w, ends, bias=bias)

    def depths(x: Any, y: Any) -> Any:
        return tw.ragged_matmul(x.t(), y, ends)

    every = {"check_batched_grad": True, "check_forward_ad": True}
    cases: list[tuple[Any, tuple[Any, ...]]] = [(rows, (x, w, bias))]
    cases += [] if leading else [(depths, (x, leaf(8, 2, where=where)))]
    for function, operands in cases:
        assert torch.autograd.gradcheck(
            function, operands, **every, check_batched_forward_grad=True
        )
        assert torch.autograd.gradgradcheck(function, operands, check_fwd_over_rev=True)


ENDS = [2, 2, 6]
FUNCTIONS: dict[str, tuple[Any, Any, tuple[tuple[int, ...], ...]]] = {
    "matmul": (lambda a, b: tw.matmul(a, b), lambda a, b: a @ b, ((6, 3), (3, 4))),
    "vector": (lambda a, b: tw.matmul(a, b), lambda a, b: a @ b, ((3,), (3, 4))),
    "batch": (
        lambda a, b: tw.matmul(a, b, alpha=2.0, activation="gelu"),
        lambda a, b: torch.nn.functional.gelu(2 * (a @ b)),
        ((2, 6, 3), (3, 4)),
    ),
    "list": (
        lambda a, b: tw.grouped_matmul([a, a[:2]], [b, b], alpha=[1.0, 3.0])[1],
        lambda a, b: 3 * (a[:2] @ b),
        ((6, 3), (3, 4)),
    ),
    "rows": (
        lambda x, w: tw.ragged_matmul(x, w, torch.tensor(ENDS, device=x.device)),
        lambda x, w: torch.cat([x[:2] @ w[0], x[2:] @ w[2]]),
        ((6, 3), (3, 3, 4)),
    ),
    "depths": (
        lambda x, y: tw.ragged_matmul(x, y, torch.tensor(ENDS, device=x.device)),
        lambda x, y: torch.stack([x[:, :2] @ y[:2], x[:, :0] @ y[:0], x[:, 2:] @ y[2:]]),
        ((3, 6), (6, 4)),
    ),
}


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_transforms_of_torch_func_give_what_they_give_of_torch(name: str, where: str) -> None:
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

    ours, theirs, shapes = FUNCTIONS[name]
    a, b = (torch.randn(*shape, dtype=torch.float64, device=where) for shape in shapes)
    many = [torch.randn(5, *shape, dtype=torch.float64, device=where) for shape in shapes]
    tangents = torch.randn_like(a), torch.randn_like(b)
    given_a, given = ((a,), tangents[:1]), ((b,), tangents[1:])

    def transformed(function: Any) -> list[Any]:
        def squares(a: Any, b: Any) -> Any:
            return function(a, b).pow(2).sum()

        return [
            grad(squares, (0, 1))(a, b),
            jacrev(function)(a, b),
            jacfwd(function, 1)(a, b),
            jacfwd(jacfwd(function, 0), 1)(a, b),
            jvp(lambda a: jvp(lambda b: jvp(squares, (a, b), tangents), *given)[1], *given_a),
            hessian(squares, 1)(a, b),
            jvp(function, (a, b), tangents),
            vjp(function, a, b)[1](function(a, b)),
            vmap(function)(*many),
            vmap(function, (None, 0), 1)(a, many[1]),
            vmap(function, (1, None))(many[0].movedim(0, 1), b),
            vmap(grad(squares), (None, 0))(a, many[1]),
            vmap(vmap(function, (None, 0)), (0, None))(*many),
        ]

    for found, wanted in zip(transformed(ours), transformed(theirs), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("records", [True, False])
def test_dual_numbers_keep_their_tangents(name: str, where: str, records: bool) -> None:
    from torch.autograd import forward_ad

    ours, theirs, shapes = FUNCTIONS[name]
    a, b = (torch.randn(*shape, dtype=torch.float64, device=where) for shape in shapes)
    a.requires_grad_(records)
    with torch.set_grad_enabled(records), forward_ad.dual_level():
        for one, two in ((a, b), (b, a)):
            dual = forward_ad.make_dual(one, torch.randn_like(one))
            pair = (dual, two) if one is a else (two, dual)
            found, wanted = (forward_ad.unpack_dual(f(*pair)) for f in (ours, theirs))
            torch.testing.assert_close(found.primal, wanted.primal)
            torch.testing.assert_close(found.tangent, wanted.tangent)
        out = torch.empty(6, 4, dtype=torch.float64, device=where)
        if name == "matmul":
            with pytest.raises(OperandError, match="has a tangent"):
                tw.matmul(*pair, out=out)
    if name == "matmul":
        tw.matmul(a.detach(), b, out=out)


@pytest.mark.parametrize("where", DEVICES)
def test_a_batch_of_one_is_a_batch(where: str) -> None:
    from torch.func import vmap

    a, b = torch.randn(1, 3, 4, device=where), torch.randn(4, 5, device=where)
    functions = [tw.matmul, lambda a, b: lists.products([a], [b])[0]]
    for function in functions:
        torch.testing.assert_close(vmap(function, (0, None))(a, b), a @ b)


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("shape", [(1024, 1024), (2, 1024, 512)], ids=str)
def test_autocast_casts_a_weight_once_while_it_lasts(shape: tuple[int, ...], where: str) -> None:
    weight = torch.nn.Parameter(torch.randn(*shape, device=where))
    with torch.autocast(where, torch.bfloat16):
        (first,) = autocast.cast(weight)
        (again,) = autocast.cast(weight)
        assert first is again
        with torch.no_grad():
            assert not autocast.cast(weight)[0].requires_grad
        (weight_again,) = autocast.cast(weight)
        assert weight_again.requires_grad
    weight.data.mul_(2)  # which no version counter tells
    with torch.autocast(where, torch.bfloat16):
        (later,) = autocast.cast(weight)
        assert later is not first
        torch.testing.assert_close(later, weight.bfloat16())
    (first.float().sum() + later.float().sum()).backward()
    torch.testing.assert_close(weight.grad, torch.full_like(weight, 2))


@pytest.mark.parametrize("where", DEVICES)
def test_a_weight_first_read_without_gradients_has_them_later(where: str) -> None:
    x, weight = (torch.randn(1024, 1024, device=where) for _ in range(2))
    weight = torch.nn.Parameter(weight)
    with torch.autocast(where, torch.bfloat16):
        with torch.no_grad():
            assert tw.matmul(x, weight).dtype is torch.bfloat16
        found = tw.matmul(x, weight)
        listed = tw.grouped_matmul([x], [weight])[0]
    assert found.dtype is listed.dtype is torch.bfloat16
    found.float().sum().backward()
    torch.testing.assert_close(
        weight.grad, x.bfloat16().float().sum(0)[:, None].expand(1024, 1024), rtol=0.01, atol=0.3
    )
