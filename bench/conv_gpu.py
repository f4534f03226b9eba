"""Chains of convolutions on a GPU beside what a user would pick instead, and first of all right.

    python -m bench.conv_gpu --name h200
    python -m bench.conv_gpu --name h200 --only "M 360p" --no-compile

Networks of 3x3 convolutions in fp16, ReLU between, pads 1, a pixel shuffle by two at the end; the
same in int8 from float32 to float32, whose bits the tests hold to the definition. Peers are a CUDA
graph of cuDNN's convolutions in fp16, channels last, and torch.compile(max-autotune) of the same
module. Milliseconds are device events' around one call behind a spinning kernel, so that launches
are not waited for; medians of interleaved rounds. The error is the norm of the difference from
float32 with the same halves as weights, over the norm of that. Writes bench/results/conv-NAME.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.environment import RESULTS, environment
from tilewright.backends.cuda.conv.engines import CONV_ENGINES
from tilewright.backends.cuda.machine import driver
from tilewright.engines.choose import choose
from tilewright.engines.conv import Activation, Conv, ConvOperands, ConvWork, Whole

ROUNDS = 15
REST = 0.005  # seconds before a call: the chip would be slowed by the one before
LEAD = 2_000_000  # cycles, a millisecond, that the device spins while the host enqueues
OURS = "tilewright"
SIZES = {"1080p": (1080, 1920), "360p": (360, 640)}


@dataclass(frozen=True)
class Case:
    """A network at a size, and the milliseconds that it must and should take."""

    name: str
    channels: tuple[int, ...]
    size: str
    must: float | None = None
    aim: float | None = None

    @property
    def title(self) -> str:
        """As --only and the tables say it."""
        return f"{self.name} {self.size}"


_S = (1, 16, 16, 16, 16, 4)
_M = (1, 32, 32, 32, 32, 32, 4)
_C64 = (1, 64, 64, 64, 64, 64, 4)
CASES = (
    Case("M", _M, "1080p", 0.38, 0.26),
    Case("M", _M, "360p", 0.08, 0.05),
    Case("S", _S, "1080p", 0.25, 0.13),
    Case("C64 L4", _C64, "1080p", 1.6, 1.1),
    Case("S", _S, "360p"),
    Case("C64 L4", _C64, "360p"),
)
Way = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--only", default="", help="cases whose name and size hold this")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = driver.found()[0]
    path = options.output / f"conv-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    cases = _measured_before(path) if options.only else {}
    for case in CASES:
        if options.only in case.title:
            cases[case.title] = _measured(case, not options.no_compile)
            ordered = [cases[one.title] for one in CASES if one.title in cases]
            document = {"environment": environment(device), "cases": ordered}
            path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured_before(path: Path) -> dict[str, Any]:
    """The cases of the file by their names; with --only the others stay as they are."""
    if not path.exists():
        return {}
    return {case["case"]: case for case in json.loads(path.read_text())["cases"]}


def _measured(case: Case, compile_too: bool) -> dict[str, Any]:
    """One case: right, then timed beside its peers."""
    import torch

    network = _network(case)
    work = _work(case, network)
    x = torch.rand((1, 1, work.height, work.width), device="cuda").mul_(2).sub_(1).half()
    out = torch.full((1, *work.sizes[-1]), float("nan"), device="cuda").half()
    verdict = choose(work, driver.found()[0], CONV_ENGINES)
    engine = next(one for one in CONV_ENGINES if one.name == verdict.best.engine)
    ways: dict[str, Way] = {OURS: engine.bind(verdict.best, ConvOperands(x, out))}
    ways[f"{OURS} int8"], whole = _int8(case)
    half = network.half().to(memory_format=torch.channels_last)
    ways["cudnn graph"] = _graph(half, x)
    if compile_too:
        ways["torch.compile"] = _compiled(half, x)
    record = {
        "case": case.title,
        "channels": case.channels,
        "gflop": work.flops / 1e9,
        "must_ms": case.must,
        "aim_ms": case.aim,
        "engine": verdict.best.engine,
        "reason": verdict.best.reason,
        "int8_engine": whole,
        **_errors(half, x, out, ways[OURS]),
        "ms": _times(ways),
    }
    print(json.dumps(record), flush=True)
    return record


def _network(case: Case) -> Any:
    """The module, its weights such that activations stay near 1 and halves hold them exactly."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    parts: list[Any] = []
    for inputs, outputs in zip(case.channels[:-1], case.channels[1:], strict=True):
        one = nn.Conv2d(inputs, outputs, 3, padding=1)
        nn.init.normal_(one.weight, std=(2 / (9 * inputs)) ** 0.5)
        one.half().float()
        parts += [one, nn.ReLU()]
    return nn.Sequential(*parts[:-1], nn.PixelShuffle(2)).cuda().eval().requires_grad_(False)


def _work(case: Case, network: Any) -> ConvWork:
    from torch import nn

    found = [one for one in network if isinstance(one, nn.Conv2d)]
    layers = tuple(
        Conv(
            one.weight.float().contiguous().cpu().numpy(),
            one.bias.float().cpu().numpy(),
            pads=(1, 1, 1, 1),
            activation=Activation("none" if one is found[-1] else "relu"),
            shuffle=2 if one is found[-1] else 1,
        )
        for one in found
    )
    return ConvWork(layers, 1, *SIZES[case.size], "float16")


def _int8(case: Case) -> tuple[Way, str]:
    """The same sizes in whole numbers of eight bits, and the engine that takes them."""
    import numpy as np
    import torch

    rng, layers, last = np.random.default_rng(1), [], len(case.channels) - 2
    for at, (inputs, outputs) in enumerate(pairwise(case.channels)):
        scale = np.full(outputs, 1e-3, np.float32)
        ends = Whole(0, scale) if at == last else Whole(0, scale, 0.0, step=0.05, dtype="uint8")
        whole = ends if at else replace(ends, taken=0.01)
        weights = rng.integers(-127, 128, (outputs, inputs, 3, 3), np.int8)
        bias = rng.integers(-999, 1000, outputs, np.int32)
        shuffle = 2 if at == last else 1
        layers.append(Conv(weights, bias, pads=(1, 1, 1, 1), shuffle=shuffle, whole=whole))
    work = ConvWork(tuple(layers), 1, *SIZES[case.size], "uint8")
    x = torch.rand((1, 1, work.height, work.width), device="cuda")
    out = torch.full((1, *work.sizes[-1]), float("nan"), device="cuda")
    best = choose(work, driver.found()[0], CONV_ENGINES).best
    engine = next(one for one in CONV_ENGINES if one.name == best.engine)
    return engine.bind(best, ConvOperands(x, out)), best.engine


def _graph(half: Any, x: Any) -> Way:
    import torch

    torch.backends.cudnn.benchmark = True
    last = x.contiguous(memory_format=torch.channels_last)
    for _ in range(3):
        half(last)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        half(last)
    replay: Way = graph.replay
    return replay


def _compiled(half: Any, x: Any) -> Way:
    import torch

    torch._dynamo.reset()
    compiled = torch.compile(half, mode="max-autotune")
    last = x.contiguous(memory_format=torch.channels_last)
    for _ in range(3):
        compiled(last)
    return lambda: compiled(last)


def _errors(half: Any, x: Any, out: Any, ours: Way) -> dict[str, Any]:
    """Ours and torch's in halves against float32, and whether a second run has the same bits."""
    import torch

    torch.backends.cudnn.allow_tf32 = False
    theirs = half(x).float()
    exact = half.float()(x.float())
    half.half()
    ours()
    once = out.clone()
    out.fill_(float("nan"))
    ours()
    scale = float(exact.norm())
    return {
        "error": float((once.float() - exact).norm()) / scale,
        "torch_error": float((theirs - exact).norm()) / scale,
        "repeats": bool(torch.equal(once, out)),
    }


def _times(ways: dict[str, Way]) -> dict[str, float]:
    """Medians in milliseconds, the ways in turn."""
    import torch

    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            way()
            torch.cuda.synchronize()
            time.sleep(REST)
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(LEAD)
            begun.record()
            way()
            ended.record()
            ended.synchronize()
            taken[name].append(begun.elapsed_time(ended))
    return {name: statistics.median(found) for name, found in taken.items()}


if __name__ == "__main__":
    main()
