"""Copies of NumPy's arrays from float32 to float16 or bfloat16's numbers, and from float16 back."""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled

HALVES = ("float16", "bfloat16")
_FEW = 1 << 10  # elements below which NumPy is done sooner than a compiled function is called
_WAYS = {
    ("float32", "float16"): ("narrow", "float16"),
    ("float32", "bfloat16"): ("shorten", "float32"),
    ("float16", "float32"): ("widen", "float32"),
}


def copied(into: NDArray, value: NDArray, dtype: str) -> bool:
    """Copy `value`, rounded to `dtype`, into an array of that type; False where this is no gain.

    bfloat16 is held as float32. The arrays may lie in any order.
    """
    way = _WAYS.get((str(value.dtype), dtype))
    if way is None or into.dtype != way[1] or value.size < _FEW or not compiled.available():
        return False
    convert = getattr(compiled.kernels("halves"), way[0])
    order = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
    source, target = value.transpose(order), into.transpose(order)
    if not source.flags.c_contiguous:
        source = np.ascontiguousarray(source)
    made = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
    convert(_bits(source), _bits(made))
    if made is not target:
        np.copyto(target, made)
    return True


def _bits(array: NDArray) -> NDArray:
    """The elements one after another, as whole numbers."""
    flat = array.reshape(-1)
    return flat.view(f"u{array.dtype.itemsize}")
