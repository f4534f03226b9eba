"""A plain batch that a plan would cost more than it saves: a loop of products.

Checked columns, tables and a launch take about 0.2 ms and 0.8 µs a product, a product of NumPy's
0.5 µs where it is asked as `a.dot(b)` (0.8 as `a @ b`). What a kernel saves beside that is a part
of each operation's time. On two cores, picoseconds an operation: a loop of 40 products 6, of a
thousand 13 (its results no longer lie in a cache), the kernel 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import settings
from tilewright.operands import NDArray

_PLAIN = np.ndarray
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_FIXED = 2e-4
_PRODUCT = 0.2e-6  # a product's share of columns and tables beyond that of a call of NumPy's
_MANY, _SAVED, _SAVED_OF_MANY = 256, 2e-12, 8e-12  # seconds an operation
_FEW = 6  # of these BLAS's own threads make the most


def products(a: Any, b: Any) -> list[NDArray] | None:
    """Every a[i] @ b[i], or None where the batch is to be checked and planned like any other."""
    if (type(a) is not list and type(a) is not tuple) or not a:
        return None
    if (type(b) is not list and type(b) is not tuple) or len(a) != len(b):
        return None
    pairs = list(zip(a, b, strict=False))  # held: another thread may change the lists
    x, y = pairs[0]
    if type(x) is not _PLAIN:
        return None
    dtype = x.dtype
    if dtype is not _SINGLE and dtype is not _DOUBLE:
        return None
    for x, y in pairs:
        if type(x) is not _PLAIN or type(y) is not _PLAIN or x.dtype is not dtype:
            return None
        if y.dtype is not dtype or x.ndim != 2 or y.ndim != 2:
            return None
    # Asking the environment takes as long as a product, so it is asked last.
    if len(pairs) > _FEW and _is_for_a_plan(pairs) and settings.device() != "host":
        return None
    try:
        return [x.dot(y) for x, y in pairs]
    except (ValueError, MemoryError):
        return None  # the checks have the words for it


def _is_for_a_plan(pairs: list[tuple[NDArray, NDArray]]) -> bool:
    return is_worth_planning(len(pairs), 2.0 * sum(x.size * y.shape[1] for x, y in pairs))


def is_worth_planning(count: int, flops: float) -> bool:
    """Whether a kernel saves more than it costs to reach it, plan and kernel found again."""
    saved = (_SAVED if count < _MANY else _SAVED_OF_MANY) * flops
    return count > _FEW and saved > _FIXED + _PRODUCT * count
