"""Whole networks on the processor, beside onnxruntime and OpenVINO: fp32, 2 threads.

    python -m bench.nets FILE.onnx ... [--output FILE.json]

Files whose inputs have sizes; drawn numbers go in. All in one run, in turns; every way makes its
results anew. The error is the largest difference from onnxruntime's result, of its largest number.
OpenVINO is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.environment import environment
from bench.timing import interleaved, load_average
from tilewright import nn
from tilewright.inputs.devices import host

NDArray = npt.NDArray[Any]
Call = Callable[[], Any]
OURS = "tilewright"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    cases = []
    for path in options.files:
        cases.append(_measured(path))
        _show(cases[-1])
    if options.output:
        document = {"environment": environment(host()), "cases": cases}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {options.output}")


def _measured(path: Path) -> dict[str, Any]:
    model, net = path.read_bytes(), nn.import_onnx(path)
    rng = np.random.default_rng(0)
    shapes = {one.name: tuple(int(size) for size in one.shape or ()) for one in net.inputs}
    given = {
        name: np.asarray(rng.standard_normal(shape), np.float32) for name, shape in shapes.items()
    }
    threads = os.cpu_count() or 1
    bound = net.bind(device="host")
    ways: dict[str, Call] = {OURS: lambda: bound(**given), **_peers(model, given, threads)}
    mine = ways[OURS]()
    made, right = mine if isinstance(mine, tuple) else (mine,), ways["onnxruntime"]()
    before = load_average()
    seconds = interleaved(ways)
    fastest = min(value for way, value in seconds.items() if way != OURS)
    return {
        "name": path.stem,
        "load_before": before,
        "threads": threads,
        "engines": dict(Counter(step.engine for step in bound.steps)),
        "seconds": seconds,
        "times_the_faster_peer": fastest / seconds[OURS],
        "largest_error": max(
            float(np.abs(one - other).max() / np.abs(other).max())
            for one, other in zip(made, right, strict=True)
        ),
    }


def _peers(model: bytes, given: Mapping[str, NDArray], threads: int) -> dict[str, Call]:
    """A call of each peer that is installed, which gives a list of results."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: dict[str, Call] = {"onnxruntime": lambda: session.run(None, dict(given))}
    if find_spec("openvino") is not None:
        found["openvino"] = _openvino(model, given, threads)
    return found


def _openvino(model: bytes, given: Mapping[str, NDArray], threads: int) -> Call:
    import openvino

    core = openvino.Core()
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(core.read_model(io.BytesIO(model)), "CPU", options)
    ready = request.create_infer_request()
    return lambda: list(ready.infer(dict(given)).values())


def _show(case: dict[str, Any]) -> None:
    times = ", ".join(f"{way} {1e3 * value:.2f} ms" for way, value in case["seconds"].items())
    ratio, error = case["times_the_faster_peer"], case["largest_error"]
    print(f"{case['name']:18} {ratio:.2f} times the faster peer; {times}; error {error:.0e}")


if __name__ == "__main__":
    main()
