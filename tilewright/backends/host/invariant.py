"""Products of rows whose bits depend on no other row: each element is summed in one fixed order.

    out[i, j] = (x[i, 0] w[0, j] + ... to k = 128) + (... to k = 256) + ...     one after another

BLAS chooses kernels by the number of rows, so the same row beside others comes out in other bits.
Here every product and every sum is rounded by itself, never fused, in this order; so NumPy's loop
and the compiled one agree too. The latter took 3.4 times as long as torch's products of groups do:
1024 rows in 4 groups, k and n 1024, float32, on two cores of a Zen 4.
"""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.backends.host.threads import in_parallel

CHAIN = 128  # of k that are summed one after another
_BAND = 64  # rows that a thread multiplies at a time


def multiply(x: NDArray, w: NDArray, out: NDArray, cores: int) -> None:
    """out [rows, n] = x [rows, k] @ w [k, n]; all float32 or all float64, in any strides."""
    if not x.size or not w.size:
        out[...] = 0
        return
    w = np.ascontiguousarray(w)
    if not compiled.available():
        by_numpy(x, w, out)
        return
    run, x = compiled.kernels("invariant").multiply, np.ascontiguousarray(x)
    made = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)

    def band(first: int) -> None:
        run(x[first : first + _BAND], w, made[first : first + _BAND], CHAIN)

    starts = range(0, len(x), _BAND)
    in_parallel([lambda first=first: band(first) for first in starts], cores)  # type: ignore[misc]
    if made is not out:
        out[...] = made


def by_numpy(x: NDArray, w: NDArray, out: NDArray) -> None:
    """The same bits, a step of k at a time."""
    total = np.zeros(out.shape, out.dtype)
    for begin in range(0, len(w), CHAIN):
        sums = np.zeros(out.shape, out.dtype)
        for step in range(begin, min(len(w), begin + CHAIN)):
            sums += x[:, step, None] * w[step]
        total += sums
    out[...] = total
