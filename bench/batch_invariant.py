"""What batch_invariant=True costs: ragged products of experts with it and without, and torch's.

    python -m bench.batch_invariant --name h200        bench/results/batch_invariant-NAME.json

Milliseconds of the device a call: medians of 24 rounds of 8 calls each, in turns that change their
order, each round after a rest (bench/gpu.py says why) and a call that is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from bench import gpu, gpu_cases
from bench.environment import RESULTS, environment
from tilewright.inputs.devices import resolve

# Experts, k, n, tokens, dtype.
CASES = {
    "moe-64": (64, 2048, 2816, 16384, "bfloat16"),
    "moe-8": (8, 4096, 14336, 8192, "bfloat16"),
    "moe-64, fp32, a quarter of k and n": (64, 512, 704, 4096, "float32"),
}
ROUNDS, CALLS = 24, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    document: dict[str, Any] = {"environment": environment(resolve("cuda:0")), "cases": {}}
    for name in CASES:
        found = document["cases"][name] = _measured(*CASES[name])
        print(name, found, f"ratio {found['invariant'] / found['plain']:.4f}", flush=True)
    path = options.output / f"batch_invariant-{options.name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")


def _measured(groups: int, k: int, n: int, tokens: int, kind: str) -> dict[str, float]:
    import torch

    import tilewright as tw

    dtype, counts = getattr(torch, kind), [m for m, _, _ in gpu_cases.experts(groups, k, n, tokens)]
    x = torch.randn(sum(counts), k, device="cuda", dtype=dtype)
    w = torch.randn(groups, k, n, device="cuda", dtype=dtype)
    ends = torch.tensor(counts, device="cuda").cumsum(0).int()
    out = torch.empty(len(x), n, device="cuda", dtype=dtype)
    ways: dict[str, gpu.Way] = {
        "plain": lambda: tw.ragged_matmul(x, w, ends, out=out),
        "invariant": lambda: tw.ragged_matmul(x, w, ends, out=out, batch_invariant=True),
    }
    if kind != "float32":
        ways["_grouped_mm"] = lambda: torch._grouped_mm(x, w, offs=ends)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            time.sleep(gpu.REST)
            ways[name]()
            times[name].append(_block(ways[name]))
    return {name: statistics.median(found) for name, found in times.items()}


def _block(way: gpu.Way) -> float:
    """Milliseconds a call of several in a row, enqueued while the device was kept busy."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(4 * gpu.LEAD)
    start.record()
    for _ in range(CALLS):
        way()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / CALLS


if __name__ == "__main__":
    main()
