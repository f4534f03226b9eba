"""Host time of planning batches on a GPU whose sizes were never seen; none need be there.

    python -m bench.planning        # milliseconds, medians

Planning is pure: an H200 as its driver describes it will do, and every library is taken to be here.
What is measured is who multiplies and how (`backends.cuda.choose`), from sizes and strides to
tiles dealt to multiprocessors; not tables, compiling or launching. Matrices lie as torch allots
them, rows at multiples of 16 bytes where "aligned".
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

import tilewright
from bench.gpu_cases import skewed, uniform
from tilewright import Device
from tilewright.arrays.addresses import Columns
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.vendor import cublas
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.dtypes import ITEMSIZE

H200 = Device(
    id="cuda:0",
    backend="cuda",
    name="NVIDIA H200",
    platform="NVIDIA CUDA",
    kind="gpu",
    version="sm_90",
    compute_units=132,
    local_memory=227 * 1024,
    features=frozenset({"fp16", "fp64", "bf16", "tf32", "wgmma"}),
)
DRAWS = {
    "1000 of 1..64": uniform(1, 64, 1000),
    "1000 of 1..256": uniform(1, 256, 1000),
    "1000 of 1..512": uniform(1, 512, 1000),
    "200 of 256..2048": uniform(256, 2048, 200),
    **{
        name: skewed(name)
        for name in (
            "2000 by a power law",
            "300 x 700 x 5000 among 800 of 4..48",
            "300 of 1..2000 x 1..24 x 8..128",
            "500 of 64 x 64 x 1000..20000",
            "800 of 2..900, even in logarithms",
        )
    },
}
KINDS = {
    "fp32": ("float32", "ieee", 1),
    "fp32x": ("float32", "fp32x", 1),
    "fp64": ("float64", "ieee", 1),
    "bf16 aligned": ("bfloat16", "ieee", 8),
    "bf16": ("bfloat16", "ieee", 1),
    "fp16": ("float16", "ieee", 1),
}


def batch(sizes: Sequence[tuple[int, int, int]], dtype: str, precision: str, multiple: int) -> Work:
    """Row-major matrices of these sizes, rows at multiples of so many elements."""
    m, n, k = np.array(sizes, np.int64).T
    item = ITEMSIZE[dtype]

    def dense(rows: Ints, cols: Ints, base: int) -> Columns:
        step = -(-cols // multiple) * multiple * item
        room = -(-rows * step // 512) * 512
        address = base + np.cumsum(room) - room
        return Columns(address, rows, cols, step, np.full_like(step, item))

    parts: Any = {"a": dense(m, k, 1 << 33), "b": dense(k, n, 1 << 36), "c": dense(m, n, 1 << 39)}
    how: Any = {"alpha": np.ones(len(m)), "beta": np.zeros(len(m)), "dtype": dtype}
    return Work(ordinal=0, **parts, **how, precision=precision)


def seconds(work: Work) -> float:
    """Of one plan, nothing remembered."""
    tilewright.forget()
    begun = time.perf_counter()
    choose.judge(choose._unsorted(work), H200, hurried=True)
    return time.perf_counter() - begun


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=9, help="plans of each batch")
    turns = parser.parse_args().turns
    print(f"{'ms of the host':36s}", *(f"{kind:>12s}" for kind in KINDS))
    with (
        patch.object(nvrtc, "missing", lambda: None),
        patch.object(cublas, "missing", lambda: None),
    ):
        for name, sizes in DRAWS.items():
            row = []
            for how in KINDS.values():
                work = batch(sizes, *how)
                seconds(work)
                row.append(statistics.median(seconds(work) for _ in range(turns)))
            print(f"{name:36s}", *(f"{1e3 * one:12.2f}" for one in row), flush=True)


if __name__ == "__main__":
    main()
