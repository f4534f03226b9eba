"""Element types by name and size: NumPy has no bfloat16, so its dtypes cannot stand for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Dtype(Protocol):
    """What is asked of an element type wherever it lies; NumPy's dtypes answer it too."""

    @property
    def name(self) -> str:
        """ "float32" and the like."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """An element type of arrays on GPUs."""

    name: str
    itemsize: int


# Bytes of an element of what GPUs multiply.
ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
TYPES = {name: ElementType(name, size) for name, size in ITEMSIZE.items()}


def sums_of(dtype: str) -> str:
    """The type that products of `dtype` are summed in unless asked otherwise."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype
