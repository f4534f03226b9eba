"""Problem: the sizes, strides and flags of one product, as plans and kernels know it.

Worked example: C[2x3] = A[2x4] @ B[4x3], all row-major, A passed as the transpose of a 4x2 array:

    m=2 n=3 k=4   a_row=1 a_col=2   b_row=3 b_col=1   c_row=3 c_col=1

A transpose is nothing but two strides swapped, so no column says "transposed".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ACTIVATIONS = ("none", "relu", "gelu")
Column = npt.NDArray[np.int64]  # one size of every problem of a batch


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = activation(alpha * A[m, k] @ B[k, n] + beta * C + bias[n]); strides in elements.

    `aligned` promises that A and B start at multiples of 16 bytes, in every matrix of a batch.
    """

    m: int
    n: int
    k: int
    a_row: int
    a_col: int
    b_row: int
    b_col: int
    c_row: int
    c_col: int
    dtype: str = "float32"
    accumulate: str = "float32"
    bias: bool = False
    activation: str = "none"
    aligned: bool = False

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product itself."""
        return 2 * self.m * self.n * self.k

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def traffic(self) -> int:
        """Bytes that must move at least: every operand once."""
        return (self.m * self.k + self.k * self.n + self.m * self.n) * self.itemsize
