"""The figures of the dense product: `matmul` beside `numpy.matmul`, call to result, in one run.

    python -m bench.dense [--device opencl:intel] [--output FILE.json]

Writes bench/results/dense-DEVICE.json; `python -m bench.tables` turns it into README's table.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import Any

import numpy as np

import tilewright
from bench.command import measure
from bench.timing import interleaved

SMALL = (8, 16, 32, 64, 128, 192, 256, 320)
LARGE = (384, 512, 640, 768, 1000, 1024, 1280, 1536, 2048, 3072, 4096)
_START = """
import time; begun = time.perf_counter()
import tilewright, numpy
a = numpy.ones((1024, 1024), numpy.float32)
tilewright.matmul(a, a, device={device!r}, kernel={kernel!r})
print(time.perf_counter() - begun)
"""


def figures(device: tilewright.Device) -> dict[str, Any]:
    """Everything that the result holds besides where it came from."""
    return {
        "sizes": [_size(size, device) for size in SMALL + LARGE],
        "second_process_seconds": _second_process(device),
    }


def _size(size: int, device: tilewright.Device) -> dict[str, Any]:
    """One square size: NumPy, matmul as it decides, and the best kernel forced."""
    generator = np.random.default_rng(size)
    a = generator.standard_normal((size, size), dtype=np.float32)
    b = generator.standard_normal((size, size), dtype=np.float32)
    plan = tilewright.explain(a, b, device=device)
    kernel = re.search(r"^engine +(\w+)", plan, re.MULTILINE)
    forced = tilewright.kernels(device)
    best = next((name for name in ("panel", "local") if name in forced), None)
    ways = {
        "numpy": lambda: np.matmul(a, b),
        "matmul": lambda: tilewright.matmul(a, b),
    }
    if best and size >= LARGE[0]:
        ways["kernel"] = lambda: tilewright.matmul(a, b, device=device, kernel=best)
    seconds = interleaved(ways)
    row = {
        "size": size,
        "chosen": kernel.group(1) if kernel else "?",
        "kernel": best,
        "seconds": seconds,
        "ratio": seconds["numpy"] / seconds["matmul"],
        "added_microseconds": (seconds["matmul"] - seconds["numpy"]) * 1e6,
        "gflops": {name: 2 * size**3 / value / 1e9 for name, value in seconds.items()},
    }
    rates = "  ".join(f"{name} {2 * size**3 / s / 1e9:.0f}" for name, s in seconds.items())
    added = (seconds["matmul"] - seconds["numpy"]) * 1e6
    print(f"{size:5}  {row['chosen']:6} {row['ratio']:.3f}  {added:+8.1f} µs  {rates}", flush=True)
    return row


def _second_process(device: tilewright.Device) -> dict[str, float]:
    """Import and first product of a fresh process whose kernels are in the build cache."""
    best = next((name for name in ("panel", "local") if name in tilewright.kernels(device)), None)
    found: dict[str, float] = {}
    for label, kernel in (("as planned", None), (f"kernel={best}", best)):
        code = _START.format(device=device.id, kernel=kernel)
        values = []
        for _ in range(4):
            time.sleep(0.1)
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            values.append(float(run.stdout))
        found[label] = sorted(values[1:])[1]
    print("second process:", found)
    return found


if __name__ == "__main__":
    measure("dense", __doc__, figures)
