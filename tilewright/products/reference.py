"""The truth that every kernel is tested against: one formula on the host, no shortcuts.

In float64, in complex128 where an operand is complex.
"""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host.backend import activate


def matmul(
    a: NDArray,
    b: NDArray,
    *,
    c: NDArray | None = None,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    bias: NDArray | None = None,
    activation: str = "none",
) -> NDArray:
    """activation(alpha a @ b + beta c + bias) in float64, or complex128.

    As in BLAS `a` and `b` are not read where alpha is zero, `c` not where beta is.
    """
    wide = np.result_type(a.dtype, b.dtype, np.float64)
    if alpha == 0:
        a, b = a[..., :0], b[..., :0, :]
    value: NDArray = alpha * np.matmul(a.astype(wide), b.astype(wide))
    if beta != 0 and c is not None:
        value = value + beta * c.astype(wide)
    if bias is not None:
        value = value + bias.astype(wide)
    return activate(value, activation)


def serial(a: NDArray, b: NDArray) -> NDArray:
    """One core, no BLAS: the plain compiled loop that the ladder's speed-up counts from."""
    product: NDArray = np.einsum("ij,jk->ik", a, b, optimize=False)
    return product
