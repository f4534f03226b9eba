"""torch.func.vmap of products: batches without a slice, and products beside it that have none."""

from typing import Any

import pytest

import tilewright

torch = pytest.importorskip("torch")
vmap = torch.func.vmap
gelu = torch.nn.functional.gelu

OFFSETS = torch.tensor([2, 5, 6])
EXPERTS = torch.tensor([[0, 1], [2, 0], [1, 1], [0, 2], [2, 2], [1, 0]])


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


X, B, BIAS, ROWS = drawn(6, 7), drawn(7, 5), drawn(5), drawn(7, 4)
GROUPED, UP, DOWN, SHARES = drawn(3, 7, 5), drawn(3, 7, 4), drawn(3, 2, 7), drawn(6, 2)

CALLS = {
    "one product": lambda x: tilewright.matmul(x, B, bias=BIAS),
    "a list": lambda x: tilewright.grouped_matmul([x, X], [B, B], bias=[BIAS, None])[0],
    "sums": lambda x: tilewright.grouped_matmul([x, X], [B, B], into=[0, 0])[0],
    "groups of rows": lambda x: tilewright.ragged_matmul(x, GROUPED, OFFSETS),
    "groups of columns": lambda x: tilewright.ragged_matmul(x, ROWS, OFFSETS + 1),
    "a layer of experts": lambda x: tilewright.moe(x, UP, DOWN, EXPERTS, SHARES),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_empty_batch_of_products_gives_an_empty_batch(call: Any) -> None:
    none = torch.empty(0, 6, 7)
    made = vmap(call)(none)
    assert made.shape == (0, *call(X).shape)
    assert made.dtype == torch.float32
    gradients = vmap(torch.func.grad(lambda x: call(x).square().sum()))(none)
    assert gradients.shape == none.shape


def test_offsets_and_experts_may_be_an_empty_batch() -> None:
    rows = vmap(lambda ends: tilewright.ragged_matmul(X, GROUPED, ends))(OFFSETS.new_empty(0, 3))
    assert rows.shape == (0, 6, 5)
    layer = vmap(lambda experts: tilewright.moe(X, UP, DOWN, experts, SHARES), in_dims=2)
    assert layer(EXPERTS.new_empty(6, 2, 0)).shape == (0, 6, 7)


def test_an_empty_batch_has_gradients_of_what_is_the_same_for_all() -> None:
    weights = B.clone().requires_grad_()
    mapped = vmap(lambda x: tilewright.grouped_matmul([x], [weights], bias=[BIAS])[0])
    mapped(torch.empty(0, 6, 7)).sum().backward()
    assert torch.equal(weights.grad, torch.zeros_like(B))


def ours(bias: Any, a: Any, b: Any) -> Any:
    one, two = tilewright.grouped_matmul([a, b.t()], [b, a.t()], bias=[bias, None])
    return gelu(one).sum() * two + two.sum()


def torchs(bias: Any, a: Any, b: Any) -> Any:
    one, two = a @ b + bias, b.t() @ a.t()
    return gelu(one).sum() * two + two.sum()


TRANSFORMS = {
    "vmap": lambda f: vmap(f, (0, None, None)),
    "vmap of grad": lambda f: vmap(
        torch.func.grad(lambda *given: f(*given).square().mean(), (0, 1, 2)), (0, None, None)
    ),
    "vmap of jacrev": lambda f: vmap(torch.func.jacrev(f, (0, 1, 2)), (0, None, None)),
    "grad of vmap": lambda f: torch.func.grad(
        lambda *given: vmap(f, (0, None, None))(*given).square().mean(), (0, 1, 2)
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_product_that_is_not_batched_is_the_same_in_every_slice(transform: Any) -> None:
    given = tuple(one.double() for one in (drawn(3, 5), X, B))
    torch.testing.assert_close(transform(ours)(*given), transform(torchs)(*given))


def test_a_product_that_is_not_batched_has_as_many_slices_as_the_others() -> None:
    def both(bias: Any) -> Any:
        return tilewright.grouped_matmul([X, B.t()], [B, X.t()], bias=[bias, None])

    assert [made.shape for made in vmap(both)(drawn(3, 5))] == [(3, 6, 5), (3, 5, 6)]
