"""A layer of experts: its result and gradients are those of float64, wherever it lies.

On a processor here; the same tests run on a GPU where there is one (marker gpu).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import forward_ad  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.support import experts_case as cases  # noqa: E402
from tests.support.torch_places import DEVICES, HAS_GPU  # noqa: E402
from tilewright.errors import (  # noqa: E402
    ArgumentError,
    DtypeError,
    OperandError,
    ShapeError,
)
from tilewright.pytorch import MoE  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_for_all")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def learned(case: cases.Case, given: cases.Operands) -> tuple[Any, ...]:
    """The result and the gradients of everything that learns."""
    names = ("x", "w_up", "w_down", "weights")
    leaves = {name: getattr(given, name).detach().requires_grad_() for name in names}
    out = tw.moe(**leaves, experts=given.experts, activation=case.activation)
    out.backward(given.pull)
    return out.detach(), *(one.grad for one in leaves.values())


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("case", cases.CASES, ids=str)
def test_a_layer_and_its_gradients_are_those_of_float64(case: cases.Case, where: str) -> None:
    given = case.operands(where)
    found = learned(case, given)
    cases.check(case, found, cases.truth(case, given))
    operands = (given.x, given.w_up, given.w_down, given.experts, given.weights)
    assert torch.equal(tw.moe(*operands, activation=case.activation), found[0])  # h is not kept


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")
@pytest.mark.parametrize("case", cases.LARGE, ids=str)
def test_a_large_layer_and_its_gradients_are_those_of_float64(case: cases.Case) -> None:
    test_a_layer_and_its_gradients_are_those_of_float64(case, "cuda")


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("case", cases.EMPTY, ids=str)
def test_where_a_size_is_zero_all_is_zero(case: cases.Case, where: str) -> None:
    given = case.operands(where)
    for found, wanted in zip(learned(case, given), cases.truth(case, given), strict=True):
        assert found.shape == wanted.shape
        assert not found.any()


@pytest.mark.parametrize("where", DEVICES)
def test_gradients_are_those_of_finite_differences_and_a_second_time_refused(where: str) -> None:
    case = cases.Case(4, 3, 2, 3, 2, "swiglu", torch.float64)
    given = case.operands(where)
    up, down = given.w_up.nan_to_num(1.0), given.w_down.nan_to_num(1.0)
    leaves = [one.requires_grad_() for one in (given.x, up, down, given.weights)]

    def layer(x: Any, w_up: Any, w_down: Any, weights: Any) -> Any:
        return tw.moe(x, w_up, w_down, given.experts, weights)

    assert torch.autograd.gradcheck(layer, leaves)
    (first,) = torch.autograd.grad(layer(*leaves).sum(), leaves[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="gradient of its gradient"):
        torch.autograd.grad(first.sum(), leaves[1])


@pytest.mark.parametrize("where", DEVICES)
def test_transforms_find_the_gradient_and_tangents_are_refused(where: str) -> None:
    case = cases.Case(6, 8, 4, 3, 2, dtype=torch.float64)
    given = case.operands(where)
    up, down = given.w_up.nan_to_num(), given.w_down.nan_to_num()

    def layer(x: Any) -> Any:
        return tw.moe(x, up, down, given.experts, given.weights)

    wanted = torch.autograd.grad(layer(leaf := given.x.clone().requires_grad_()).sum(), leaf)[0]
    torch.testing.assert_close(torch.func.grad(lambda x: layer(x).sum())(given.x), wanted)
    made, back = torch.func.vjp(layer, given.x)
    torch.testing.assert_close(back(torch.ones_like(made))[0], wanted)
    several = torch.stack((given.x, 2 * given.x))
    torch.testing.assert_close(torch.vmap(layer)(several)[1], layer(2 * given.x))
    each = torch.vmap(torch.func.grad(lambda x: layer(x).sum()))(several)
    torch.testing.assert_close(each[0], wanted)
    refused = r"tilewright\.moe: tangents .*accepted are gradients"
    with pytest.raises(NotImplementedError, match=refused):
        torch.func.jvp(layer, (given.x,), (given.x,))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match=refused):
        layer(forward_ad.make_dual(given.x, given.x))
    with pytest.raises(NotImplementedError, match=refused):
        torch.func.jacfwd(lambda weights: tw.moe(given.x, up, down, given.experts, weights))(
            given.weights
        )


@pytest.mark.parametrize("where", DEVICES)
def test_only_what_learns_gets_a_gradient(where: str) -> None:
    given = cases.Case(30, 16, 8, 4, 2).operands(where)
    operands = [given.x, given.w_up.nan_to_num(), given.w_down.nan_to_num(), given.weights]
    every = [one.clone().requires_grad_() for one in operands]

    def made(x: Any, w_up: Any, w_down: Any, weights: Any) -> Any:
        return tw.moe(x, w_up, w_down, given.experts, weights)

    wanted = torch.autograd.grad(made(*every).sum(), every)
    for place, right in enumerate(wanted):
        alone = [one.clone().requires_grad_(at == place) for at, one in enumerate(operands)]
        made(*alone).sum().backward()
        torch.testing.assert_close(alone[place].grad, right)
        assert all(one.grad is None for at, one in enumerate(alone) if at != place)


@pytest.mark.parametrize("where", DEVICES)
def test_operands_may_lie_anyhow(where: str) -> None:
    case = cases.Case(50, 24, 16, 4, 2, "geglu")
    given = case.operands(where)
    truth = cases.truth(case, given)

    def spread(value: Any) -> Any:
        wide = torch.full((*value.shape[:-1], 2 * value.shape[-1]), 7, dtype=value.dtype)
        wide = wide.to(where)
        wide[..., ::2] = value
        return wide[..., ::2]

    names = ("x", "w_up", "w_down", "experts", "weights", "pull")
    apart = cases.Operands(**{name: spread(getattr(given, name)) for name in names})
    cases.check(case, learned(case, apart), truth)
    turned = replace(given, experts=given.experts.t().contiguous().t())
    cases.check(case, learned(case, turned), truth)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("where", DEVICES)
def test_gradients_of_weights_lie_as_the_weights_do(where: str, turned: bool) -> None:
    """Autograd copies one that lies otherwise."""
    x, experts = torch.randn(9, 8, device=where), torch.arange(9, device=where)[:, None] % 3
    made = [torch.randn(3, *of, device=where) for of in ((8, 10), (5, 8))]
    up, down = ((w.mT.contiguous().mT if turned else w).requires_grad_() for w in made)
    tw.moe(x, up, down, experts, torch.ones(9, 1, device=where)).sum().backward()
    assert (up.grad.stride(), down.grad.stride()) == (up.stride(), down.stride())
    ends = torch.tensor([2, 2, 9], device=where)
    (of_up,) = torch.autograd.grad(tw.ragged_matmul(x, up, ends).sum(), up)
    assert of_up.stride() == up.stride()
    right = torch.stack([x[i:j].sum(0) for i, j in ((0, 2), (2, 2), (2, 9))])
    torch.testing.assert_close(of_up, right[..., None].expand_as(of_up))


@pytest.mark.parametrize("where", DEVICES)
def test_results_are_the_same_each_time(where: str) -> None:
    case = cases.Case(400, 64, 48, 8, 4, dtype=torch.bfloat16)
    given = case.operands(where)
    first = learned(case, given)
    for _ in range(3):
        for one, two in zip(first, learned(case, given), strict=True):
            assert torch.equal(one, two)


@pytest.mark.parametrize("where", DEVICES)
def test_a_gradient_of_a_sum_and_of_a_view_reaches_the_rows(where: str) -> None:
    case = cases.Case(30, 16, 8, 4, 2, dtype=torch.float64)
    given = case.operands(where)
    ones = replace(given, pull=torch.ones_like(given.pull))
    x = given.x.clone().requires_grad_()
    tw.moe(x, given.w_up, given.w_down, given.experts, given.weights).sum().backward()
    torch.testing.assert_close(x.grad, cases.truth(case, ones)[1])
    x.grad = None
    tw.moe(x, given.w_up, given.w_down, given.experts, given.weights).t()[3].sum().backward()
    pull = torch.zeros_like(given.pull)
    pull[:, 3] = 1
    torch.testing.assert_close(x.grad, cases.truth(case, replace(given, pull=pull))[1])


def test_experts_that_are_none_are_named_at_once_on_a_processor() -> None:
    given = cases.Case(6, 8, 4, 3, 2).operands()
    for wrong in (-2, 3, 2**40):
        experts = given.experts.clone()
        experts[4, 1] = wrong
        with pytest.raises(ArgumentError, match=rf"experts\[4, 1\]={wrong}: .* 0 to 2"):
            tw.moe(given.x, given.w_up, given.w_down, experts, given.weights)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")
def test_experts_that_are_none_add_nothing_and_are_told_later_on_a_gpu() -> None:
    case = cases.Case(6, 8, 4, 3, 2)
    given = case.operands("cuda")
    operands = (given.x, given.w_up.nan_to_num(), given.w_down.nan_to_num())
    for wrong in (-2, 3, 2**40):
        experts, weights = given.experts.clone(), given.weights.clone()
        experts[4, 1] = wrong
        found = tw.moe(*operands, experts, weights)
        with pytest.raises(ArgumentError, match=r"experts.flatten\(\)\[9\]"):
            tw.synchronize()
        weights[4, 1] = 0
        torch.testing.assert_close(found, tw.moe(*operands, given.experts, weights))


def compiled(layer: Any) -> Any:
    return torch.compile(layer, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("where", DEVICES)
def test_a_compiled_layer_is_one_graph_with_the_same_results(where: str) -> None:
    layer = MoE(4, 16, 8, top=2, device=where)
    x = torch.randn(5, 6, 16, device=where, requires_grad=True)
    wanted = layer(x)
    wanted.square().sum().backward()
    grads = [x.grad, *(one.grad for one in layer.parameters())]
    x.grad = None
    layer.zero_grad()
    found = compiled(layer)(x)
    found.square().sum().backward()
    torch.testing.assert_close(found, wanted)
    for one, right in zip((x, *layer.parameters()), grads, strict=True):
        torch.testing.assert_close(one.grad, right)
    with torch.no_grad():
        torch.testing.assert_close(compiled(layer)(x), wanted)


def test_the_operators_are_what_torch_asks_of_operators() -> None:
    given = cases.Case(7, 8, 4, 3, 2).operands()
    w_up, w_down = given.w_up.nan_to_num(), given.w_down.nan_to_num()
    learn = [one.requires_grad_() for one in (given.x, w_up, w_down)]
    last = (given.experts, given.weights.requires_grad_(), "swiglu", "ieee", True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.tilewright.moe, (*learn, *last), test_utils=tests)


@pytest.mark.parametrize("where", DEVICES)
def test_the_module_routes_to_the_experts_of_the_largest_chances(where: str) -> None:
    layer = MoE(6, 16, 8, top=3, activation="relu2", device=where).double()
    x = torch.randn(2, 10, 16, device=where, dtype=torch.float64)
    experts, weights = layer.route(x.reshape(-1, 16))
    torch.testing.assert_close(weights.sum(1), torch.ones(20, device=where))
    chances = (x.reshape(-1, 16) @ layer.router.weight.t()).softmax(-1)
    assert torch.equal(experts, chances.topk(3).indices)
    case = cases.Case(20, 16, 8, 6, 3, "relu2", torch.float64)
    operands = (x.reshape(-1, 16), layer.w_up, layer.w_down, experts, weights.double())
    torch.testing.assert_close(
        layer(x).reshape(-1, 16), cases.plain(case, *operands), rtol=1e-6, atol=1e-6
    )
    given = layer(x, experts.view(2, 10, 3), weights.view(2, 10, 3))
    torch.testing.assert_close(given, layer(x))
    with pytest.raises(ArgumentError, match="both"):
        layer(x, experts)
    with pytest.raises(ArgumentError, match="top=7"):
        MoE(6, 16, 8, top=7)
    with pytest.raises(ArgumentError, match=r"top=2\.5"):
        MoE(6, 16, 8, top=2.5)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"x.shape=\(3, 15\)"):
        layer(x[0, :3, :15])
    with pytest.raises(ArgumentError, match="activation='tanh'"):
        MoE(6, 16, 8, top=1, activation="tanh")
    assert "top=3" in repr(layer)


def test_autocast_casts_all_but_the_weights() -> None:
    layer = MoE(4, 16, 8, top=2)
    x = torch.randn(6, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), layer(x), rtol=0.05, atol=0.05)
    found.float().sum().backward()
    assert layer.w_up.grad.dtype == torch.float32


def test_what_does_not_fit_is_named() -> None:
    given = cases.Case(6, 8, 4, 3, 2).operands()
    right = {name: getattr(given, name) for name in ("x", "w_up", "w_down", "experts", "weights")}
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"x": [1.0]}, OperandError, "x=list"),
        ({"w_up": None}, OperandError, "w_up=NoneType"),
        ({"w_up": given.w_up.to_sparse()}, OperandError, "w_up.layout"),
        ({"experts": given.experts.to_sparse()}, OperandError, "experts.layout"),
        ({"weights": given.weights.to("meta")}, OperandError, "weights.device='meta'"),
        ({"x": given.x.int()}, DtypeError, "x.dtype='int32'"),
        ({"w_down": given.w_down.double()}, DtypeError, "w_down.dtype='float64'"),
        ({"experts": given.experts.float()}, DtypeError, "experts.dtype='float32'"),
        ({"weights": given.weights.half()}, DtypeError, "weights.dtype='float16'"),
        ({"x": given.x[0]}, ShapeError, r"x.shape=\(8,\)"),
        ({"x": given.x[:, :7]}, ShapeError, "w_down.shape=.* d=7"),
        ({"w_down": given.w_down[:2]}, ShapeError, "w_down.shape=.* E=3"),
        ({"w_up": given.w_up[:, :, :4]}, ShapeError, r"w_up.shape=.* \(3, 8, 8\)"),
        ({"activation": "silu"}, ShapeError, r"w_up.shape=.* \(3, 8, 4\)"),
        ({"activation": "tanh"}, ArgumentError, "activation='tanh'"),
        ({"activation": given.x}, ArgumentError, "activation="),
        ({"precision": "tf16"}, ArgumentError, "precision='tf16'"),
        ({"experts": given.experts[:5]}, ShapeError, r"experts.shape=\(5, 2\)"),
        ({"weights": given.weights[:, :1]}, ShapeError, r"weights.shape=\(6, 1\)"),
        ({"w_up": given.w_up[:0], "w_down": given.w_down[:0]}, ShapeError, "no expert"),
    ]
    for change, error, said in wrong:
        with pytest.raises(error, match=said):
            tw.moe(**{**right, **change})


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")
def test_a_captured_step_takes_other_routes_at_each_replay() -> None:
    case = cases.Case(300, 64, 32, 8, 2, dtype=torch.bfloat16)
    given = case.operands("cuda")
    given = replace(given, w_up=given.w_up.nan_to_num(), w_down=given.w_down.nan_to_num())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        learned(case, given)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = learned(case, given)
    for _ in range(3):
        given.experts.copy_(torch.rand(300, 8, device="cuda").topk(2).indices)
        given.x.normal_()
        graph.replay()
        cases.check(case, found, cases.truth(case, given))


def test_what_passed_once_is_checked_where_it_is_something_else() -> None:
    """Sizes that were met before, with an option that equals one of another type; and operands
    that only autocast had made alike."""
    given = cases.Case(6, 8, 4, 3, 2).operands("cpu")
    operands = (given.x, given.w_up, given.w_down, given.experts, given.weights)
    tw.moe(*operands)
    with pytest.raises(ArgumentError, match="batch_invariant=0"):
        tw.moe(*operands, batch_invariant=0)
    with pytest.raises(ShapeError, match=r"weights\.shape"):
        tw.moe(*operands[:4], given.weights[:5])
    mixed = (given.x.bfloat16(), *operands[1:])
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            assert tw.moe(*mixed).dtype == torch.bfloat16
        with pytest.raises(DtypeError, match="w_up"):
            tw.moe(*mixed)


@pytest.mark.parametrize("name", ["x", "w_up", "w_down", "experts", "weights"])
def test_views_of_memory_that_was_given_back_are_refused(name: str) -> None:
    given = {
        "x": torch.randn(1, 32),
        "w_up": torch.randn(4, 32, 64),
        "w_down": torch.randn(4, 32, 32),
        "experts": torch.zeros(1, 2, dtype=torch.int64),
        "weights": torch.ones(1, 2),
    }
    whole = torch.cat([given[name], given[name]])
    given[name] = whole[len(given[name]) :]
    tw.moe(**given)
    whole.untyped_storage().resize_(0)
    with pytest.raises(OperandError, match=f"{name} .* has no memory"):
        tw.moe(**given)
