"""3x3 convolutions in float32 on a GPU: Winograd beside plain sums in Triton and cuDNN's.

    python -m bench.winograd_gpu --name h200

Layers of ResNet-18 (some by eight pictures too), of M and of C64, with bias and ReLU, channels
last; cuDNN also channels first, its algorithms tried, without tf32. Microseconds of a call, of ten
in a CUDA graph, medians of interleaved rounds. The error is the norm of the difference from float64
over the norm of that. Writes bench/results/winograd-NAME.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.conv_gpu import _times
from bench.environment import RESULTS, environment
from tilewright.backends.cuda.conv import cost, winograd, winograd_launch
from tilewright.backends.cuda.conv.cudnn import Cudnn
from tilewright.backends.cuda.conv.triton import TritonConv
from tilewright.backends.cuda.conv.winograd_launch import Shape
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.engines.conv import Activation, Conv, ConvOperands, ConvWork

CALLS = 10
CASES = (
    *((1, c, (s, s)) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7))),
    *((8, c, (s, s)) for c, s in ((64, 56), (128, 28), (256, 14))),
    *((1, c, (360, 640)) for c in (32, 64)),
    *((1, c, (1080, 1920)) for c in (16, 32, 64)),
)
Way = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.output / f"winograd-{options.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = []
    for images, channels, (height, width) in CASES:
        found.append(measured(images, channels, height, width))
        document = {"environment": environment(driver.found()[0]), "cases": found}
        path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def measured(images: int, channels: int, height: int, width: int) -> dict[str, Any]:
    """One layer by every way."""
    import torch

    rng = np.random.default_rng(0)
    weights = rng.standard_normal((channels, channels, 3, 3)) * (2 / (9 * channels)) ** 0.5
    bias = rng.standard_normal(channels).astype(np.float32)
    layer = Conv(weights.astype(np.float32), bias, pads=(1, 1, 1, 1), activation=Activation("relu"))
    last: Any = "channels_last"
    work = ConvWork((layer,), images, height, width, "float32", source=last, result=last)
    torch.manual_seed(0)
    x = torch.randn(images, channels, height, width, device="cuda")
    x = x.contiguous(memory_format=torch.channels_last)
    out = torch.full_like(x, float("nan"))
    kernel = torch.from_numpy(layer.weights).cuda()
    shift = torch.from_numpy(bias).cuda()
    exact = torch.relu(
        torch.nn.functional.conv2d(x.double(), kernel.double(), shift.double(), padding=1)
    )
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    device = driver.found()[0]
    ways: dict[str, Way] = {}
    for engine in (TritonConv(), Cudnn()):
        ways[engine.name] = engine.bind(engine.propose(work, device), ConvOperands(x, out))
    first, to = x.contiguous(), None
    ways["cudnn, channels first"] = lambda: torch.cudnn_convolution_relu(
        first, kernel, shift, (1, 1), (1, 1), (1, 1), 1
    )
    for shape in (Shape(4, 8), Shape(4, 4), Shape(2, 8)):
        call, held = winograd_launch.prepared(layer, shape, x, out, to, device.compute_units)
        ways[f"winograd F({shape.tile}, 3) by {shape.chunk}"] = _launching(call, held)
    errors = {}
    for name, way in ways.items():
        out.fill_(float("nan"))
        made = way()
        made = out if made is None else made
        errors[name] = float((made.double() - exact).norm() / exact.norm())
    graphs = {name: _recorded(way) for name, way in ways.items()}
    record = {
        "case": [images, channels, height, width],
        "gflop": work.flops / 1e9,
        "errors": errors,
        "us": {name: 1e3 / CALLS * ms for name, ms in _times(graphs).items()},
        "predicted_us": {
            "triton": 1e6 * (TritonConv().propose(work, device).seconds or 0),
            "cudnn": 1e6 * (cost.by_library(work, device, (0,)) or 0),
            "winograd": 1e6 * (winograd.WinogradConv().propose(work, device).seconds or 0),
        },
    }
    print(json.dumps(record), flush=True)
    return record


def _launching(call: winograd_launch.Call, held: object) -> Way:
    """The kernel on torch's stream; `held` lives as long."""
    import torch

    enqueue = nvrtc.launcher(call)

    def launch(_held: object = held) -> None:
        enqueue(torch.cuda.current_stream().cuda_stream)

    return launch


def _recorded(way: Way) -> Way:
    """So many calls as a CUDA graph."""
    import torch

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            way()
    replay: Way = graph.replay
    return replay


if __name__ == "__main__":
    main()
