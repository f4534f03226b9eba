"""Chains of 3x3 convolutions on the processor, beside onnxruntime and OpenVINO: fp32, 2 threads.

    python -m bench.conv [--only "M 360p"] [--output FILE.json]
    python -m bench.conv --opencl          a driver for the processor in OpenVINO's place

OpenVINO and Intel's OpenCL driver each bring a library of threads of one name; in one process the
driver took 7 times as long as alone (M at 360p: 176 and 28 ms), so they are measured apart.

All in one run, in turns, results made beforehand; random weights, the same in all. The error is
that of the first rows against float64: the root of the mean square, and the largest, over the
result's. OpenVINO is left out where it is not installed. Writes bench/results/conv-cpu.json, or
conv-opencl-cpu.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import conv_model
from bench.environment import RESULTS, environment
from bench.peers import networks
from bench.timing import interleaved, load_average
from tilewright import Device, devices
from tilewright.backends import conv_engines
from tilewright.engines.choose import choose, named
from tilewright.engines.conv import ConvOperands, ConvWork
from tilewright.inputs.devices import host

NDArray = npt.NDArray[Any]
SIZES = {"360p": (360, 640), "720p": (720, 1280)}
CASES = (("S", "360p"), ("M", "360p"), ("M", "720p"), ("L", "360p"))
ROWS = 24  # of the picture, which the error is of
OURS, EXACT, OPENCL = "tilewright", "tilewright exact", "tilewright opencl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name and size hold this")
    parser.add_argument("--opencl", action="store_true", help="OpenCL in OpenVINO's place")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    name = "conv-opencl-cpu.json" if options.opencl else "conv-cpu.json"
    path = options.output or RESULTS / name
    known = json.loads(path.read_text())["cases"] if options.only and path.exists() else []
    cases = {case["name"]: case for case in known}
    for net, size in CASES:
        if options.only in f"{net} {size}":
            cases[f"{net} {size}"] = found = _measured(net, size, options.opencl)
            _show(found)
    document = {"environment": environment(host()), "cases": list(cases.values())}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured(net: str, size: str, opencl: bool) -> dict[str, Any]:
    work = conv_model.drawn(conv_model.CHANNELS[net], *SIZES[size])
    x = np.random.default_rng(1).random((1, *work.sizes[0])).astype(np.float32)
    out: NDArray = np.full((1, *work.sizes[-1]), np.nan, np.float32)
    threads = os.cpu_count() or 1
    but = "openvino" if opencl else ""
    ways = networks.ways(conv_model.onnx_model(work), x, out, threads, but=but)
    begun = time.perf_counter()
    ways[OURS] = call, _ = _ours(work, x, out.copy(), host())
    call()
    first = time.perf_counter() - begun
    ways[EXACT] = _ours(replace(work, exact=True), x, out.copy(), host())
    for device in devices() if opencl else ():
        if device.backend == "opencl" and device.kind == "cpu" and OPENCL not in ways:
            ways[OPENCL] = _ours(work, x, out.copy(), device)
    ours = [name for name in (OURS, EXACT, OPENCL) if name in ways]
    before = load_average()
    seconds = interleaved({name: way for name, (way, _) in ways.items()})
    fastest = min(value for name, value in seconds.items() if name not in ours)
    proposal = choose(work, host(), conv_engines("host")).best
    return {
        "name": f"{net} {size}",
        "channels": conv_model.CHANNELS[net],
        "load_before": before,
        "threads": threads,
        "engine": proposal.engine,
        "reason": proposal.reason,
        "scratch": proposal.scratch,
        "predicted_seconds": proposal.seconds,
        "seconds_to_bind_and_call_first": first,
        "seconds": seconds,
        "times_the_faster_peer": {name: fastest / seconds[name] for name in ours},
        "plain_gflops": work.flops / seconds[OURS] / 1e9,
        "errors": _errors(work, x, {name: result for name, (_, result) in ways.items()}),
    }


def _ours(
    work: ConvWork, x: NDArray, out: NDArray, device: Device
) -> tuple[Callable[[], object], NDArray]:
    engines = conv_engines(device.backend)
    proposal = choose(work, device, engines).best
    engine = named(engines, proposal.engine, device)
    return engine.bind(proposal, ConvOperands(x, out)), out


def _errors(work: ConvWork, x: NDArray, results: dict[str, NDArray]) -> dict[str, dict[str, float]]:
    truth = _truth(work, x)
    found = {}
    for name, result in results.items():
        error = result[0, 0, : len(truth)] - truth
        found[name] = {
            "rms": float(np.sqrt((error**2).mean() / (truth**2).mean())),
            "largest": float(np.abs(error).max() / np.abs(truth).max()),
        }
    return found


def _truth(work: ConvWork, x: NDArray) -> NDArray:
    """The first rows of a result of one channel, in float64."""
    value: NDArray = x[0, :, : ROWS + len(work.layers)].astype(np.float64)
    for layer in work.layers:
        height, width = value.shape[1:]
        padded = np.pad(value, ((0, 0), (1, 1), (1, 1)))
        value = np.zeros((layer.outputs, height, width))
        for y, x_ in np.ndindex(3, 3):
            window = padded[:, y : y + height, x_ : x_ + width]
            value += np.tensordot(layer.weights[:, :, y, x_].astype(np.float64), window, 1)
        if layer.bias is not None:
            value += layer.bias.astype(np.float64)[:, None, None]
        if layer.activation.kind == "relu":
            value = np.maximum(value, 0)
    four = value[:, :ROWS].reshape(2, 2, ROWS, work.width)
    return four.transpose(2, 0, 3, 1).reshape(2 * ROWS, 2 * work.width)


def _show(case: dict[str, Any]) -> None:
    ratio = case["times_the_faster_peer"][OURS]
    print(f"{case['name']}: {ratio:.2f} times the faster peer; {case['reason']}")
    for name, seconds in case["seconds"].items():
        error = case["errors"][name]
        print(
            f"  {1e3 * seconds:8.2f} ms  {name:18} error {error['rms']:.1e} in the mean,"
            f" {error['largest']:.1e} at most"
        )


if __name__ == "__main__":
    main()
