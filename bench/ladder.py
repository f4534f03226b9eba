"""The ladder on a GPU through OpenCL, with cuBLAS beside it in the same run where PyTorch has CUDA.

    python -m bench.ladder --device opencl:nvidia --name h200 [--sizes 1024,2048,4096]

Writes bench/results/ladder-NAME.json and docs/images/ladder-NAME.png, or both into --output.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from bench.environment import RESULTS, ROOT, environment
from tilewright.inputs.devices import resolve
from tilewright.report import document, ladder, plots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--name", required=True)
    parser.add_argument("--sizes", default="1024,2048,4096")
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    device = resolve(options.device)
    sizes = [int(size) for size in options.sizes.split(",")]
    before = {size: cublas(size) for size in sizes}
    ladders = [ladder.measure(device, size) for size in sizes]
    after = {size: cublas(size) for size in sizes}
    result = {
        "environment": environment(device),
        **document.document(ladders),
        "cublas_tflops": {str(size): [before[size], after[size]] for size in sizes},
    }
    results, images = (options.output or one for one in (RESULTS, ROOT / "docs" / "images"))
    for folder in (results, images):
        folder.mkdir(parents=True, exist_ok=True)
    path = results / f"ladder-{options.name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    plots.draw(ladders[-1:], images / f"ladder-{options.name}.png", "--name")
    for found in ladders:
        for rung in found.rungs:
            print(f"{found.size:5} {rung.name:10} {rung.gflops / 1e3:8.2f} TFLOP/s")
    print("cuBLAS fp32 TFLOP/s, before and after:", result["cublas_tflops"])


def cublas(size: int) -> float | None:
    """TFLOP/s of cuBLAS in IEEE fp32, median of 20; None where there is no CUDA."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    for _ in range(10):
        a @ b
    seconds = [_event_seconds(torch, a, b) for _ in range(20)]
    return 2 * size**3 / statistics.median(seconds) / 1e12


def _event_seconds(torch: Any, a: Any, b: Any) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    a @ b
    stop.record()
    torch.cuda.synchronize()
    milliseconds: float = start.elapsed_time(stop)
    return milliseconds * 1e-3


if __name__ == "__main__":
    main()
