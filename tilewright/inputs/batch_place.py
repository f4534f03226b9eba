"""Finds the place that the matrices of a batch lie in, once, for everything that follows.

batch_place_host.py      NumPy, DLPack, RaggedBatch on the host or an OpenCL device
batch_place_tensors.py   lists with torch's tensors in the host's memory
batch_place_gpu.py       torch's tensors, CuPy, DLPack on a GPU, and RaggedBatch there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arrays.views import on_gpu
from tilewright.errors import ArgumentError
from tilewright.inputs.batch_place_host import BatchOnHost
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.wording import short


def host_place(*, watched: bool = False) -> BatchOnHost:
    """The place of operands off GPUs; `watched` where torch's tensors are among them."""
    if not watched:
        return BatchOnHost()
    from tilewright.inputs.batch_place_tensors import BatchOnProcessor

    return BatchOnProcessor()


def lies_on_gpu(values: Any) -> bool:
    """Whether a list, by its first matrix, or a RaggedBatch lies on a GPU."""
    if isinstance(values, RaggedBatch):
        return on_gpu(values.flat)
    if isinstance(values, memoryview) or not isinstance(values, Sequence):
        return False  # matrices of neither are taken, and some of memoryview's give no first
    return len(values) > 0 and on_gpu(values[0])


def check_none(**options: Any) -> None:
    """Raise ArgumentError where an option of a GPU's is given for the host's arrays."""
    for name, value in options.items():
        if value is not None:
            raise ArgumentError(f"{name}={short(value)}: accepted is None for the host's arrays")
