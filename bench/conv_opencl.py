"""Chains of convolutions on an OpenCL device beside the host's engines, in turns, in one run.

    python -m bench.conv_opencl --name cpu
    python -m bench.conv_opencl --name cpu --only "M 360p" --device opencl:intel

Networks of 3x3 convolutions in fp32, ReLU between, pads 1, a pixel shuffle by two at the end, from
the host's memory into the host's memory. Milliseconds are medians by the wall clock. The difference
is the largest one between the two results, over the largest value. Writes
bench/results/conv-opencl-NAME.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.environment import RESULTS, environment
from bench.timing import interleaved, load_average
from tilewright import Device
from tilewright.backends import conv_engines
from tilewright.engines.choose import choose, named
from tilewright.engines.conv import Activation, Conv, ConvOperands, ConvWork
from tilewright.facts.verdict import Proposal
from tilewright.inputs.devices import resolve

CASES = {
    "S 360p": ((1, 16, 16, 16, 16, 4), 360, 640),
    "M 360p": ((1, 32, 32, 32, 32, 32, 4), 360, 640),
    "M 720p": ((1, 32, 32, 32, 32, 32, 4), 720, 1280),
    "L 360p": ((1, *(64,) * 9, 4), 360, 640),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = resolve(options.device)
    document: dict[str, Any] = {"environment": environment(device), "cases": []}
    for name, case in CASES.items():
        if options.only in name:
            document["cases"].append({"case": name, **_measured(*case, device)})
            print(json.dumps(document["cases"][-1]), flush=True)
    path = options.output / f"conv-opencl-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured(channels: tuple[int, ...], height: int, width: int, device: Device) -> dict[str, Any]:
    """Both devices' best engines for a network: their times and how far apart they are."""
    work = _work(channels, height, width)
    x = np.random.default_rng(1).random((1, 1, height, width), dtype=np.float32)
    ways, results, proposals = {}, {}, {}
    for name, one in (("host", resolve("host")), ("opencl", device)):
        results[name] = np.full((1, *work.sizes[-1]), np.nan, np.float32)
        way, proposals[name] = _bound(work, one, ConvOperands(x, results[name]))
        ways[name] = way
    seconds = interleaved(ways)
    apart = np.abs(results["host"] - results["opencl"]).max() / np.abs(results["host"]).max()
    return {
        "gflop": work.flops / 1e9,
        "ms": {name: value * 1e3 for name, value in seconds.items()},
        "host_over_opencl": seconds["host"] / seconds["opencl"],
        "difference": float(apart),
        "engines": {name: f"{one.engine}: {one.reason}" for name, one in proposals.items()},
        "load": load_average(),
    }


def _bound(
    work: ConvWork, device: Device, operands: ConvOperands
) -> tuple[Callable[[], None], Proposal]:
    engines = conv_engines(device.backend)
    best = choose(work, device, engines).best
    return named(engines, best.engine, device).bind(best, operands), best


def _work(channels: tuple[int, ...], height: int, width: int) -> ConvWork:
    rng = np.random.default_rng(0)
    layers = []
    for index, (inputs, outputs) in enumerate(pairwise(channels)):
        last = index == len(channels) - 2
        weights = rng.standard_normal((outputs, inputs, 3, 3)) * (2 / (9 * inputs)) ** 0.5
        layers.append(
            Conv(
                weights.astype(np.float32),
                (rng.standard_normal(outputs) * 0.05).astype(np.float32),
                pads=(1, 1, 1, 1),
                activation=Activation("none" if last else "relu"),
                shuffle=2 if last else 1,
            )
        )
    return ConvWork(tuple(layers), 1, height, width)


if __name__ == "__main__":
    main()
