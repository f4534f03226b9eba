"""Batches as the engines of the CUDA back end get them, of row-major matrices that nobody reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.addresses import Columns, row_major
from tilewright.backends.cuda.work import Work
from tilewright.facts.dtypes import ITEMSIZE


def dense_work(sizes: Any, dtype: str = "float32", apart: int = 256, **fields: Any) -> Work:
    """Products of these sizes, [problems, 3]; matrices begin at multiples of `apart` bytes."""
    item = ITEMSIZE[dtype]

    def dense(rows: Any, cols: Any) -> Columns:
        size = -(-rows * cols * item // apart) * apart
        return row_major(rows, cols, (1 << 30) + np.cumsum(size) - size, item)

    m, n, k = np.array(sizes, np.int64).T
    ones = np.ones(len(m))
    parts: Any = {"a": dense(m, k), "b": dense(k, n), "c": dense(m, n)}
    given: Any = {"alpha": ones, "beta": 0 * ones, "dtype": dtype, **fields}
    return Work(ordinal=0, **parts, **given)
