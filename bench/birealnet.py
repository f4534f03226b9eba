"""Bi-Real-Net-18 at 224 x 224, batch 1: one-bit, beside the same graph in fp32 under onnxruntime.

    python -m bench.birealnet [--output FILE.json]

Both in one run, in turns, on as many threads as the processor has cores; random weights, the same
in both. Writes bench/results/birealnet-cpu.json with the time of every layer of either.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.birealnet_model import birealnet18
from bench.environment import RESULTS, environment
from bench.timing import interleaved, load_average
from tilewright import onebit
from tilewright.inputs.devices import host

NDArray = npt.NDArray[Any]
SIZE = 224
RUNS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "birealnet-cpu.json")
    output = parser.parse_args().output
    model = birealnet18(size=SIZE).SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        result = figures(model, Path(folder))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    _show(result)
    print(f"written: {output}")


def figures(model: bytes, folder: Path) -> dict[str, Any]:
    """Sizes, agreement, seconds of a run and of every layer."""
    threads = os.cpu_count() or 1
    imported, report = onebit.import_onnx(model)
    path = folder / "birealnet.npz"
    onebit.save(imported, path)
    network = onebit.load(path)
    session = _session(model, threads)
    images = np.random.default_rng(0).standard_normal((1, SIZE, SIZE, 3), dtype=np.float32)
    given = {"image": np.ascontiguousarray(images.transpose(0, 3, 1, 2))}
    truth, scores = session.run(None, given)[0], network.run(images)
    before = load_average()
    seconds = interleaved(
        {"onnxruntime": lambda: session.run(None, given), "onebit": lambda: network.run(images)},
        rounds=9,
        block_seconds=0.3,
    )
    return {
        "environment": environment(host()),
        "load_before": before,
        "threads": threads,
        "bytes": {"onnx": len(model), "onebit": path.stat().st_size},
        "every_layer_equals_float_graph": report.exact,
        "largest_score": float(np.abs(truth).max()),
        "largest_difference": float(np.abs(truth - scores).max()),
        "seconds": seconds,
        "ratio": seconds["onnxruntime"] / seconds["onebit"],
        "onebit_passes": [
            {
                "layers": list(row.covers),
                "kind": row.operator,
                "microseconds": 1e6 * (row.seconds or 0.0),
            }
            for row in network.profile(images, RUNS)
        ],
        "onnxruntime_nodes": _node_times(model, threads, given, folder),
    }


def _session(model: bytes, threads: int, profile: str | None = None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _node_times(
    model: bytes, threads: int, given: dict[str, NDArray], folder: Path
) -> list[dict[str, Any]]:
    """Medians of onnxruntime's own profile, in the order of its first run."""
    session = _session(model, threads, str(folder / "profile"))
    for _ in range(RUNS + 1):
        session.run(None, given)
    events = json.loads(Path(session.end_profiling()).read_text())
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name = event["name"].removesuffix("_kernel_time")
            times[name, event["args"]["op_name"]].append(event["dur"])
    return [
        {"node": name, "op": op, "microseconds": statistics.median(values[1:])}
        for (name, op), values in times.items()
    ]


def _show(result: dict[str, Any]) -> None:
    for part in result["onebit_passes"]:
        print(f"{part['microseconds']:8.0f} µs  {part['kind']:17} {' + '.join(part['layers'])}")
    print("onnxruntime")
    for part in result["onnxruntime_nodes"]:
        print(f"{part['microseconds']:8.0f} µs  {part['op']:17} {part['node']}")
    seconds = result["seconds"]
    print(
        f"a run: onebit {1e3 * seconds['onebit']:.2f} ms, onnxruntime"
        f" {1e3 * seconds['onnxruntime']:.2f} ms, {result['ratio']:.2f} times;"
        f" {result['bytes']['onebit']:,} bytes instead of {result['bytes']['onnx']:,};"
        f" scores differ by {result['largest_difference']:.2g} of {result['largest_score']:.3g}"
    )


if __name__ == "__main__":
    main()
