"""Ragged products on processors: a loop of torch's own products, one a group.

Offsets lie in the host's memory there, so they are read and checked before anything is written.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tilewright.errors import ShapeError


def write_product(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Any, out: Tensor, precision: str
) -> None:
    """Either product, into `out`; rows of `out` without a group stay as they are.

    Raises ShapeError for offsets that run past the rows.
    """
    if w.dim() == 3:
        bounds = _bounds(offsets, x.shape[0], leading=offsets.shape[0] > w.shape[0])
        for group, (begin, end) in enumerate(bounds):
            if end > begin:
                product = torch.mm(x[begin:end], w[group])
                out[begin:end] = product if bias is None else product + bias[group]
        return
    for group, (begin, end) in enumerate(_bounds(offsets, x.shape[1], leading=False)):
        out[group] = torch.mm(x[:, begin:end], w[begin:end])


def new_product(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, precision: str) -> Tensor:
    """Either product; rows without a group, and groups without rows, are zero."""
    rows = (x.shape[0], w.shape[-1])
    out = x.new_zeros(rows if w.dim() == 3 else (offsets.shape[0], *rows))
    write_product(x, w, offsets, bias, out, precision)
    return out


def _bounds(offsets: Tensor, most: int, *, leading: bool) -> list[tuple[int, int]]:
    values = offsets.tolist()
    if not leading:
        values = [0, *values]
    for group, (begin, end) in enumerate(pairwise(values)):
        if not 0 <= begin <= end <= most:
            raise ShapeError(
                f"offsets[group {group}]: goes from {begin} to {end}; must not decrease, begin"
                f" below 0 or run past the {most} rows"
            )
    return list(pairwise(values))
