"""cuBLAS's grouped call through ctypes: every problem a group of its own, tables made beforehand.

`cublasGemmGroupedBatchedEx` (cuBLAS 12.5 and later; NVIDIA, cuBLAS library documentation, section
2.8): pointer tables lie on the device, sizes and scalars on the host, matrices are column-major.
Row-major C = A B is column-major C' = B' A': B goes first and m and n change places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_NO_TRANSPOSE = 0
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
_COMPUTE = {"ieee": 68, "tf32": 77, "double": 70}  # cublasComputeType_t


def library() -> ctypes.CDLL | None:
    """The cuBLAS that torch has loaded, or None where it has no grouped call."""
    import torch

    major = str(torch.version.cuda).partition(".")[0]
    try:
        cublas = ctypes.CDLL(f"libcublas.so.{major}")
    except OSError:
        return None
    return cublas if hasattr(cublas, "cublasGemmGroupedBatchedEx") else None


def bind(
    cublas: ctypes.CDLL,
    a: Sequence[Any],
    b: Sequence[Any],
    c: Sequence[Any],
    precision: str = "ieee",
) -> Callable[[], None]:
    """A callable that only calls, on torch's current stream. Raises RuntimeError where refused."""
    import torch

    count = len(a)
    dtype = str(a[0].dtype).rpartition(".")[2]
    m, n, k = (
        np.array([x.shape[axis] for x in part], np.int32) for part, axis in ((a, 0), (b, 1), (a, 1))
    )
    # A matrix without columns has step 0, which cuBLAS refuses.
    steps = [np.array([max(1, x.stride(0)) for x in part], np.int32) for part in (b, a, c)]
    none, ones = np.full(count, _NO_TRANSPOSE, np.int32), np.ones(count, np.int32)
    scale = np.float64 if dtype == "float64" else np.float32
    alpha, beta = np.ones(count, scale), np.zeros(count, scale)
    pointers = [
        torch.tensor([x.data_ptr() for x in part], dtype=torch.int64, device="cuda")
        for part in (b, a, c)
    ]
    kind = _TYPES[dtype]
    compute = _COMPUTE["double" if dtype == "float64" else precision]

    def at(table: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(table.ctypes.data)

    operands = [
        value
        for pointer, step in zip(pointers, steps, strict=True)
        for value in (ctypes.c_void_p(pointer.data_ptr()), kind, at(step))
    ]
    arguments = [at(none), at(none), at(n), at(m), at(k), at(alpha), *operands[:6]]
    arguments += [at(beta), *operands[6:], count, at(ones), compute]
    held = (m, n, k, steps, none, ones, alpha, beta, pointers, a, b, c)

    def call(held: Any = held) -> None:
        handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
        status = cublas.cublasGemmGroupedBatchedEx(handle, *arguments)
        if status:
            raise RuntimeError(f"cublasGemmGroupedBatchedEx: status {status}")

    return call
