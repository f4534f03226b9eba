"""Block-sparse times block-sparse: `bsr_matmul` beside SciPy's own `a @ b`.

    python -m bench.bsr --device host --output bench/results/bsr-cpu.json

Both make their result at each call; ours is sorted, SciPy's is left as it comes. SciPy computes on
one core, ours on all. The pattern of either operand is drawn, but for bands: each block stands with
the given probability.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

import tilewright as tw
from bench.command import measure
from bench.timing import interleaved
from tilewright.backends.host import grouped as native
from tilewright.inputs.devices import host

# Blocks of a side, the side of a block, the share that is stored (None: three diagonals), dtype.
CASES: list[tuple[int, int, float | None, str]] = [
    (600, 4, 0.02, "float32"),
    (400, 8, 0.02, "float32"),
    (200, 16, 0.05, "float32"),
    (100, 32, 0.05, "float32"),
    (1000, 32, None, "float64"),
    (40, 64, 0.1, "float64"),
    (100, 16, 0.05, "complex128"),
]


def main() -> None:
    measure("bsr", __doc__, lambda _: {"cases": [_measured(*one) for one in CASES]})


def _measured(count: int, side: int, share: float | None, dtype: str) -> dict[str, Any]:
    a, b = (_drawn(count, side, share, dtype, seed) for seed in (0, 1))
    if dtype in native.DTYPES:  # a call would go without until another thread has compiled it
        native.compile_for(host(), dtype)
    ours, theirs = tw.bsr_matmul(a, b), a @ b
    error = abs(ours - theirs).max() / abs(theirs).max()
    ways = {"scipy": lambda: a @ b, "tilewright": lambda: tw.bsr_matmul(a, b)}
    seconds = interleaved(ways)
    products = int(np.diff(b.indptr)[a.indices].sum())
    row = {"blocks": count, "side": side, "share": share, "dtype": dtype}
    found = {"products": products, "stored": len(ours.data), "difference": float(error)}
    print(row, found, seconds, flush=True)
    return {**row, **found, "seconds": seconds}


def _drawn(count: int, side: int, share: float | None, dtype: str, seed: int) -> Any:
    draw = np.random.default_rng(seed)
    row, column = np.indices((count, count))
    there = abs(row - column) < 2 if share is None else draw.random((count, count)) < share
    values = draw.standard_normal((int(there.sum()), side, side)).astype(dtype)
    if values.dtype.kind == "c":
        values.imag = draw.standard_normal(values.shape)
    starts = np.append(0, np.cumsum(there.sum(axis=1)))
    shape = (count * side, count * side)
    return scipy.sparse.bsr_array((values, column[there], starts), shape=shape)


if __name__ == "__main__":
    main()
