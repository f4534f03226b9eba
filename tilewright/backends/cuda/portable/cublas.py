"""cuBLAS by its own name: what a product is summed in is said with the call, by no switch of torch.

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

from tilewright.errors import DeviceError

_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
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


class Gemm:
    """Equal products C = alpha A B + beta C at equal distances: one call, on any addresses."""

    def __init__(
        self,
        dtype: str,
        precision: str,
        sizes: tuple[int, int, int],
        count: int,
        operands: tuple[Matrix, Matrix, Matrix],
        alpha: float,
        beta: float,
    ) -> None:
        """`sizes`: m, n, k. `precision`: "tf32" for float32 that may be rounded, else "ieee"."""
        import torch

        (m, n, k), (a, b, c) = sizes, operands
        self._swaps = not c.turned
        if self._swaps:
            m, n, a, b = n, m, b, a
        wide = dtype == "float64"
        number = ctypes.c_double if wide else ctypes.c_float
        self._alpha, self._beta = number(alpha), number(beta)  # read at each call
        long, kind = ctypes.c_longlong, ctypes.c_int(_TYPES[dtype])
        batched = count > 1

        def lies(one: Matrix) -> tuple[Any, ...]:
            return (kind, long(one.lead), *((long(one.apart),) if batched else ()))

        turned = [
            ctypes.c_int(_AS_IT_LIES if one.turned is c.turned else _TURNED) for one in (a, b)
        ]
        tf32 = precision == "tf32" and dtype == "float32"
        compute = _COMPUTE_64F if wide else _COMPUTE_TF32 if tf32 else _COMPUTE_32F
        how = (ctypes.c_int(compute), ctypes.c_int(_HEURISTICS))
        # Set anew for each call, under a lock: the arguments themselves are made once.
        at = [ctypes.c_void_p() for _ in range(4)]
        self._at_handle, self._at_a, self._at_b, self._at_c = at
        self._lock = threading.Lock()
        head = (at[0], *turned, long(m), long(n), long(k), ctypes.byref(self._alpha))
        matrices = (at[1], *lies(a), at[2], *lies(b), ctypes.byref(self._beta), at[3], *lies(c))
        self._arguments = (*head, *matrices, *((long(count),) if batched else ()), *how)
        library = _library()
        name = "cublasGemmStridedBatchedEx_64" if batched else "cublasGemmEx_64"
        self._call: Callable[..., int] = getattr(library, name)
        self._set_mode: Callable[..., int] = library.cublasSetMathMode
        self._mode = ctypes.c_int(_WHOLE_SUMS if dtype.endswith("float16") else _DEFAULT_MATH)
        self._handle: Callable[[], int] = torch._C._cuda_getCurrentBlasHandle

    def __call__(self, a: int, b: int, c: int) -> None:
        """Enqueue on torch's current stream of the current device. Raises DeviceError."""
        if self._swaps:
            a, b = b, a
        with self._lock:
            self._at_a.value, self._at_b.value, self._at_c.value = a, b, c
            self._at_handle.value = self._handle()
            status = self._set_mode(self._at_handle, self._mode) or self._call(*self._arguments)
        if status:
            raise DeviceError(f"cuBLAS: status {status}; accepted is 0, as cublasStatus_t has it")
