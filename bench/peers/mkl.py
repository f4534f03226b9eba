"""MKL's `cblas_sgemm_batch` through ctypes: one group a problem, all tables made beforehand.

pip install mkl. Intel oneMKL developer reference, "cblas_?gemm_batch".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, files
from typing import Any

import numpy as np
import numpy.typing as npt

_ROW_MAJOR, _NO_TRANSPOSE = 101, 111
Matrix = npt.NDArray[np.float32]


def library() -> ctypes.CDLL | None:
    """MKL's single dynamic library, or None where it is not installed."""
    try:
        listed = files("mkl") or []
    except PackageNotFoundError:
        return None
    for entry in listed:
        if entry.name.startswith("libmkl_rt.so"):
            return ctypes.CDLL(str(entry.locate()))
    return None


def bind(
    mkl: ctypes.CDLL, a: Sequence[Matrix], b: Sequence[Matrix], c: Sequence[Matrix]
) -> Callable[[], None]:
    """A callable that only calls: everything else is done here."""
    count = len(a)
    m, k = (np.array([x.shape[axis] for x in a], np.int32) for axis in (0, 1))
    n = np.array([x.shape[1] for x in b], np.int32)
    none = np.full(count, _NO_TRANSPOSE, np.int32)
    one, zero = np.ones(count, np.float32), np.zeros(count, np.float32)
    groups = np.ones(count, np.int32)
    pointers = [np.array([x.ctypes.data for x in part], np.uint64) for part in (a, b, c)]
    held = (m, n, k, none, one, zero, groups, *pointers)

    def at(array: npt.NDArray[Any]) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data)

    tables: list[npt.NDArray[Any]] = [none, none, m, n, k, one]
    tables += [pointers[0], k, pointers[1], n, zero, pointers[2], n]
    arguments = (_ROW_MAJOR, *[at(table) for table in tables], count, at(groups))

    def call(held: Any = held) -> None:
        mkl.cblas_sgemm_batch(*arguments)

    return call
