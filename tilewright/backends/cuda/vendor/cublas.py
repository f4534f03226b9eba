"""Calls cuBLAS directly: each call says in which type it sums, and no switch of torch is touched.

torch.mm is told by switches of the whole process whether float32 may be rounded to tf32 and halves
summed in halves. To set one and put it back is seen by every other thread meanwhile, and loses
whether the user had set it. So the library that torch has loaded is called directly, with torch's
handle of this thread, which has torch's current stream and workspace and is ready for a capture.
Torch sets the handle's mode anew whenever it takes it, so that what is set here touches no one.

Rows here are cuBLAS's columns: C' = B' A' where C's rows lie element by element.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.arrays import torch_private as private
from tilewright.errors import DeviceError
from tilewright.facts.dtypes import PARTS

# cudaDataType
_TYPES = {
    "float32": 0, "float64": 1, "float16": 2, "complex64": 4, "complex128": 5, "bfloat16": 14,
}  # fmt: skip
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77  # cublasComputeType_t
# cublasMath_t: halves are summed in float32, also where several blocks share one sum.
_DEFAULT_MATH, _WHOLE_SUMS = 0, 16
_HEURISTICS = -1  # CUBLAS_GEMM_DEFAULT
_AS_IT_LIES, _TURNED = 0, 1  # cublasOperation_t


@dataclass(frozen=True, slots=True)
class Matrix:
    """Dense rows (`turned`: columns) of an operand, `lead` elements apart, problems `apart`."""

    turned: bool
    lead: int
    apart: int


# Enqueues C = A B, given their addresses, on torch's current stream of the current device.
Product = Callable[[int, int, int], None]


@cache
def missing() -> str | None:
    """Why cuBLAS cannot be called; None where it can."""
    loaded = _library()
    return loaded if isinstance(loaded, str) else None


@cache
def _library() -> Any:
    """The library that torch has loaded, or why there is none."""
    import torch

    if torch.version.cuda is None:
        return "torch was built without CUDA"
    major = torch.version.cuda.partition(".")[0]
    name = f"cublas64_{major}.dll" if sys.platform == "win32" else f"libcublas.so.{major}"
    try:
        library = ctypes.CDLL(name)
        for used in ("cublasSetMathMode", "cublasGemmEx_64", "cublasGemmStridedBatchedEx_64"):
            getattr(library, used).restype = ctypes.c_int
    except (OSError, AttributeError) as error:
        return f"cuBLAS cannot be called ({error})"
    return library


def _number(value: complex, dtype: str, *, wide: bool) -> Any:
    """A factor as cuBLAS reads it, at each call: one number, or a real and an imaginary part."""
    number: Any = ctypes.c_double if wide else ctypes.c_float
    if dtype in PARTS:
        return ctypes.byref((number * 2)(value.real, value.imag))
    return ctypes.byref(number(value))


def product(
    dtype: str,
    precision: str,
    sizes: tuple[int, int, int],
    count: int,
    operands: tuple[Matrix, Matrix, Matrix],
    alpha: complex,
    beta: complex,
) -> Product:
    """Equal products C = alpha A B + beta C at equal distances: one call, on any addresses.

    `sizes`: m, n, k. `precision`: "tf32" for float32 that may be rounded, else "ieee". What comes
    back raises DeviceError where cuBLAS refuses.
    """
    import torch

    (m, n, k), (a, b, c) = sizes, operands
    swaps = not c.turned
    if swaps:
        m, n, a, b = n, m, b, a
    wide = PARTS.get(dtype, dtype) == "float64"
    long, kind = ctypes.c_longlong, ctypes.c_int(_TYPES[dtype])
    batched = count > 1

    def lies(one: Matrix) -> tuple[Any, ...]:
        return (kind, long(one.lead), *((long(one.apart),) if batched else ()))

    turned = [ctypes.c_int(_AS_IT_LIES if one.turned is c.turned else _TURNED) for one in (a, b)]
    tf32 = precision == "tf32" and dtype == "float32"
    compute = _COMPUTE_64F if wide else _COMPUTE_TF32 if tf32 else _COMPUTE_32F
    how = (ctypes.c_int(compute), ctypes.c_int(_HEURISTICS))
    # Set anew for each call, under a lock: the arguments themselves are made once.
    at_handle, at_left, at_right, at_c = (ctypes.c_void_p() for _ in range(4))
    at_a, at_b = (at_right, at_left) if swaps else (at_left, at_right)
    scale, keep = (_number(value, dtype, wide=wide) for value in (alpha, beta))
    head = (at_handle, *turned, long(m), long(n), long(k), scale)
    matrices = (at_left, *lies(a), at_right, *lies(b), keep, at_c, *lies(c))
    arguments = (*head, *matrices, *((long(count),) if batched else ()), *how)
    library = _library()
    name = "cublasGemmStridedBatchedEx_64" if batched else "cublasGemmEx_64"
    call, set_mode = getattr(library, name), library.cublasSetMathMode
    mode = ctypes.c_int(_WHOLE_SUMS if dtype.endswith("float16") else _DEFAULT_MATH)
    handle, lock = private.blas_handle(torch), threading.Lock()

    def multiply(a: int, b: int, c: int) -> None:
        with lock:
            at_a.value, at_b.value, at_c.value, at_handle.value = a, b, c, handle()
            status = set_mode(at_handle, mode) or call(*arguments)
        if status:
            raise DeviceError(f"cuBLAS: status {status}; accepted is 0, as cublasStatus_t has it")

    return multiply
