"""Slices of a batch of `torch.func.vmap`, and their results as a batch again.

An empty batch has no slice, and what a call gives for one has sizes and a dtype all the same: it is
made of a single stand-in of zeros, and dropped. The stand-in is a sum over nothing, so that
gradients pass it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def cut(value: Tensor, dim: int) -> tuple[Tensor, ...]:
    """The slices of a batch, or the stand-in of an empty one."""
    if not value.shape[dim]:
        return (value.sum(dim, dtype=value.dtype),)
    every: tuple[Tensor, ...] = value.unbind(dim)
    return every


def stacked(made: Sequence[Tensor], count: int) -> Tensor:
    """The results of `count` slices as a batch along a new first dimension."""
    whole = torch.stack(tuple(made))
    return whole if count else whole[:0]
