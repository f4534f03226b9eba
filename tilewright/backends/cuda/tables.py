"""One table on the device for all that a bound batch has to say, uploaded once without waiting.

    int64 words   [ records 16 x problems | more int64 lists | int32 lists, two a word ]
                  each list begins at a multiple of 16 bytes

The upload goes through pinned memory on torch's current stream: the host does not wait for it, and
torch keeps the pinned block until the copy has read it. While a stream is captured into a CUDA
graph the block lives as long as the table itself, since each replay copies from it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.engine import Ints, Work

WORDS = 16  # int64 words of a record (kernels/record.py)


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists on the device: `held` owns the memory and must be kept, `at` has a view of each."""

    held: Any
    at: tuple[Any, ...]


def records(work: Work) -> Ints:
    """[problems, WORDS] as kernels/record.py draws it."""
    table = np.zeros((len(work.m), WORDS), np.int64)
    table[:, 0], table[:, 1], table[:, 2] = work.a.address, work.b.address, work.c.address
    if work.bias is not None:
        table[:, 3] = work.bias.address
    table[:, 4], table[:, 5], table[:, 6] = work.m, work.n, work.k
    for at, part in ((7, work.a), (9, work.b), (11, work.c)):
        table[:, at], table[:, at + 1] = part.row, part.col
    table[:, 13] = np.ascontiguousarray(work.alpha, np.float64).view(np.int64)
    table[:, 14] = (work.beta + 0.0).view(np.int64)  # -0.0 becomes 0: all bits zero
    return table


def upload(lists: list[npt.NDArray[Any]], ordinal: int) -> Lists:
    """These lists on a device, in one copy. Raises torch's OutOfMemoryError."""
    import torch

    starts, size = [], 0
    for part in lists:
        starts.append(size)
        size += -(-part.nbytes // 16) * 16
    packed = np.zeros(size, np.uint8)
    for start, part in zip(starts, lists, strict=True):
        packed[start : start + part.nbytes] = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    held = torch.from_numpy(packed)
    if ordinal >= 0:
        pinned = held.pin_memory()
        held = pinned.to(torch.device("cuda", ordinal), non_blocking=True)
        if torch.cuda.is_current_stream_capturing():
            held.copied_from = pinned  # a tensor keeps what is set on it
    views = []
    for start, part in zip(starts, lists, strict=True):
        dtype = torch.int64 if part.dtype == np.int64 else torch.int32
        views.append(held[start : start + part.nbytes].view(dtype))
    return Lists(held, tuple(views))


def scratch(size: int, ordinal: int) -> Any:
    """`size` bytes on a device. Raises torch's OutOfMemoryError."""
    import torch

    where = torch.device("cuda", ordinal) if ordinal >= 0 else torch.device("cpu")
    return torch.empty(size, dtype=torch.uint8, device=where)
