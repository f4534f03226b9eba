"""Element types by name and size: NumPy has no bfloat16, so its dtypes cannot stand for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of arrays on GPUs."""

    name: str
    itemsize: int


Dtype = np.dtype[Any] | ElementType
_REALS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
# Complex numbers lie as their real and imaginary part, one behind the other: of these types.
PARTS = {"complex64": "float32", "complex128": "float64"}
COMPLEX = tuple(PARTS)
# Bytes of an element of what GPUs multiply.
ITEMSIZE = {**_REALS, **{name: 2 * _REALS[part] for name, part in PARTS.items()}}
# Of what values of networks hold.
VALUES = {
    **_REALS,
    "bool": 1,
    **{f"{sign}int{8 * size}": size for size in (1, 2, 4, 8) for sign in ("", "u")},
}
TYPES = {name: ElementType(name, size) for name, size in ITEMSIZE.items()}

# Of what lists of the host's arrays also hold, beside what NumPy multiplies.
NARROW = ("bfloat16", "int8")


def numpys(value: Any) -> np.dtype[Any] | None:
    """NumPy's dtype of what stands for one; None of anything else."""
    try:
        found: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError):  # ValueError: of tensors, which have a dtype
        return None
    return found


def result_of(dtype: str) -> str:
    """The type that products of matrices of `dtype` are written in."""
    return "int32" if dtype == "int8" else dtype


def sums_of(dtype: str) -> str:
    """The type that products of `dtype` are summed in unless asked otherwise."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype
