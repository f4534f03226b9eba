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
    """Either product, into `out`; rows of `out` without a group stay as they are."""
    if w.dim() == 3:
        _rows(x, w, offsets, bias, out)
    else:
        _depths(x, w, offsets, out)


def new_rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, precision: str) -> Tensor:
    """The first product; rows without a group are zero."""
    out = x.new_zeros((x.shape[0], w.shape[2]))
    _rows(x, w, offsets, bias, out)
    return out


def new_depths(x: Tensor, y: Tensor, offsets: Tensor, precision: str) -> Tensor:
    """The second; groups without rows are zero."""
    out = x.new_empty((offsets.shape[0], x.shape[0], y.shape[1]))
    _depths(x, y, offsets, out)
    return out


def _rows(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, out: Tensor) -> None:
    """out[i] = x[i] @ w[group of i] + bias[group of i]; other rows stay. Raises ShapeError."""
    bounds = _bounds(offsets, x.shape[0], leading=offsets.shape[0] > w.shape[0])
    for group, (begin, end) in enumerate(bounds):
        if end > begin:
            product = torch.mm(x[begin:end], w[group])
            out[begin:end] = product if bias is None else product + bias[group]


def _depths(x: Tensor, y: Tensor, offsets: Tensor, out: Tensor) -> None:
    """out[j] = x[:, group j] @ y[group j]. Raises ShapeError."""
    for group, (begin, end) in enumerate(_bounds(offsets, x.shape[1], leading=False)):
        out[group] = torch.mm(x[:, begin:end], y[begin:end])


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
