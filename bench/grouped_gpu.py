"""Variable-size batches on a GPU through OpenCL: a bound plan in every order, operands there.

    python -m bench.grouped_gpu --device opencl:nvidia --name h200

Wall time of a launch and its end, medians of interleaved rounds. Writes
bench/results/grouped-gpu-NAME.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright
from bench.environment import RESULTS, environment
from bench.grouped import draw
from tilewright.backends.opencl.runtime import session
from tilewright.inputs.devices import resolve

CASES = ((1, 32, 1000), (1, 64, 1000), (1, 256, 1000), (1, 512, 1000))
# What the issue asks for, ms.
MUST = {(1, 256): 0.6, (1, 512): 2.5}
ORDERS = ("given", "k-descending", "bucketed", "longest-first", "auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    device = resolve(options.device)
    document = {
        "environment": environment(device),
        "batches": [_batch(low, high, count, device) for low, high, count in CASES],
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"grouped-gpu-{options.name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")


def _batch(low: int, high: int, count: int, device: tilewright.Device) -> dict[str, Any]:
    a, b = draw(low, high, count)
    there = [tilewright.RaggedBatch.from_list(part).to(device) for part in (a, b)]
    sizes = np.array([(x.shape[0], y.shape[1], x.shape[1]) for x, y in zip(a, b, strict=True)]).T
    runs: dict[str, Callable[[], Any]] = {}
    chosen = ""
    for order in ORDERS:
        plan = tilewright.plan_grouped(*sizes, device=device, order=order)
        runs[order] = plan.bind(*there)
        if order == "auto" and plan.layout is not None:
            chosen = plan.layout.reason
    _check(a, b, runs["auto"]())
    queue = session(device).queue
    milliseconds: dict[str, list[float]] = {order: [] for order in ORDERS}
    for _ in range(40):
        for order, run in runs.items():
            queue.finish()
            begun = time.perf_counter()
            run()
            queue.finish()
            milliseconds[order].append((time.perf_counter() - begun) * 1e3)
    medians = {order: statistics.median(times[5:]) for order, times in milliseconds.items()}
    shown = "  ".join(f"{order} {value:.3f}" for order, value in medians.items())
    print(f"{count} of {low}..{high}, ms: {shown}   must {MUST.get((low, high))}", flush=True)
    print(f"    {chosen}")
    flops = float(2 * np.sum(sizes.prod(axis=0)))
    return {
        "low": low,
        "high": high,
        "count": count,
        "flops": flops,
        "milliseconds": medians,
        "auto": chosen,
        "must_ms": MUST.get((low, high)),
    }


def _check(a: list[Any], b: list[Any], c: Any) -> None:
    for index, (x, y, z) in enumerate(zip(a, b, c.to("host"), strict=True)):
        truth = x.astype(np.float64) @ y
        if not np.allclose(z, truth, rtol=1e-4, atol=1e-3):
            raise SystemExit(f"problem {index}: wrong result")


if __name__ == "__main__":
    main()
