"""What a layer is made of is checked before torch makes anything: sizes, and the weights' dtype."""

from __future__ import annotations

from operator import index
from typing import Any

import torch

from tilewright.errors import ArgumentError, DtypeError
from tilewright.wording import short


def checked_sizes(**sizes: Any) -> tuple[int, ...]:
    """Whole numbers from 0, torch's and NumPy's too. Raises ArgumentError."""
    return tuple(_size(name, size) for name, size in sizes.items())


def _size(name: str, size: Any) -> int:
    try:
        found = -1 if isinstance(size, bool) else index(size)
    except TypeError:
        found = -1
    if found < 0:
        raise ArgumentError(f"{name}={short(size)}: accepted are whole numbers from 0")
    return found


def check_weights_dtype(dtype: Any) -> None:
    """Weights are drawn, and trained: in floating point. Raises DtypeError."""
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return
    raise DtypeError(f"dtype={short(dtype)}: accepted are torch's of floating point, or None")
