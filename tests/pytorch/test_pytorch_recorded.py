"""Products that autograd alone sees go the short way, with the derivatives of the long one.

The short way launches on a GPU. Here its launches are torch's own products, on a processor, under
everything else of it; on a GPU the tests of gradients pass through it as it is.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright as tw  # noqa: E402
from tests.support.torch_places import DEVICES, HAS_GPU  # noqa: E402
from tilewright.errors import ShapeError  # noqa: E402
from tilewright.torch_ops import dense, down, lists, recorded  # noqa: E402

HOW = (None, None, None, None)
SIZES = [(2, 3, 1), (1, 1, 4), (4, 2, 3), (3, 2, 2)]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many products each launch has."""
    seen: list[int] = []

    def turn(x: Any, which: Any) -> Any:
        return x.mT if which else x

    def one(a: Any, b: Any, out: Any, bias: Any, how: Any, **options: Any) -> Any:
        assert not torch.is_grad_enabled()
        seen.append(1)
        found = turn(a, options["transpose_a"]) @ turn(b, options["transpose_b"])
        return found.mul_(options["alpha"]) if bias is None else found * options["alpha"] + bias

    def many(a: Any, b: Any, out: Any, bias: Any, how: Any, **options: Any) -> Any:
        assert not torch.is_grad_enabled()
        seen.append(len(a))
        left, right, alpha = options["transpose_a"], options["transpose_b"], options["alpha"]
        shape = (len(a),)
        left, right = (torch.as_tensor(x).expand(shape).tolist() for x in (left, right))
        scales = torch.as_tensor(alpha, dtype=torch.float64).expand(shape).tolist()
        given = zip(a, b, left, right, scales, strict=True)
        made = [turn(x, p) @ turn(y, q) * scale for x, y, p, q, scale in given]
        if bias is not None:
            made = [x if y is None else x + y for x, y in zip(made, bias, strict=True)]
        flat = torch.cat([x.reshape(-1) for x in made])
        parts = flat.split([x.numel() for x in made])
        return [part.view(x.shape) for part, x in zip(parts, made, strict=True)]

    monkeypatch.setattr(down, "write_product", one)
    monkeypatch.setattr(down, "lists_into", many)
    monkeypatch.setattr(recorded, "_is_cuda", lambda tensor: True)
    return seen


def leaf(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def operands(turned: tuple[bool, bool]) -> tuple[list[Any], list[Any], list[Any]]:
    torch.manual_seed(0)
    a = [leaf(*((k, m) if turned[0] else (m, k))) for m, _, k in SIZES]
    b = [leaf(*((n, k) if turned[1] else (k, n))) for _, n, k in SIZES]
    return a, b, [leaf(SIZES[1][1]), leaf(SIZES[3][1])]


TURNED = [(False, False), (True, False), (False, True), (True, True)]
EVERY: dict[str, Any] = {"check_batched_grad": True}


@pytest.mark.parametrize("turned", TURNED, ids=str)
def test_one_product_has_the_derivatives_of_finite_differences(
    turned: tuple[bool, bool], launches: list[int]
) -> None:
    a, b, bias = (part[3] if len(part) > 3 else part[1] for part in operands(turned))

    def product(a: Any, b: Any, bias: Any = None) -> Any:
        return recorded.product(a, b, bias, turned, -1.5, HOW, dense.product)

    for given in ((a, b), (a, b, bias), (a.detach(), b), (a, b.detach(), bias)):
        assert torch.autograd.gradcheck(product, given, **EVERY)
        assert torch.autograd.gradgradcheck(product, given)
    launches.clear()
    product(a, b).sum().backward()
    assert launches == [1, 1, 1]


@pytest.mark.parametrize("turned", TURNED, ids=str)
@pytest.mark.parametrize("alpha", [0.5, [1.0, -2.0, 0.5, 3.0]], ids=str)
def test_lists_have_the_derivatives_of_finite_differences(
    turned: tuple[bool, bool], alpha: Any, launches: list[int]
) -> None:
    a, b, (one, two) = operands(turned)

    def products(*given: Any) -> tuple[Any, ...]:
        left, right, vectors = given[:4], given[4:8], given[8:]
        biases = [None, vectors[0], None, vectors[1]] if vectors else None
        found = recorded.products(left, right, biases, turned, alpha, HOW, lists.products)
        assert found is not None
        return tuple(found)

    some = [x.detach() if i % 2 else x for i, x in enumerate((*a, *b))]
    for given in ((*a, *b), (*a, *b, one, two), (*some, one, two)):
        assert torch.autograd.gradcheck(products, given, **EVERY)
    assert torch.autograd.gradgradcheck(products, (*a, *b, one, two))
    launches.clear()
    found = products(*a, *b, one, two)
    torch.autograd.backward([x.sum() for x in found])
    assert launches == [4, 8]
    launches.clear()
    products(*a, *b)[2].sum().backward()
    assert launches == [4, 2]


def test_results_of_a_list_may_be_changed_in_place_each_on_its_own(launches: list[int]) -> None:
    a, b, _ = operands((False, False))
    found = recorded.products(a, b, None, (False, False), 1.0, HOW, lists.products)
    assert found is not None
    kept = found[1].exp()
    found[0].relu_()
    found[2].mul_(2)
    (kept.sum() + found[0].sum() + found[2].sum()).backward()
    torch.testing.assert_close(a[2].grad, 2 * b[2].sum(1).expand(4, 3))
    torch.testing.assert_close(a[1].grad, (a[1] @ b[1]).exp() * b[1].T)


def test_what_anything_else_looks_at_goes_the_long_way(launches: list[int]) -> None:
    from torch.autograd import forward_ad

    a, b, _ = operands((False, False))

    def short(x: Any, y: Any) -> Any:
        turned = (False, False)
        return (
            recorded.product(x, y, None, turned, 1.0, HOW, dense.product),
            recorded.products([x], [y], None, turned, 1.0, HOW, lists.products),
        )

    seen = []
    torch.func.vmap(lambda x: (seen.append(short(x, b[0])), x)[1])(a[0][None])
    with forward_ad.dual_level():
        seen.append(short(a[0], b[0]))
    with torch.autocast("cpu", torch.bfloat16):
        seen.append(short(a[0], b[0]))
    odd = torch.ones(2, 3, dtype=torch.complex128).conj().imag
    seen += [short(odd, odd), short(a[0].detach().numpy(), b[0]), short(a[0].to_sparse(), b[0])]
    assert set(seen) == {(None, None)}
    assert launches == []


def test_only_what_is_wanted_is_multiplied(launches: list[int]) -> None:
    a, b, _ = operands((False, False))
    fixed = [x.detach() for x in a]
    found = recorded.products(fixed, b, None, (False, False), 1.0, HOW, lists.products)
    assert found is not None
    torch.autograd.backward([x.sum() for x in found])
    assert launches == [4, 4]


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("biased", [False, True])
def test_the_public_calls_have_torchs_gradients(where: str, biased: bool) -> None:
    a, b, bias = (
        [x.detach().to(where).requires_grad_() for x in part] for part in operands((True, False))
    )
    vectors = [bias[0] if n == 1 else None for _, n, _ in SIZES] if biased else None
    found = tw.grouped_matmul(a, b, bias=vectors, transpose_a=True, activation="relu", alpha=2.0)
    found += [tw.matmul(a[2], b[2], transpose_a=True), tw.matmul(a[2].T, b[2])]
    wanted = [2 * (x.T @ y) for x, y in zip(a, b, strict=True)]
    if vectors is not None:
        wanted = [x if v is None else x + v for x, v in zip(wanted, vectors, strict=True)]
    wanted = [x.relu() for x in wanted] + [a[2].T @ b[2]] * 2
    torch.testing.assert_close(found, wanted)
    inputs = [*a, *b, *(bias[:1] if biased else [])]
    torch.testing.assert_close(
        torch.autograd.grad([x.sin().sum() for x in found], inputs),
        torch.autograd.grad([x.sin().sum() for x in wanted], inputs),
    )


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("learns", [True, False])
def test_products_of_tensors_are_added_into_results(where: str, learns: bool) -> None:
    torch.manual_seed(0)
    a = [torch.randn(3, k, device=where, requires_grad=learns) for k in (2, 4, 5)]
    b = [torch.randn(k, 6, device=where, requires_grad=learns) for k in (2, 4, 5)]
    bias = torch.randn(6, device=where, requires_grad=learns)
    into, alpha = [1, 0, 1], [1.0, 2.0, 3.0]
    found = tw.grouped_matmul(a, b, into=into, alpha=alpha, bias=[bias, None], activation="relu")
    wanted = [(2 * (a[1] @ b[1]) + bias).relu(), (a[0] @ b[0] + 3 * (a[2] @ b[2])).relu()]
    torch.testing.assert_close(found, wanted)
    if learns:
        grads = [
            torch.autograd.grad([x.sin().sum() for x in y], [*a, *b, bias]) for y in (found, wanted)
        ]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match=r"into\[1\]=0: product 1 is 2 x 6; must be 3 x 6"):
        tw.grouped_matmul([a[0], a[1][:2]], b[:2], into=[0, 0])


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")
@pytest.mark.parametrize("precision", ["tf32", "fp32x"])
def test_gradients_have_the_precision_of_their_product(precision: str) -> None:
    torch.manual_seed(0)
    sizes = [(130, 70, 200), (64, 64, 64), (33, 257, 129)]
    a = [torch.randn(m, k, device="cuda").requires_grad_() for m, _, k in sizes]
    b = [torch.randn(k, n, device="cuda").requires_grad_() for _, n, k in sizes]
    seeds = [torch.randn(m, n, device="cuda") for m, n, _ in sizes]
    calls = [
        lambda: tw.grouped_matmul(a, b, precision=precision),
        lambda: [tw.matmul(x, y, precision=precision) for x, y in zip(a, b, strict=True)],
    ]
    exact = [seed.double() @ y.detach().double().T for seed, y in zip(seeds, b, strict=True)]
    exact += [x.detach().double().T @ seed.double() for seed, x in zip(seeds, a, strict=True)]
    slack = {"tf32": 2e-2, "fp32x": 1e-5}[precision]
    for call in calls:
        found = torch.autograd.grad(call(), [*a, *b], seeds)
        for one, true in zip(found, exact, strict=True):
            assert float((one.double() - true).norm() / true.norm()) < slack
