"""Sends one product to a GPU or to the host, by where its arrays lie.

Torch's gradients were dealt with before.
"""

from __future__ import annotations

from typing import Any

from tilewright.arrays.views import on_gpu
from tilewright.calls import dense_quick_host, dense_run_host


def matmul(a: Any, b: Any, **options: Any) -> Any:
    """Arguments, results and errors are those of `tilewright.matmul`; every option is given."""
    if on_gpu(a) or on_gpu(b):
        from tilewright.calls import dense_run_gpu

        return dense_run_gpu.matmul(a, b, **options)
    return dense_quick_host.planned(a, b, **options)


def explain(a: Any, b: Any, **options: Any) -> str:
    """The report of the plan that `matmul` would follow."""
    if on_gpu(a) or on_gpu(b):
        from tilewright.calls import dense_run_gpu

        return dense_run_gpu.explain(a, b, **options)
    return dense_run_host.explain(a, b, **options)
