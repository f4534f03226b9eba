"""Whole layers of experts on a GPU, forward and with gradients, beside what a user would pick.

    python -m bench.moe --name h200              bench/results/moe-h200.json
    python -m bench.moe --name h200 --profile    and what each kernel of ours took

tilewright      tilewright.moe
_grouped_mm     torch: sort, gather, _grouped_mm, SwiGLU, _grouped_mm, weights, index_add
liger           LigerFusedMoEFunction of liger-kernel, where it is installed
loop            torch, an expert at a time, which waits for the sizes

Milliseconds are device events' around one call, medians of interleaved rounds, each after a rest.
Routes are drawn uniformly; forward keeps what backward needs. `gather` are the products with rows
by index: at random, of ordered rows by an index that is in order, and by the kernels without one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.environment import RESULTS, environment
from bench.peers import moe_layers
from tilewright import moe
from tilewright.backends.cuda.moe.routes import route
from tilewright.backends.cuda.ragged import engine
from tilewright.backends.cuda.ragged.work import LEFT, RIGHT
from tilewright.facts.gates import GATES
from tilewright.inputs.devices import resolve

ROUNDS, BLOCK, REST = 7, 6, 0.03
LEAD = 3_000_000  # cycles: what the host needs to enqueue forward and backward
OURS = "tilewright"
Way = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Sizes; `must` and `aim`, milliseconds forward, and forward and backward."""

    name: str
    tokens: int
    d: int
    n: int
    experts: int
    top: int
    must: tuple[float | None, float | None]
    aim: tuple[float | None, float | None]
    without: str = ""  # peers that are left out: liger's tuner takes a minute a shape

    @property
    def flops(self) -> float:
        """Of the forward products."""
        return 6.0 * self.tokens * self.top * self.d * self.n


CASES = (
    Case("SonicMoE: d 1536, n 256, 8 of 128", 24576, 1536, 256, 128, 8, (1.35, 3.9), (1.05, 3.1)),
    Case(
        "Qwen3-30B-A3B: d 2048, n 768, 8 of 128",
        32768,
        2048,
        768,
        128,
        8,
        (5.0, None),
        (4.4, None),
        "liger",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--without", default="", help="peers that are left out")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    document: dict[str, Any] = {"environment": environment(resolve("cuda:0"))}
    with suppress(PackageNotFoundError):
        document["environment"]["versions"]["liger-kernel"] = version("liger-kernel")
    document["cases"] = [_measured(case, options.profile, options.without) for case in CASES]
    path = options.output / f"moe-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


@dataclass(frozen=True)
class Layers:
    """A case's ways that ran, forward and with gradients; `record` says what was seen of them."""

    given: moe_layers.Given
    forward: dict[str, Way]
    both: dict[str, Way]
    record: dict[str, Any]


def layers(case: Case, without: str = "") -> Layers:
    """Every way that takes a case, run once and compared with float64; `without` some peers."""
    import torch

    torch.manual_seed(0)
    given = moe_layers.drawn(case.tokens, case.d, case.n, case.experts, case.top)
    record: dict[str, Any] = {
        "case": case.name,
        "tokens": case.tokens,
        "gflop": case.flops / 1e9,
        "must_ms": case.must,
        "aim_ms": case.aim,
        "ways": {},
        "refused": {},
    }
    found = Layers(given, {}, {}, record)
    truth = moe_layers.some_rows(given).detach()
    for name, layer in {OURS: _ours, **moe_layers.LAYERS}.items():
        if name in without or name in case.without:
            continue
        try:
            out = layer(given).detach()
            row = {"error": moe_layers.apart(out[:64], truth), "kept_bytes": _kept(layer, given)}
            step = partial(_step, layer, given)
            step()
            if name != "liger":  # it has the turned weights
                row["gradient_error"] = moe_layers.gradients_apart(given)
        except (ImportError, RuntimeError) as error:
            record["refused"][name] = str(error).splitlines()[0]
            continue
        found.forward[name], found.both[name] = partial(layer, given), step
        record["ways"][name] = row
        print(f"{name}: {row}", flush=True)
    return found


def _measured(case: Case, profile: bool, without: str) -> dict[str, Any]:
    found = layers(case, without)
    record = found.record
    if profile:
        _profile(found.both[OURS])
    for kind, ways in (("forward_ms", found.forward), ("step_ms", found.both)):
        for name, ms in _times(ways).items():
            record["ways"][name][kind] = ms
    record["gather"] = _gather(case, found.given)
    _show(record)
    return record


def _ours(given: moe_layers.Given) -> Any:
    return moe(given.x, given.w_up, given.w_down, given.experts, given.weights)


def _step(layer: Any, given: moe_layers.Given) -> None:
    for leaf in given.leaves:
        leaf.grad = None
    layer(given).backward(given.pull)


def _kept(layer: Any, given: moe_layers.Given) -> int:
    """Bytes that a forward pass leaves for the backward one, its result not counted."""
    import torch

    before = torch.cuda.memory_allocated()
    out = layer(given)
    return int(torch.cuda.memory_allocated() - before - out.numel() * out.element_size())


def _gather(case: Case, given: moe_layers.Given) -> dict[str, float]:
    """Milliseconds of products with rows by index, and in order."""
    import torch

    routes = route(given.experts, case.experts)
    offsets, index = routes.offsets, routes.tokens
    x, pull = given.x.detach(), given.pull
    ordered, pulled = x[index.long()], pull[index.long()]
    rows = len(index)
    h, a = x.new_empty((rows, 2 * case.n)), x.new_empty((rows, case.n)).normal_()
    up, down = given.w_up.detach(), given.w_down.detach()
    of_up, of_down = torch.empty_like(up), torch.empty_like(down)
    same = torch.arange(rows, dtype=torch.int32, device="cuda")
    swiglu = GATES["swiglu"]

    def first(source: Any, by: Any) -> None:
        engine.rows(source, up, offsets, None, a, "ieee", False, index=by, h=h, gate=swiglu)

    def pulling(source: Any, by: Any) -> None:
        turned = down.transpose(1, 2)
        engine.rows(source, turned, offsets, None, a, "ieee", False, index=by)

    def depths(left: Any, right: Any, out: Any, by: Any, chosen: int = 0) -> None:
        engine.depths(left.t(), right, offsets, out, "ieee", index=by, chosen=chosen)

    ways: dict[str, Way] = {
        "first product, at random": lambda: first(x, index),
        "first product, in order": lambda: first(ordered, same),
        "first product, no index, no gate": lambda: engine.rows(
            ordered, up, offsets, None, h, "ieee", False
        ),
        "d a, at random": lambda: pulling(pull, index),
        "d a, in order": lambda: pulling(pulled, same),
        "d a, no index": lambda: pulling(pulled, None),
        "d w_up, at random": lambda: depths(x, h, of_up, index, LEFT),
        "d w_up, in order": lambda: depths(ordered, h, of_up, same, LEFT),
        "d w_up, no index": lambda: depths(ordered, h, of_up, None),
        "d w_down, at random": lambda: depths(a, pull, of_down, index, RIGHT),
        "d w_down, in order": lambda: depths(a, pulled, of_down, same, RIGHT),
        "d w_down, no index": lambda: depths(a, pulled, of_down, None),
    }
    return _times(ways)


def _times(ways: Mapping[str, Way]) -> dict[str, float]:
    """Median milliseconds of every way, rounds interleaved, nothing waiting in between."""
    import torch

    spans: dict[str, list[Any]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(ROUNDS):
        for name, way in ways.items():
            time.sleep(REST)
            spans[name] += [_span(way) for _ in range(BLOCK if name != "loop" else 1)]
            torch.cuda.synchronize()
    return {
        name: statistics.median(start.elapsed_time(end) for start, end in pairs)
        for name, pairs in spans.items()
    }


def _span(way: Way) -> tuple[Any, Any]:
    """Events around one call, behind work that keeps the device busy until all is enqueued."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(LEAD)
    start.record()
    way()
    end.record()
    return start, end


def _profile(way: Way) -> None:
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(5):
            way()
        torch.cuda.synchronize()
    for one in sorted(found.key_averages(), key=lambda one: -one.device_time_total)[:24]:
        print(f"    {one.device_time_total / 5e3:8.4f} ms {one.count / 5:5.1f} x  {one.key[:90]}")


def _show(record: dict[str, Any]) -> None:
    print(f"{record['case']}: must {record['must_ms']} aim {record['aim_ms']}", flush=True)
    for name, row in record["ways"].items():
        print(
            f"    {name:12s} forward {row['forward_ms']:8.3f} ms   step {row['step_ms']:8.3f} ms"
            f"   kept {row['kept_bytes'] / 1e6:8.1f} MB   error {row['error']:.1e}",
            flush=True,
        )
    for name, ms in record["gather"].items():
        print(f"    {name:34s} {ms:8.4f} ms", flush=True)
    for name, why in record["refused"].items():
        print(f"    {name:12s} -: {why[:110]}", flush=True)


if __name__ == "__main__":
    main()
