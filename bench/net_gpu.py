"""Whole networks on a GPU beside what a user would pick instead, and first of all right.

    python -m bench.net_gpu --name h200
    python -m bench.net_gpu --name h200 --only "ResNet-18 float16" --no-compile

Peers are the same module with its batch norms folded, channels last, as a CUDA graph of cuDNN's
convolutions (its algorithms tried, without tf32), and torch.compile with CUDA graphs (max-autotune
with --autotune). All take a tensor and give a new one. Milliseconds are device events' around one
call behind a spinning kernel, medians of interleaved rounds; `host_us` is what a call keeps the
host busy, while the device is behind. `first_bind` compiles what no cache has, `bind` is the next
in the same process. The error is the largest difference from the module in float64, over its
largest value. Writes bench/results/net-NAME.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.conv_gpu import OURS, _times
from bench.environment import RESULTS, environment
from tilewright.backends.cuda.machine import driver

HD = (1, 1, 1080, 1920)
PICTURE = (1, 3, 224, 224)
CALLS = 30


@dataclass(frozen=True)
class Case:
    """A network, the shape of its input, and the type that its values have."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def title(self) -> str:
        """As --only and the tables say it."""
        return f"{self.name} {self.dtype}"


CASES = (
    *(Case(name, PICTURE, kind) for name in ("ResNet-18", "MobileNetV2") for kind in
      ("float16", "float32")),
    *(Case(name, HD, "float32") for name in ("S", "M", "L")),
)  # fmt: skip
Way = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--only", default="", help="cases whose title holds this")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--autotune", action="store_true", help="torch.compile max-autotune")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.output / f"net-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = {}
    if options.only and path.exists():
        cases = {case["case"]: case for case in json.loads(path.read_text())["cases"]}
    mode = "max-autotune" if options.autotune else "reduce-overhead"
    for case in CASES:
        if options.only in case.title:
            cases[case.title] = measured(case, None if options.no_compile else mode)
            ordered = [cases[one.title] for one in CASES if one.title in cases]
            document = {"environment": environment(driver.found()[0]), "cases": ordered}
            path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def measured(case: Case, mode: str | None) -> dict[str, Any]:
    """One case: right, then timed beside its peers."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    from bench import net_models

    torch.manual_seed(1)
    make = net_models.MAKERS.get(case.name, lambda: net_models.upscaler(case.name))
    module = _folded(net_models.drawn(make()), fuse_conv_bn_eval)
    network = net_models.network(module, case.shape)
    begun = time.perf_counter()
    bound = network.bind(case.shape, "cuda", case.dtype)
    torch.cuda.synchronize()
    first, begun = time.perf_counter() - begun, time.perf_counter()
    network.bind(case.shape, "cuda", case.dtype)
    torch.cuda.synchronize()
    again = time.perf_counter() - begun
    x = torch.rand(case.shape, device="cuda").mul_(2).sub_(1).to(getattr(torch, case.dtype))
    exact = deepcopy(module).cuda().double()(x.double())
    module = module.cuda().to(x.dtype).to(memory_format=torch.channels_last)
    ways: dict[str, Way] = {OURS: lambda: bound(x), "cudnn graph": _graph(module, x)}
    if mode is not None:
        ways[f"torch.compile {mode}"] = _compiled(module, x, mode)
    record = {
        "case": case.title,
        "shape": case.shape,
        "engines": sorted({step.engine for step in bound.steps}),
        "steps": len(bound.steps),
        "first_bind": first,
        "bind": again,
        "errors": {name: _error(way(), exact) for name, way in ways.items()},
        "repeats": bool(torch.equal(bound(x), bound(x))),
        "ms": _times(ways),
        "host_us": {name: _host(way) for name, way in ways.items()},
    }
    print(json.dumps(record), flush=True)
    return record


def _folded(module: Any, fold: Callable[[Any, Any], Any]) -> Any:
    """Batch norms into the convolutions before them, as who cares for speed does."""
    from torch import nn

    for name, child in list(module.named_children()):
        setattr(module, name, _folded(child, fold))
    if not isinstance(module, nn.Sequential):
        return module
    made: list[Any] = []
    for one in module:
        if isinstance(one, nn.BatchNorm2d):
            made[-1] = fold(made[-1], one)
        else:
            made.append(one)
    return nn.Sequential(*made)


def _graph(module: Any, x: Any) -> Way:
    import torch

    held = x.clone(memory_format=torch.channels_last)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        for _ in range(3):
            module(held)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = module(held)

    def run() -> Any:
        held.copy_(x)
        graph.replay()
        return made.clone()

    return run


def _compiled(module: Any, x: Any, mode: str) -> Way:
    import torch

    torch._dynamo.reset()
    torch.backends.cudnn.allow_tf32 = False
    compiled = torch.compile(module, mode=mode)
    last = x.contiguous(memory_format=torch.channels_last)
    for _ in range(3):
        compiled(last).clone()
    return lambda: compiled(last).clone()


def _error(made: Any, exact: Any) -> float:
    return float((made.double() - exact).abs().max() / exact.abs().max())


def _host(way: Way) -> float:
    """Microseconds of the host's for a call, while the device has something to do."""
    import torch

    found = []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000)
        begun = time.perf_counter()
        way()
        found.append(time.perf_counter() - begun)
    torch.cuda.synchronize()
    return 1e6 * statistics.median(found)


if __name__ == "__main__":
    main()
