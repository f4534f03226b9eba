"""RaggedBatch on a GPU: the few things that NumPy does for batches of the host, done by torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import on_gpu
from tilewright.backends.cuda.machine import arrays, driver
from tilewright.errors import DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device

Ints = npt.NDArray[np.int64]


def empty_ragged(
    rows: Ints, cols: Ints, dtype: Any, device: Device
) -> tuple[Any, Ints, Ints, Ints]:
    """The arguments of RaggedBatch for uninitialised aligned matrices on a GPU."""
    kind = arrays.element_type(dtype)
    offsets, total = aligned_offsets(rows, cols, kind.itemsize)
    return arrays.empty(total, kind, driver.ordinal_of(device)), rows, cols, offsets


def ragged_of(matrices: Sequence[Any]) -> tuple[Any, Ints, Ints, Ints]:
    """The arguments of RaggedBatch for a copy of these matrices, which lie on one GPU."""
    lie, kind, ordinal = arrays.columns(matrices, "matrices")
    rows, cols = lie.rows, lie.cols
    offsets, total = aligned_offsets(rows, cols, kind.itemsize)
    flat = arrays.empty(total, kind, ordinal)
    for matrix, start, m, n in zip(
        matrices, offsets.tolist(), rows.tolist(), cols.tolist(), strict=True
    ):
        flat[start : start + m * n].view(m, n).copy_(arrays.as_torch(matrix, "matrices"))
    return flat, rows, cols, offsets


def matrix(x: Any) -> Any:
    """A C-ordered matrix on a GPU, checked, as torch sees it."""
    seen = arrays.view(x, "x")
    if len(seen.shape) != 2:
        raise ShapeError(f"x.shape={seen.shape}: must be a C-ordered matrix")
    tensor = arrays.as_torch(x, "x")
    if not tensor.is_contiguous():
        raise OperandError(f"x.strides={seen.strides}: must be a C-ordered matrix")
    return tensor


def moved(flat: Any, device: Device) -> Any:
    """The elements on a GPU, from the host or from another GPU."""
    torch = driver.need()
    where = torch.device("cuda", driver.ordinal_of(device))
    there = on_gpu(flat)
    held = arrays.as_torch(flat, "flat") if there else torch.from_numpy(np.ascontiguousarray(flat))
    return held.to(where, copy=True)


def to_host(flat: Any) -> NDArray:
    """The elements as a NumPy array. Raises DtypeError for bfloat16."""
    if arrays.element_type(flat.dtype).name == "bfloat16":
        raise DtypeError("flat.dtype='bfloat16': NumPy has none; accepted is .flat.float()")
    host: NDArray = arrays.as_torch(flat, "flat").cpu().numpy()
    return host


def check_flat(flat: Any) -> None:
    """Raise unless this is a dense vector of a known dtype."""
    seen = arrays.view(flat, "flat")
    if len(seen.shape) != 1 or (seen.shape[0] > 1 and seen.strides != (1,)):
        raise OperandError(
            f"flat={seen.shape} of strides {seen.strides}: must be a dense array of one dimension"
        )
