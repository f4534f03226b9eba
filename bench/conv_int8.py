"""int8 networks on the processor, beside onnxruntime and OpenVINO with the same file: 2 threads.

    python -m bench.conv_int8 [--only "M 360p"] [--output FILE.json]

Chains as of bench/conv.py, quantised by `nn.quantise` on drawn pictures, and two whole nets at
224 x 224. Peers get the same quantised net as an ONNX file of
QuantizeLinear and DequantizeLinear. float32 in and out, results made beforehand, all in turns in
one run. `equal` is the share of ours that is the definition's, bit for bit; of peers, how far off
they are at most, of the largest result. Writes bench/results/conv-int8-cpu.json.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import conv_model
from bench.environment import RESULTS, environment
from bench.peers import networks
from bench.timing import interleaved, load_average
from tilewright import nn
from tilewright.inputs.devices import host

NDArray = npt.NDArray[Any]
SIZES = {"360p": (360, 640), "720p": (720, 1280)}
CASES = ("S 360p", "M 360p", "M 720p", "L 360p", "MobileNetV2 224", "ResNet-18 224")
OURS, FLOAT = "tilewright int8", "tilewright float32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    path = options.output or RESULTS / "conv-int8-cpu.json"
    known = json.loads(path.read_text())["cases"] if options.only and path.exists() else []
    cases = {case["name"]: case for case in known}
    for name in CASES:
        if options.only in name:
            cases[name] = found = _measured(name)
            _show(found)
    ordered = [cases[name] for name in CASES if name in cases]
    document = {"environment": environment(host()), "cases": ordered}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured(name: str) -> dict[str, Any]:
    net, x = _net(name)
    samples = np.random.default_rng(3).random((2, *x.shape[1:])).astype(np.float32)
    small = nn.quantise(net, [samples[:1], samples[1:]])
    wanted = small.bind(x.shape, "host")
    out: NDArray = np.full(wanted(x).shape, np.nan, np.float32)
    threads = os.cpu_count() or 1
    model = conv_model.onnx_of(small, x.shape, out.shape)
    ways = networks.ways(model, x, out, threads)
    ways[OURS], bound = _ours(small, x)
    ways[FLOAT], _ = _ours(net, x)
    before = load_average()
    seconds = interleaved({key: way for key, (way, _) in ways.items()})
    peers = [key for key in ways if key not in (OURS, FLOAT)]
    fastest = min((seconds[key] for key in peers), default=float("nan"))
    right = _definition(small, x)
    return {
        "name": name,
        "load_before": before,
        "threads": threads,
        "engines": [step.engine for step in bound.steps],
        "predicted_seconds": bound.steps[0].seconds if len(bound.steps) == 1 else None,
        "seconds": seconds,
        "times_the_faster_peer": {OURS: fastest / seconds[OURS]},
        "equal": float((ways[OURS][1] == right).mean()),
        "off": {
            key: float(np.abs(ways[key][1] - right).max() / np.abs(right).max()) for key in peers
        },
    }


def _net(name: str) -> tuple[nn.Network, NDArray]:
    """A network of float32 and a picture."""
    net, size = name.split()
    rng = np.random.default_rng(1)
    if net in conv_model.CHANNELS:
        work = conv_model.drawn(conv_model.CHANNELS[net], *SIZES[size])
        return nn.import_onnx(conv_model.onnx_model(work)), _drawn(rng, (1, *work.sizes[0]))
    import torch

    from bench import net_models

    torch.manual_seed(0)
    shape = (1, 3, 224, 224)
    return net_models.network(net_models.drawn(net_models.MAKERS[net]()), shape), _drawn(rng, shape)


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
    return rng.random(shape).astype(np.float32)


def _ours(net: nn.Network, x: NDArray) -> tuple[tuple[Callable[[], object], NDArray], Any]:
    """A bound run without copies, as those of the peers, and its result.

    Where there are several steps, later values take the memory of x, which is filled anew.
    """
    bound = net.bind(x.shape, "host")
    name = net.inputs[0].name
    held, out = bound.inputs.get(name, x), bound.results.get(net.outputs[0])
    held[...] = x
    if out is None:
        out = np.array(bound(held))

    def run() -> None:
        if len(bound.steps) > 1:
            held[...] = x
        bound(held, out=out)

    run()
    return (run, out), bound


def _definition(net: nn.Network, x: NDArray) -> NDArray:
    """What a bound network is held to: layers of whole numbers, each by its definition."""
    from tilewright.nn.net import Network
    from tilewright.nn.passes.int8 import with_int8

    found: NDArray = Network(with_int8(net.graph)).run(x)
    return found


def _show(case: dict[str, Any]) -> None:
    ratio = case["times_the_faster_peer"][OURS]
    print(f"{case['name']}: {ratio:.2f} times the faster peer; equal {case['equal']:.6f}")
    for name, seconds in case["seconds"].items():
        print(f"  {1e3 * seconds:8.2f} ms  {name:18} {case['off'].get(name, 0):.1e}")


if __name__ == "__main__":
    main()
