"""Muon's parameters are those of torch.optim.Muon, step after step; on a GPU within bf16.

On a processor here; the same tests run on a GPU where there is one (marker gpu).
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.torch_places import DEVICES  # noqa: E402
from tilewright.errors import ArgumentError, DtypeError, OperandError, ShapeError  # noqa: E402
from tilewright.pytorch import Muon, newton_schulz  # noqa: E402

SHAPES = [(16, 27), (64, 64), (24, 8), (1, 5), (7, 1), (33, 64), (64, 64), (0, 4), (40, 129)]
HOW = [
    {},
    {"nesterov": False},
    {"momentum": 0.0, "weight_decay": 0.0},
    {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 4},
    {"adjust_lr_fn": "original", "ns_coefficients": (1.5, -0.5, 0.0), "eps": 1e-3},
    {"ns_steps": 0, "lr": torch.tensor(0.02)},
]


def drawn(shapes: list[tuple[int, int]], place: str, dtype: Any = torch.float32) -> list[Any]:
    draw = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(one, generator=draw).to(place, dtype)) for one in shapes]


def give_gradients(lists: list[list[Any]], seed: int) -> None:
    """The same ones to each list; every seventh has none."""
    draw = torch.Generator().manual_seed(seed)
    for i, row in enumerate(zip(*lists, strict=True)):
        gradient = torch.randn(row[0].shape, generator=draw)
        for one in row:
            none = (i + seed) % 7 == 0
            one.grad = None if none else gradient.to(one.device, one.dtype, copy=True)


def apart(ours: list[Any], theirs: list[Any]) -> float:
    """The largest distance of two parameters, relative to the larger norm."""
    pairs = [(x.detach(), y.detach()) for x, y in zip(ours, theirs, strict=True) if x.numel()]
    return max(float((x - y).norm() / y.norm().clamp(min=1)) for x, y in pairs)


def allowed(place: str, scale: float) -> float:
    """Nothing on a processor, on a GPU what bf16 may do to updates of such a part."""
    return 0.0 if place == "cpu" else scale


@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("how", HOW, ids=[*map(str, range(len(HOW)))])
def test_fifty_steps_are_those_of_torch(how: dict[str, Any], place: str) -> None:
    ours, theirs = drawn(SHAPES, place), drawn(SHAPES, place)
    mine, reference = Muon(ours, **how), torch.optim.Muon(theirs[:7] + theirs[8:], **how)
    for seed in range(50):
        give_gradients([ours, theirs], seed)
        mine.step()
        reference.step()
    assert apart(ours, theirs) <= allowed(place, 2e-2)


@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes_groups_and_rates_of_a_schedule_are_those_of_torch(
    dtype: Any, place: str
) -> None:
    def groups(params: list[Any]) -> list[dict[str, Any]]:
        other = {"params": params[4:7], "lr": 0.03, "momentum": 0.5, "ns_steps": 3}
        return [{"params": params[:4]}, other]

    ours, theirs = drawn(SHAPES, place, dtype), drawn(SHAPES, place, dtype)
    mine, reference = Muon(groups(ours)), torch.optim.Muon(groups(theirs))
    each = [torch.optim.lr_scheduler.StepLR(one, 3) for one in (mine, reference)]
    for seed in range(8):
        give_gradients([ours, theirs], seed)
        for optimizer, schedule in zip((mine, reference), each, strict=True):
            optimizer.step()
            schedule.step()
    assert apart(ours, theirs) <= allowed(place, 2e-2)


def test_state_goes_to_torch_and_back_and_through_a_copy() -> None:
    ours, theirs = drawn(SHAPES[:7], "cpu"), drawn(SHAPES[:7], "cpu")
    mine = Muon(ours)
    for seed in range(3):
        give_gradients([ours, theirs], seed)
        mine.step()
    for x, y in zip(ours, theirs, strict=True):
        y.data.copy_(x)
    reference = torch.optim.Muon(theirs)
    reference.load_state_dict(copy.deepcopy(mine.state_dict()))
    again = Muon(ours)
    again.load_state_dict(reference.state_dict())
    again = copy.deepcopy(again)
    own = again.param_groups[0]["params"]
    for seed in range(3, 6):
        give_gradients([own, theirs], seed)
        again.step()
        reference.step()
    assert apart(own, theirs) == 0.0


def test_a_closure_is_called_with_gradients_and_its_loss_returned() -> None:
    weight = torch.nn.Parameter(torch.ones(4, 3))
    optimizer = Muon([weight], lr=0.1, weight_decay=0.0)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure).detach()) for _ in range(3)]
    assert losses[0] == 12.0
    assert losses[2] < losses[1] < losses[0]


def test_momentum_of_bf16_is_kept_without_nesterov() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, 4, dtype=torch.bfloat16))
    weight.grad = torch.full((4, 4), 8.0, dtype=torch.bfloat16)
    optimizer = Muon([weight], nesterov=False, momentum=0.5)
    optimizer.step()
    assert optimizer.state[weight]["momentum_buffer"].tolist() == [[4.0] * 4] * 4


@pytest.mark.parametrize("place", DEVICES)
def test_matrices_become_orthogonal_in_one_call(place: str) -> None:
    matrices = [one.detach() for one in drawn([(12, 40), (40, 12), (16, 16), (3, 0)], place)]
    matrices.append(matrices[0].t())
    before = [one.clone() for one in matrices]
    found = newton_schulz(matrices, ns_steps=12, ns_coefficients=(1.875, -1.25, 0.375))
    for x, y in zip(matrices, before, strict=True):
        assert torch.equal(x, y)
    for x, y in zip(matrices, found, strict=True):
        assert y.dtype == torch.bfloat16
        assert y.shape == x.shape
        if x.numel():
            values = torch.linalg.svdvals(y.float())
            assert values.min() > 0.95
            assert values.max() < 1.05
    again = newton_schulz(matrices[:2], ns_steps=0)
    assert all(abs(float(x.float().norm()) - 1) < 0.01 for x in again)
    assert newton_schulz([]) == []


@pytest.mark.parametrize("place", DEVICES)
def test_what_is_zero_stays_and_what_is_no_number_stays_where_it_is(place: str) -> None:
    matrices = [torch.zeros(5, 9), torch.full((6, 6), float("nan")), torch.ones(4, 8)]
    zero, nan, good = newton_schulz([one.to(place) for one in matrices])
    assert not zero.any()
    assert nan.isnan().all()
    assert good.isfinite().all()


def test_results_are_not_overwritten_by_the_next_call() -> None:
    one = torch.eye(4)
    first = newton_schulz([one])[0]
    kept = first.clone()
    newton_schulz([one * torch.arange(4.0)])
    assert torch.equal(first, kept)


@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("first", ["steps", "moments"])
def test_what_is_kept_in_inference_mode_is_of_use_out_of_it(first: str, place: str) -> None:
    ours, theirs = drawn(SHAPES, place), drawn(SHAPES, place)
    mine, reference = Muon(ours), Muon(theirs)
    if first == "steps":  # momentum is there already
        give_gradients([ours, theirs], 0)
        mine.step()
        reference.step()
    for seed in (3, 3, 5):  # of other matrices, which are bound anew
        give_gradients([ours, theirs], seed)
        with torch.inference_mode(mode=seed == 3):
            mine.step()
        reference.step()
    assert apart(ours, theirs) == 0
    sizes = [(3, 5), (6, 2)] if first == "steps" else [(5, 3), (2, 6)]
    matrices = [one.detach() for one in drawn(sizes, place)]
    with torch.inference_mode():
        inside = newton_schulz(matrices)
    for one, other in zip(inside, newton_schulz(matrices), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("place", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_changes_no_step(dtype: Any, place: str) -> None:
    matrices = [one.detach() for one in drawn(SHAPES, place)]
    wanted = newton_schulz(matrices)
    with torch.autocast(place, dtype=dtype):
        found = newton_schulz(matrices)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.bfloat16
        assert torch.equal(one, other)


def transformed(call: Any) -> Any:
    return lambda: call(lambda x: newton_schulz([x])[0].float().sum())


def named(*shape: int) -> list[tuple[str, Any]]:
    return [("first", torch.nn.Parameter(torch.ones(2, 2))), ("odd", torch.ones(shape))]


REFUSED = [
    (lambda: Muon([torch.ones(3)]), ShapeError, r"params\[0\].shape=\(3,\): accepted are matrices"),
    (lambda: Muon(named(2, 3, 1, 1)), ShapeError, r"odd.shape=.*flatten\(1\)"),
    (lambda: Muon([torch.ones(3, 3, dtype=torch.complex64)]), DtypeError, r"params\[0\].dtype"),
    (lambda: newton_schulz([torch.ones(2, 2), torch.ones(3)]), ShapeError, r"matrices\[1\].shape"),
    (lambda: newton_schulz([torch.ones(2, 2, dtype=torch.int32)]), DtypeError, "int32"),
    (lambda: newton_schulz([3]), OperandError, r"matrices\[0\]=int"),
    (lambda: newton_schulz(None), OperandError, "matrices=None"),
    (transformed(lambda f: torch.func.vmap(f)(torch.ones(2, 3, 3))), OperandError, "torch.func"),
    (transformed(lambda f: torch.func.grad(f)(torch.eye(3))), OperandError, "torch.func"),
    (
        transformed(lambda f: torch.func.jvp(f, (torch.eye(3),), (torch.eye(3),))),
        OperandError,
        "forward-mode AD",
    ),
    (lambda: newton_schulz([torch.eye(3).to_sparse()]), OperandError, "layout"),
    (lambda: newton_schulz([torch.eye(3, device="meta")]), OperandError, "meta"),
    (lambda: newton_schulz([torch.eye(3)], ns_steps=100), ArgumentError, "ns_steps=100"),
    (lambda: newton_schulz([torch.eye(3)], ns_steps=True), ArgumentError, "ns_steps=True"),
    (lambda: newton_schulz([torch.eye(3)], ns_coefficients="123"), ArgumentError, "three numbers"),
    (lambda: newton_schulz([torch.eye(3)], ns_coefficients=(1, 2)), ArgumentError, "three numbers"),
    (lambda: newton_schulz([torch.eye(3)], eps=-1.0), ArgumentError, "eps=-1.0"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_is_refused_is_named(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_nothing_is_written_where_a_gradient_is_refused() -> None:
    first, second = drawn([(3, 3), (3, 3)], "cpu")
    optimizer = Muon([first, second])
    first.grad = torch.ones(3, 3)
    second.grad = torch.eye(3).to_sparse()
    before = first.detach().clone()
    with pytest.raises(OperandError, match=r"grad\.layout"):
        optimizer.step()
    assert torch.equal(first.detach(), before)
