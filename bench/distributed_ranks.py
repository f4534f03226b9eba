"""What each process of a group measures: links, layers of experts together and alone, products.

All start a way together; a time is the host's, until everything of it has ended, of the slowest.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.peers import experts_apart

LINK = tuple(1 << power for power in (10, 14, 17, 20, 22, 24, 26))  # bytes that a rank sends
Way = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A layer, and how many tokens each rank has."""

    tokens: int
    d: int
    n: int
    experts: int
    top: int


@dataclass(frozen=True)
class Plan:
    """What is measured where."""

    device: str  # "cuda" or "cpu"
    dtype: str
    cases: tuple[Case, ...]
    products: tuple[tuple[int, int], ...]  # experts and rows of one device
    rounds: int
    threads: int  # of a process alone on a processor


def run(rank: int, count: int, plan: Plan, folder: str) -> None:
    """One process; rank 0 writes what was found."""
    import torch
    import torch.distributed as dist

    if plan.device == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        "nccl" if plan.device == "cuda" else "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=120),
    )
    torch.manual_seed(rank)
    found: dict[str, Any] = {"ranks": count, "link": _links(plan, count)}
    _write(found, rank, folder)
    found["layers"] = []
    for case in plan.cases:
        found["layers"].append(_layers(plan, case, rank, count))
        _write(found, rank, folder)
    found["products"] = [_product(plan, *one, rank) for one in plan.products]
    _write(found, rank, folder)
    dist.barrier()
    dist.destroy_process_group()


def _write(found: dict[str, Any], rank: int, folder: str) -> None:
    if rank == 0:
        temporary = Path(folder) / "part.json"
        temporary.write_text(json.dumps(found))
        os.replace(temporary, Path(folder) / "found.json")


def _links(plan: Plan, count: int) -> list[dict[str, float]]:
    """Seconds of an exchange in which each rank sends so many bytes, an equal part to each."""
    import torch
    import torch.distributed as dist

    rows = []
    for size in LINK:
        given = torch.zeros(size // count, count, dtype=torch.uint8, device=plan.device).flatten()
        taken = torch.empty_like(given)

        def exchange(taken: Any = taken, given: Any = given) -> object:
            return dist.all_to_all_single(taken, given)

        seconds = _together(plan, {"link": exchange})["link"]
        rows.append({"bytes": size, "seconds": seconds})
    return rows


def _layers(plan: Plan, case: Case, rank: int, count: int) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    from tilewright.distributed import ExpertParallel
    from tilewright.pytorch import MoE

    torch.manual_seed(7)
    dtype = getattr(torch, plan.dtype)
    where = {"device": plan.device, "dtype": dtype}
    whole = MoE(case.experts, case.d, case.n, top=case.top, **where)
    layer = ExpertParallel(whole)
    every = case.tokens * count
    tokens = torch.randn(every, case.d, **where)
    chosen, weights = (one.detach() for one in whole.route(tokens))
    mine = slice(rank * case.tokens, (rank + 1) * case.tokens)
    x, experts, weight = tokens[mine].clone(), chosen[mine], weights[mine]
    pull = torch.randn(case.tokens, case.d, **where)
    own = [one.detach().requires_grad_() for one in (layer.layer.w_up, layer.layer.w_down)]

    def ours(x: Any) -> Any:
        return layer(x, experts, weight)

    def plain(x: Any) -> Any:
        group = dist.group.WORLD
        return experts_apart.layer(x, own[0], own[1], experts, weight, case.experts, group)

    def alone(x: Any) -> Any:
        return whole(x, experts, weight)

    with torch.no_grad():
        wanted = alone(x).double()
        apart = {
            name: float((made(x).double() - wanted).norm() / wanted.norm())
            for name, made in (("tilewright", ours), ("plain", plain))
        }
    apart["gradients"] = _gradients_apart(whole, layer, tokens, (chosen, weights), mine)
    ways: dict[str, Way] = {}
    leaf = x.clone().requires_grad_()
    for name, made in (("tilewright", ours), ("plain", plain), ("alone", alone)):
        ways[f"{name} forward"] = _forward(made, x)
        ways[f"{name} step"] = _step(made, leaf, pull)
    rows = {"case": asdict(case), "apart": apart, "seconds": _together(plan, ways)}
    # All tokens of all ranks on one: what a user has without this.
    rows["seconds"] |= _by_one(plan, whole, tokens, (chosen, weights), rank)
    rows["rows"] = _rows(chosen[mine], case, count)
    return rows


def _gradients_apart(whole: Any, layer: Any, tokens: Any, routes: Any, mine: slice) -> float:
    """The largest of four: of tokens, of weights, of both matrices, beside those of one device."""
    chosen, weights = routes
    leaves = [one.clone().requires_grad_() for one in (tokens, weights)]
    whole(leaves[0], chosen, leaves[1]).backward(tokens)
    own = [one[mine].clone().requires_grad_() for one in (tokens, weights)]
    layer(own[0], chosen[mine], own[1]).backward(tokens[mine])
    pairs = [(here.grad, one.grad[mine]) for here, one in zip(own, leaves, strict=True)]
    for name in ("w_up", "w_down"):
        pairs.append((getattr(layer.layer, name).grad, getattr(whole, name).grad[layer.owned]))
    whole.zero_grad()
    layer.zero_grad()
    return max(float((a.double() - b).norm() / b.double().norm()) for a, b in pairs)


def _rows(chosen: Any, case: Case, count: int) -> dict[str, int]:
    """Rows that a rank sends: a token once a rank, and once a slot."""
    owners = chosen * count // case.experts
    sent = sum(int((owners == rank).any(1).sum()) for rank in range(count))
    return {"once a rank": sent, "once a slot": int(owners.numel())}


def _by_one(plan: Plan, whole: Any, tokens: Any, routes: Any, rank: int) -> dict[str, float]:
    import torch
    import torch.distributed as dist

    found = torch.zeros(2, dtype=torch.float64, device=plan.device)
    if rank == 0:
        if plan.device == "cpu":
            torch.set_num_threads(plan.threads)
        leaf = tokens.clone().requires_grad_()

        def made(x: Any) -> Any:
            return whole(x, *routes)

        for at, way in enumerate((_forward(made, tokens), _step(made, leaf, tokens))):
            found[at] = _median(plan, way)
        if plan.device == "cpu":
            torch.set_num_threads(1)
    dist.barrier()
    return dict(zip(("one device forward", "one device step"), found.tolist(), strict=True))


def _forward(made: Callable[[Any], Any], x: Any) -> Way:
    import torch

    def way() -> None:
        with torch.no_grad():
            made(x)

    return way


def _step(made: Callable[[Any], Any], leaf: Any, pull: Any) -> Way:
    def way() -> None:
        leaf.grad = None
        made(leaf).backward(pull)

    return way


def _product(plan: Plan, experts: int, rows: int, rank: int) -> dict[str, Any]:
    """Seconds of a layer on one device: so many experts here, so many rows, one expert each."""
    import torch

    from tilewright import moe

    case, dtype = plan.cases[-1], getattr(torch, plan.dtype)
    where = {"device": plan.device, "dtype": dtype}
    up = torch.randn(experts, case.d, 2 * case.n, **where)
    down = torch.randn(experts, case.n, case.d, **where)
    x = torch.randn(rows, case.d, **where)
    chosen = torch.randint(0, experts, (rows, 1), device=plan.device)
    weight = torch.ones((rows, 1), device=plan.device)

    def made(x: Any) -> Any:
        return moe(x, up, down, chosen, weight)

    seconds = _together(plan, {"forward": _forward(made, x)})["forward"]
    return {"experts": experts, "rows": rows, "seconds": seconds}


def _together(plan: Plan, ways: dict[str, Way]) -> dict[str, float]:
    """Medians of interleaved rounds, those of the slowest rank."""
    import torch
    import torch.distributed as dist

    spans: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        _span(plan, way)
    for _ in range(plan.rounds):
        for name, way in ways.items():
            dist.barrier()
            spans[name].append(_span(plan, way))
    found = torch.tensor(
        [statistics.median(one) for one in spans.values()], dtype=torch.float64, device=plan.device
    )
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return dict(zip(ways, found.tolist(), strict=True))


def _median(plan: Plan, way: Way) -> float:
    spans: Sequence[float] = [_span(plan, way) for _ in range(plan.rounds + 1)][1:]
    return statistics.median(spans)


def _span(plan: Plan, way: Way) -> float:
    import torch

    if plan.device == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    way()
    if plan.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun
