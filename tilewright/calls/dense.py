"""One product of arrays that torch need not see: of the host, or on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.views import on_gpu
from tilewright.calls import dense_quick_host

_NONE = ("out", "bias", "activation", "device", "kernel", "precision", "accumulate")


def matmul(a: Any, b: Any, **options: Any) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`; every option is given."""
    if on_gpu(a) or on_gpu(b):
        from tilewright.calls import dense_gpu

        return dense_gpu.matmul(a, b, **options)
    if (
        type(a) is type(b) is np.ndarray
        and _is_plain(**options)
        and dense_quick_host.is_host_product(a, b)
    ):
        return np.matmul(a, b)
    return dense_quick_host.planned(a, b, **options)


def _is_plain(alpha: Any, beta: Any, transpose_a: Any, transpose_b: Any, **others: Any) -> bool:
    return (
        all(others[name] is None for name in _NONE)
        and type(alpha) is type(beta) is float
        and alpha == 1.0
        and beta == 0.0
        and transpose_a is transpose_b is False
    )
