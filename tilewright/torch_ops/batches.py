"""A RaggedBatch of tensors as a list of views, and a list as a batch; gradients pass both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tilewright.arrays.aligned import aligned_offsets
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.tensors import check_tensor


def unpacked(batch: RaggedBatch, name: str) -> list[Tensor]:
    """The matrices, as views of `flat`.

    Where they follow each other they are cut in one piece, whose gradient is one concatenation; a
    slice each would have a gradient as long as `flat` each.
    """
    check_tensor(batch.flat, f"{name}.flat")
    starts, sizes = batch.offsets, batch.rows * batch.cols
    ends = starts + sizes
    if len(batch) == 0 or (starts[1:] < ends[:-1]).any():
        return list(batch)
    gaps = np.append(starts[1:], batch.flat.shape[0]) - ends
    cuts = np.stack((sizes, gaps), axis=1).reshape(-1).tolist()
    parts = batch.flat.split([int(starts[0]), *cuts])[1::2]
    shapes = zip(parts, batch.rows.tolist(), batch.cols.tolist(), strict=True)
    return [part.view(rows, cols) for part, rows, cols in shapes]


def packed(matrices: Sequence[Tensor]) -> RaggedBatch:
    """The matrices in one allocation, each at a multiple of 64 bytes."""
    rows = np.array([one.shape[0] for one in matrices], np.int64)
    cols = np.array([one.shape[1] for one in matrices], np.int64)
    offsets, total = aligned_offsets(rows, cols, matrices[0].element_size())
    gaps = np.append(offsets[1:], total) - (offsets + rows * cols)
    pieces: list[Any] = []
    for one, gap in zip(matrices, gaps.tolist(), strict=True):
        pieces += [one.reshape(-1), one.new_zeros(gap)] if gap else [one.reshape(-1)]
    return RaggedBatch(torch.cat(pieces), rows, cols, offsets)
