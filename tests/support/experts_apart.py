"""What processes of a group do with layers of experts, for tests/distributed/test_experts.py.

Each case is a function of a group, run on every rank of it. What one process would have computed,
the whole layer on the tokens of all ranks, every rank computes for itself.
"""

from __future__ import annotations

import copy
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import tilewright as tw
from tilewright.distributed import ExpertParallel
from tilewright.errors import ArgumentError, DeviceError, DtypeError, OperandError, ShapeError
from tilewright.pytorch import GroupedLinear, MoE

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}
TOKENS = (11, 0, 6, 1)  # of each rank
Case = Callable[[Any], None]


def near(found: Any, wanted: Any) -> None:
    """Apart by no more than rounding, of the largest number."""
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    if wanted.numel():
        error = (found - wanted).detach().abs().max() / wanted.abs().max().clamp(min=1e-30)
        assert float(error) <= TOLERANCE[wanted.dtype], float(error)


def drawn(layer: Any, seed: int = 3) -> Any:
    """The layer with weights that are the same on every rank."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in layer.parameters():
            values = torch.randn(one.shape, generator=draw, dtype=torch.float64)
            one.copy_(values / one.shape[-2] ** 0.5)
    return layer


def mine(values: Any, group: Any) -> Any:
    """This rank's part of the rows of all ranks."""
    parts = values.split(TOKENS[: dist.get_world_size(group)])
    return parts[dist.get_rank(group)].clone()


def rows(group: Any, columns: int, dtype: Any, seed: int = 5) -> Any:
    """The rows of all ranks."""
    draw = torch.Generator().manual_seed(seed)
    count = sum(TOKENS[: dist.get_world_size(group)])
    return torch.randn((count, columns), generator=draw, dtype=torch.float64).to(dtype)


def compare(whole: Any, group: Any, given: tuple[Any, ...], more: Any = (), **how: Any) -> None:
    """Result and all gradients of a layer that is spread, beside those of one process.

    `given` are the rows of all ranks: tokens, and what else a call takes a row a token. `more` are
    both calls' further arguments: of one process, of this rank.
    """
    apart = ExpertParallel(whole, group, **how)
    whole.zero_grad()
    of_all, of_mine = more or ((), ())
    leaves = [one.detach().clone().requires_grad_(one.is_floating_point()) for one in given]
    wanted = whole(*leaves, *of_all)
    pull = rows(group, wanted.shape[1], wanted.dtype, 7)
    wanted.backward(pull)
    here = [mine(one, group).requires_grad_(one.is_floating_point()) for one in given]
    found = apart(*here, *of_mine)
    found.backward(mine(pull, group))
    near(found, mine(wanted, group))
    for own, one in zip(here, leaves, strict=True):
        if one.is_floating_point():
            near(own.grad, mine(one.grad, group))
    for (name, own), one in zip(apart.layer.named_parameters(), whole.parameters(), strict=True):
        if name.startswith("router"):  # copied, not spread: added up over ranks by who trains it
            if own.grad is None:  # routes and weights were given
                assert one.grad is None
                continue
            dist.all_reduce(own.grad, group=group)
            near(own.grad, one.grad)
        else:
            near(own.grad, one.grad[apart.owned])


def layers_of_experts(group: Any) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for activation, top in (("swiglu", 2), ("relu2", 3)):
            whole = drawn(MoE(6, 9, 5, top=top, activation=activation, dtype=dtype))
            if dtype == torch.bfloat16:  # routes must not hang on a rounding
                routed = routes(group, 6, top)
                weights = rows(group, top, torch.float32).abs()
                compare(whole, group, (rows(group, 9, dtype), routed, weights))
            else:
                compare(whole, group, (rows(group, 9, dtype),))


def routes(group: Any, experts: int, top: int) -> Any:
    draw = torch.Generator().manual_seed(11)
    count = sum(TOKENS[: dist.get_world_size(group)])
    return torch.rand((count, experts), generator=draw).topk(top).indices


def experts_and_weights_that_are_given(group: Any) -> None:
    whole = drawn(MoE(5, 8, 4, top=2, dtype=torch.float64))
    chosen = routes(group, 5, 3).int()
    chosen[::2, 1] = -1
    chosen[1] = -1  # a token that nobody takes
    chosen[3] = 4  # three times the same
    for weights in (rows(group, 3, torch.float64), rows(group, 3, torch.float32)):
        compare(whole, group, (rows(group, 8, torch.float64), chosen, weights))


def any_placement(group: Any) -> None:
    count = dist.get_world_size(group)
    whole = drawn(MoE(7, 8, 4, top=3, dtype=torch.float64))
    given = (rows(group, 8, torch.float64),)
    compare(whole, group, given, placement=[count - 1, 0, 0, count - 1, 0, 0, 0])
    compare(whole, group, given, placement=[count - 1] * 7)
    few = drawn(MoE(1, 8, 4, top=1, dtype=torch.float64))  # fewer experts than ranks
    compare(few, group, given)
    loads = torch.bincount(routes(group, 7, 3).reshape(-1), minlength=7).numpy() * 50
    compare(whole, group, given, placement=tw.split(loads, [8] * 7, [4] * 7, count, overhead=0))


def grouped_layers(group: Any) -> None:
    for dtype in (torch.float64, torch.bfloat16):
        for bias in (True, False):
            whole = drawn(GroupedLinear(5, 7, 6, bias=bias, dtype=dtype))
            x = rows(group, 7, dtype)
            parts = x.split(TOKENS[: dist.get_world_size(group)])
            ends = [torch.tensor([0, len(p) // 3, len(p) // 3, len(p) // 2, len(p)]) for p in parts]
            ends[0][-1] -= 1  # a row that no group has
            number = torch.cat(
                [
                    torch.searchsorted(end, torch.arange(len(part)), right=True)
                    for end, part in zip(ends, parts, strict=True)
                ]
            )
            order = torch.argsort(number, stable=True)
            together = torch.bincount(number, minlength=6)[:5].cumsum(0)

            own = ends[dist.get_rank(group)].int()
            for given in (own, torch.nn.functional.pad(own, (1, 0))):
                check_linear(whole, (order, together), group, x, given)


def check_linear(whole: Any, sorted_: tuple[Any, Any], group: Any, x: Any, ends: Any) -> None:
    order, together = sorted_
    apart = ExpertParallel(whole, group)
    whole.zero_grad()
    leaf, own = x.clone().requires_grad_(), mine(x, group).requires_grad_()
    wanted = whole(leaf[order], together)[torch.argsort(order)]
    pull = rows(group, wanted.shape[1], wanted.dtype, 7)
    wanted.backward(pull)
    found = apart(own, ends)
    found.backward(mine(pull, group))
    near(found, mine(wanted, group))
    near(own.grad, mine(leaf.grad, group))
    pairs = zip(apart.layer.parameters(), whole.parameters(), strict=True)
    for here, there in pairs:
        near(here.grad, there.grad[apart.owned])


def autocast_and_no_gradients(group: Any) -> None:
    whole = drawn(MoE(4, 16, 8, top=2))
    x, chosen = rows(group, 16, torch.float32), routes(group, 4, 2)
    weights = rows(group, 2, torch.float32).abs()
    apart = ExpertParallel(whole, group)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        wanted = whole(x, chosen, weights)
        found = apart(mine(x, group), mine(chosen, group), mine(weights, group))
    near(found, mine(wanted, group))
    assert not found.requires_grad
    deep = apart(mine(x, group)[None])  # [1, T, columns]
    near(deep, mine(whole(x), group)[None])


def only_the_input_or_only_the_experts_learn(group: Any) -> None:
    whole = drawn(MoE(4, 8, 4, top=2, dtype=torch.float64))
    whole.requires_grad_(False)
    apart, x = ExpertParallel(whole, group), rows(group, 8, torch.float64)
    leaf, own = x.clone().requires_grad_(), mine(x, group).requires_grad_()
    whole(leaf).sum().backward()
    apart(own).sum().backward()
    near(own.grad, mine(leaf.grad, group))
    whole.w_up.requires_grad_(True)
    apart = ExpertParallel(whole, group)
    whole(x).sum().backward()
    apart(mine(x, group)).sum().backward()
    near(apart.layer.w_up.grad, whole.w_up.grad[apart.owned])
    assert apart.layer.w_down.grad is None


def training_goes_as_in_one_process(group: Any) -> None:
    whole = drawn(MoE(6, 8, 4, top=2, dtype=torch.float64))
    apart = ExpertParallel(whole, group)
    x, aim = rows(group, 8, torch.float64), rows(group, 8, torch.float64, 13)
    one = torch.optim.AdamW(whole.parameters(), lr=0.01)
    many = torch.optim.AdamW(apart.parameters(), lr=0.01)
    for _ in range(3):
        one.zero_grad()
        (whole(x) - aim).square().sum().backward()
        one.step()
        many.zero_grad()
        (apart(mine(x, group)) - mine(aim, group)).square().sum().backward()
        dist.all_reduce(apart.layer.router.weight.grad, group=group)
        many.step()
    for name, value in apart.whole_state_dict().items():
        near(value, whole.state_dict()[name])


def data_parallel_leaves_experts_alone(group: Any) -> None:
    torch.manual_seed(1)
    first = torch.nn.Linear(8, 8, dtype=torch.float64)
    whole = drawn(MoE(4, 8, 4, top=2, dtype=torch.float64))
    apart = ExpertParallel(whole, group)
    model = torch.nn.Sequential(first, apart)
    own = [f"1.{name}" for name in apart.own_names]
    kind = torch.nn.parallel.DistributedDataParallel
    kind._set_params_and_buffers_to_ignore_for_model(model, own)
    copies = kind(model, process_group=group)
    x, pull = rows(group, 8, torch.float64), rows(group, 8, torch.float64, 7)
    one = torch.nn.Sequential(copy.deepcopy(first), whole)
    (one(x) * pull).sum().backward()
    (copies(mine(x, group)) * mine(pull, group)).sum().backward()
    count = dist.get_world_size(group)  # DDP's are means over ranks
    near(first.weight.grad * count, one[0].weight.grad)
    near(apart.layer.router.weight.grad * count, whole.router.weight.grad)
    near(apart.layer.w_up.grad, whole.w_up.grad[apart.owned])


def states(group: Any) -> None:
    rank, count = dist.get_rank(group), dist.get_world_size(group)
    whole = drawn(MoE(6, 8, 4, top=2))
    apart = ExpertParallel(whole, group)
    state = apart.state_dict()
    assert state["owned"].tolist() == [e for e in range(6) if e * count // 6 == rank]
    assert torch.equal(state["layer.w_up"], whole.w_up[state["owned"]])
    other = ExpertParallel(drawn(MoE(6, 8, 4, top=2), 9), group)
    other.load_state_dict(state)
    for name, value in other.whole_state_dict().items():
        assert torch.equal(value, whole.state_dict()[name])
    turned = ExpertParallel(drawn(MoE(6, 8, 4, top=2), 9), group, placement=[count - 1, 0] * 3)
    before = turned.layer.w_up.clone()
    with pytest.raises(ArgumentError, match=r"state_dict: owned=.* of this rank"):
        turned.load_state_dict(state)
    assert torch.equal(turned.layer.w_up, before)
    turned.load_whole(apart.whole_state_dict())
    x = rows(group, 8, torch.float32)
    near(turned(mine(x, group)), mine(whole(x), group))
    with pytest.raises(ShapeError, match=r"state\['w_up'\].shape=.* must have 6 experts"):
        turned.load_whole(dict(apart.layer.state_dict(), w_up=torch.zeros(5, 8, 8)))
    for given, words in (
        (None, r"state=None: accepted is what whole_state_dict\(\) gives"),
        (dict(apart.layer.state_dict(), w_up=3), r"state\['w_up'\]=3: accepted are tensors"),
    ):
        with pytest.raises(OperandError, match=words):
            turned.load_whole(given)


def what_one_rank_is_refused_ends_the_call_on_all(group: Any) -> None:
    rank = dist.get_rank(group)
    apart = ExpertParallel(drawn(MoE(4, 8, 4, top=2)), group)
    x = mine(rows(group, 8, torch.float32), group)
    with pytest.raises(
        ShapeError if rank == 1 else DeviceError,
        match=r"x.shape=\(2, 9\)" if rank == 1 else "rank 1 failed before rows were sent",
    ):
        apart(torch.zeros(2, 9) if rank == 1 else x)
    chosen = torch.zeros((len(x), 2), dtype=torch.int64)
    weights = torch.ones((len(x), 2))
    if rank == 0:
        chosen[-1, 1] = 4
    with pytest.raises(
        ArgumentError if rank == 0 else DeviceError,
        match="experts: has 4; accepted are experts from 0 to 3" if rank == 0 else "rank 0 failed",
    ):
        apart(x, chosen, weights)
    top = 1 if rank == 1 else 2
    with pytest.raises(ArgumentError, match=r"experts a token [12] on rank . and [12] on rank ."):
        apart(x, torch.zeros((len(x), top), dtype=torch.int64), torch.ones((len(x), top)))
    with pytest.raises(ArgumentError, match="whether gradients of tokens follow"):
        apart(
            x.clone().requires_grad_(rank == 0),
            torch.zeros((len(x), 1), dtype=torch.int64),
            torch.ones((len(x), 1)),
        )
    with pytest.raises(DtypeError if rank == 1 else DeviceError):
        apart(x.double() if rank == 1 else x)
    other = ExpertParallel(drawn(MoE(5, 8, 4, top=2)), group) if rank == 1 else apart
    with pytest.raises(ArgumentError, match=r"placement .* on rank"):
        other(x)
    linear = ExpertParallel(drawn(GroupedLinear(3, 8, 4)), group)
    ends = torch.tensor([0, 0, len(x) + 1] if rank == 0 else [0, 0, len(x)])
    with pytest.raises(ShapeError if rank == 0 else DeviceError):
        linear(x, ends)
    apart(x).sum().backward()  # and the group goes on


def a_rank_that_dies_ends_the_others(group: Any) -> None:
    rank, count = dist.get_rank(group), dist.get_world_size(group)
    apart = ExpertParallel(drawn(MoE(4, 8, 4, top=2)), group)
    x = rows(group, 8, torch.float32)
    if rank == count - 1:
        sys.stdout.flush()
        os._exit(0)

    def step() -> None:
        apart(x).sum().backward()

    with pytest.raises(RuntimeError):
        step()


CASES: tuple[Case, ...] = (
    layers_of_experts,
    experts_and_weights_that_are_given,
    any_placement,
    grouped_layers,
    autocast_and_no_gradients,
    only_the_input_or_only_the_experts_learn,
    training_goes_as_in_one_process,
    data_parallel_leaves_experts_alone,
    states,
    what_one_rank_is_refused_ends_the_call_on_all,
)
LAST = a_rank_that_dies_ends_the_others
RANKS = (2, 4)


def run(rank: int, folder: Path) -> None:
    """All cases as one rank, told in a file of its own."""
    file = os.open(folder / f"{rank}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    options = {"rank": rank, "world_size": max(RANKS), "timeout": timedelta(minutes=10)}
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", **options)
    groups = [dist.new_group(list(range(count))) for count in RANKS]
    for count, group in zip(RANKS, groups, strict=True):
        cases = [*CASES, LAST] if count == max(RANKS) else CASES
        for case in cases if rank < count else ():
            try:
                case(group)
                print(f"right: {case.__name__} {count}", flush=True)
            except Exception:
                print(f"wrong: {case.__name__} {count}\n{traceback.format_exc()}", flush=True)
                return  # the others are told by their connections


def main() -> None:
    """Forks, as four processes that import torch take as long as all cases."""
    torch.set_num_threads(1)
    folder, children = Path(sys.argv[1]), []
    for rank in range(max(RANKS)):
        if not (child := os.fork()):
            try:
                run(rank, folder)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
