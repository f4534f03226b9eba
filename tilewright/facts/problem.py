"""Batch: the sizes, strides and flags of every problem, one NumPy column each.

One product is a batch of one. Columns, because planning 100,000 problems has to be array code;
the kernels of a single product ask for `batch.problem(i)`, the same numbers as plain ints.

Worked example: C[2x3] = A[2x4] @ B[4x3], all row-major, A passed as the transpose of a 4x2 array:

    m=2 n=3 k=4   a_row=1 a_col=2   b_row=3 b_col=1   c_row=3 c_col=1

A transpose is nothing but two strides swapped, so no column says "transposed".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

ACTIVATIONS = ("none", "relu", "gelu")
Column = npt.NDArray[np.int64]


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


@dataclass(frozen=True)
class Batch:
    """Columns of every problem's sizes and strides (elements), and what all problems share."""

    m: Column
    n: Column
    k: Column
    a_row: Column
    a_col: Column
    b_row: Column
    b_col: Column
    c_row: Column
    c_col: Column
    dtype: str = "float32"
    accumulate: str = "float32"
    bias: bool = False
    activation: str = "none"
    aligned: bool = False

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> Batch:
        """The batch of these problems, which must share dtype, accumulator and epilogue."""
        if not problems:
            raise ValueError("problems=[]: a batch needs at least one problem")
        first = problems[0]
        columns: dict[str, Any] = {
            name: np.array([getattr(problem, name) for problem in problems], dtype=np.int64)
            for name in _COLUMNS
        }
        return cls(**columns, **{name: getattr(first, name) for name in _SHARED})

    def __len__(self) -> int:
        return len(self.m)

    def problem(self, index: int) -> Problem:
        """Problem `index` as plain numbers."""
        columns: dict[str, Any] = {name: int(getattr(self, name)[index]) for name in _COLUMNS}
        return Problem(**columns, **{name: getattr(self, name) for name in _SHARED})

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of the whole batch."""
        return int(2 * np.sum(self.m.astype(object) * self.n * self.k))


_COLUMNS = ("m", "n", "k", "a_row", "a_col", "b_row", "b_col", "c_row", "c_col")
_SHARED = tuple(field.name for field in fields(Problem) if field.name not in _COLUMNS)
