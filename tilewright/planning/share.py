"""Which products of a batch NumPy's BLAS does faster than a CPU's grouped kernel.

A kernel that reads operands where they lie is made for many small products. One that is large in
every direction is a BLAS's home game, which packs both operands: 2000 x 2000 x 2000 on two cores
ran at 283 GFLOP/s there and at 198 in the kernel, 768 to 1400 at 1.2 to 1.5 times its rate, 512 and
below at the same or less.

>>> import numpy as np
>>> large(np.array([2000, 8, 4000]), np.array([2000, 8, 4000]), np.array([2000, 8, 20])).tolist()
[True, False, False]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_SIDE = 256  # a side narrower than this leaves a BLAS little to gain from packing
_FLOPS = 2.0 * 900**3


def large(m: Ints, n: Ints, k: Ints) -> npt.NDArray[np.bool_]:
    """A flag a product."""
    narrow = np.minimum(np.minimum(m, n), k)
    flops = 2.0 * m * n.astype(np.float64) * k
    found: npt.NDArray[np.bool_] = (narrow >= _SIDE) & (flops >= _FLOPS)
    return found
