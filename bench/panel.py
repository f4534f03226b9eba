"""Large single products: `panel`, the best OpenCL kernel of a processor, beside NumPy's BLAS.

    python -m bench.panel [--device opencl:intel] [--output FILE.json]

fp32, results made before, in turns, medians. Writes bench/results/panel-DEVICE.json.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tilewright
from bench.command import measure
from bench.timing import interleaved

SIZES = (1024, 2048)


def figures(device: tilewright.Device) -> dict[str, Any]:
    """Everything that the result holds besides where it came from."""
    return {"products": [_product(size, device) for size in SIZES]}


def _product(size: int, device: tilewright.Device) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    out = np.empty_like(a)
    ways: dict[str, Callable[[], object]] = {
        "panel": partial(tilewright.matmul, a, b, out=out, kernel="panel", device=device),
        "numpy": partial(np.matmul, a, b, out=np.empty_like(a)),
    }
    ways["panel"]()
    if not np.allclose(out, a @ b, rtol=1e-3, atol=1e-3):
        raise SystemExit(f"{size}: wrong result")
    seconds = interleaved(ways)
    rates = {name: 2.0 * size**3 / one / 1e9 for name, one in seconds.items()}
    print(f"{size}: " + "  ".join(f"{name} {rate:.0f} GFLOP/s" for name, rate in rates.items()))
    return {"size": size, "seconds": seconds, "gflops": rates}


if __name__ == "__main__":
    measure("panel", __doc__, figures)
