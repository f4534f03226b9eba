"""A batch of arrays that torch need not see: of the host, or on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arrays.views import on_gpu
from tilewright.calls import grouped_host
from tilewright.calls.grouped_work_host import Results
from tilewright.errors import ArgumentError
from tilewright.inputs.ragged_batch import RaggedBatch


def grouped_matmul(
    a: Any,
    b: Any,
    out: Any,
    *,
    order: str,
    device: Any,
    kernel: Any,
    precision: Any,
    **options: Any,
) -> Results:
    """Arguments, results and errors are those of `tilewright.grouped_matmul`."""
    if lies_on_gpu(a) or lies_on_gpu(b):
        from tilewright.calls import grouped_gpu

        gpu = {"order": order, "device": device, "kernel": kernel, "precision": precision}
        return grouped_gpu.grouped_matmul(a, b, out, **options, **gpu)
    check_none("kernel", kernel)
    check_none("precision", precision)
    return grouped_host.grouped_matmul(a, b, out, order=order, device=device, **options)


def check_none(name: str, value: Any) -> None:
    """Raise ArgumentError where an option of a GPU's is given for the host's arrays."""
    if value is not None:
        raise ArgumentError(f"{name}={value!r}: accepted is None for the host's arrays")


def lies_on_gpu(values: Any) -> bool:
    """Whether a list, by its first matrix, or a RaggedBatch lies on a GPU."""
    if isinstance(values, RaggedBatch):
        return on_gpu(values.flat)
    return isinstance(values, Sequence) and len(values) > 0 and on_gpu(values[0])
