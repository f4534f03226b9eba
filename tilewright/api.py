"""The public calls: arguments checked here, one clear error each, nothing written before they pass.

matmul    checks -> views -> problem -> plan -> back end
explain   the same as far as the plan, and tells it
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import settings
from tilewright.arguments import check_options, checked_dtype, checked_shape
from tilewright.call import ALWAYS_HOST, keep_bounds, known_bounds, prepare, problem_of
from tilewright.device import Device
from tilewright.errors import DtypeError, OperandError
from tilewright.operands import Array, host_array, on_gpu, short
from tilewright.planning.cost import device_seconds, epilogue_seconds
from tilewright.planning.explain import explain as explain_plan
from tilewright.remember import Shelf
from tilewright.selection import backend_of, devices, resolve
from tilewright.tuning import crossover
from tilewright.watched import is_watched

__all__ = ["asarray", "devices", "empty", "explain", "kernels", "matmul"]

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
# Plain products (no option but the operands) that a plan has left to the host: NumPy gets them at
# once the next time. Planning them again would add 40 µs to products that take about as long.
_plain: Shelf[tuple[Any, ...], bool] = Shelf("plain products of the host", most=1 << 20)


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    device: Device | str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    accumulate: str | None = None,
) -> Any:
    """activation(alpha · op(a) @ op(b) + beta · out + bias), the semantics of BLAS GEMM.

    Args:
        a: [..., m, k], or [k]; NumPy, pyopencl or tilewright array, any CPU array with DLPack, or
            an array on a GPU: torch, CuPy, DLPack. Those run on torch's current stream (CuPy's for
            CuPy arrays), nothing waits, and a CUDA graph can capture it.
        b: [..., k, n], or [k]; the same kind and dtype as `a`. Leading dimensions broadcast and
            vectors behave as in `numpy.matmul`.
        out: [..., m, n], the same kind and dtype; may be strided, must not overlap an input.
            Where `beta` is 0 it is not read, so NaN in it does no harm.
        alpha, beta: real numbers; `beta` other than 0 needs `out`.
        transpose_a, transpose_b: swap the last two dimensions first (no copy).
        bias: [n], added to every row.
        activation: "none", "relu" or "gelu" (the exact one, by erf), applied last.
        device: a Device, "host", "opencl", "opencl:0", "opencl:intel"; default TILEWRIGHT_DEVICE or
            the best device. Products that NumPy's BLAS does faster, transfer included, stay there.
        kernel: one of `kernels(device)`, used whatever it costs.
        precision: None, the dtype's own IEEE arithmetic. For float32 on a GPU also "tf32", and
            "fp32x": errors like IEEE's, on tensor cores where those are faster (docs/gpu.md).
        accumulate: "fp16" sums float16 products in float16: error grows with k · 2^-11 instead of
            2^-11. Default: float16 is summed in float32.

    Returns:
        `out`, or a new array of `a`'s kind: [..., m, n], dimensions of vectors dropped. Of torch
        tensors it is differentiable where `out` is None, and under autocast in its dtype
        (docs/pytorch.md).

    dtypes are float16, float32 and float64, on a GPU of torch's also bfloat16. Any size from 0 up;
    k == 0 gives beta · out.

    Raises:
        ShapeError, DtypeError, ArgumentError, OperandError, OverlapError, KernelError: before
            anything is written.
        DeviceError, DeviceMemoryError: the device is absent, failed or has too little memory.
    """
    if (
        type(a) is np.ndarray
        and type(b) is np.ndarray
        and out is bias is activation is device is kernel is precision is accumulate is None
        and type(alpha) is type(beta) is float
        and alpha == 1.0
        and beta == 0.0
        and transpose_a is transpose_b is False
        and _is_host_product(a, b)
    ):
        return np.matmul(a, b)
    plans = sys.modules.get("tilewright.tensor_plans")  # loaded by the first product on a GPU
    if plans is not None and out is bias is None:
        # In the signature's order, in one tuple: the short way is asked first, at each call.
        # fmt: off
        found = plans.again(
            a, b, (alpha, beta, transpose_a, transpose_b, activation, device, kernel, precision,
                   accumulate),
        )
        # fmt: on
        if found is not None:
            return found
    multiply = _matmul_by_torch
    if not is_watched(a, b, bias, out):
        multiply = _matmul_on_gpu if on_gpu(a) or on_gpu(b) else _matmul
    return multiply(
        a,
        b,
        out=out,
        alpha=alpha,
        beta=beta,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        bias=bias,
        activation=activation,
        device=device,
        kernel=kernel,
        precision=precision,
        accumulate=accumulate,
    )


def explain(a: Any, b: Any, **options: Any) -> str:
    """The report of the plan that `matmul(a, b, **options)` would follow; nothing is computed.

    Kernel, configuration, predicted time, the measured crossover, vendor rules, and each rejected
    alternative with its reason. Raises what `matmul` raises.
    """
    check_options(options, matmul.__kwdefaults__ or ())
    if on_gpu(a) or on_gpu(b):
        from tilewright import tensor_call, tensors

        return tensors.explain(tensor_call.prepare(a, b, **options))
    call = prepare(a, b, **options)
    measured = call.measured()
    chosen = call.plan
    if measured is not None and chosen.seconds is None:
        seconds = device_seconds(chosen.step, chosen.problem, measured, host=call.host_operands)
        if seconds is not None:
            seconds = seconds * chosen.ratio + epilogue_seconds(chosen.problem, chosen.device)
        chosen = replace(chosen, seconds=seconds)
    return explain_plan(chosen, measured, math.prod(call.views["c"].shape[:-2]))


def kernels(device: Device | str | None = None) -> tuple[str, ...]:
    """Names of the kernels that can run on a device (float32), for `kernel=`.

    For a GPU of torch's the names of its engines.
    """
    chosen = resolve(device)
    if chosen.backend == "cuda":
        from tilewright.backends.cuda import engines

        return engines.names()
    sample = problem_of(64, 64, 64, (64, 1), (64, 1), (64, 1), "float32", "float32")
    return tuple(
        kernel.name
        for kernel in backend_of(chosen).kernels(chosen)
        if kernel.supports(sample, chosen) is True
    )


def empty(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = np.float32,
    device: Device | str | None = None,
    *,
    memory: str | None = None,
) -> Array:
    """An uninitialised `Array` on a device.

    `memory` is "allocate" (default: memory that host and device both reach), "copy" or "use";
    TILEWRIGHT_MEMORY changes the default. Raises ShapeError, DtypeError, DeviceMemoryError.
    """
    chosen = resolve(device)
    sizes = checked_shape(shape)
    wanted = checked_dtype(dtype)
    size = int(np.prod(sizes, dtype=object)) * wanted.itemsize
    held = backend_of(chosen).allocate(size, chosen, settings.memory(memory))
    return Array(held, sizes, wanted)


def asarray(
    value: Any,
    dtype: npt.DTypeLike | None = None,
    device: Device | str | None = None,
    *,
    memory: str | None = None,
) -> Array:
    """`value` as an `Array` on a device: C-ordered, in one of the three ways of `empty`.

    With memory="use" the device works in `value`'s own memory, which must then be C-ordered and of
    the right dtype; nothing is copied and `value` must not be touched while the array is in use.
    """
    chosen = resolve(device)
    way = settings.memory(memory)
    source = host_array(value, "value")
    wanted = checked_dtype(source.dtype if dtype is None else dtype)
    if source.dtype.kind == "c":
        raise DtypeError(
            f"value.dtype={str(source.dtype)!r}: its imaginary part would be lost; accepted are"
            " real numbers, as value.real gives"
        )
    try:
        dense = np.asarray(source, dtype=wanted, order="C")
    except (TypeError, ValueError) as error:
        raise OperandError(f"value={short(value)}: not an array of numbers: {error}") from None
    if way == "use" and not (dense is source and source.flags.writeable):
        raise OperandError(
            f"value={source.dtype} of strides {source.strides}"
            f"{'' if source.flags.writeable else ', read-only'}: memory='use' takes writable"
            f" C-ordered arrays of {wanted} only; use memory='copy'"
        )
    held = backend_of(chosen).allocate(dense.nbytes, chosen, way, dense)
    return Array(held, source.shape, wanted)


def _matmul(a: Any, b: Any, **options: Any) -> Any:
    call = prepare(a, b, **options)
    default = options["device"] is options["kernel"] is None
    if default and call.host_operands and type(a) is type(b) is np.ndarray:
        keep_bounds(call)
        plain = not (options["transpose_a"] or options["transpose_b"]) and call.settled
        if call.plan.kernel == "host" and call.plan.problem.dtype != "float16" and plain:
            _plain.keep(_signature(a, b, settings.device()), True, size=300)
    return call.run()


crossover.on_change(_plain.clear)


def _matmul_on_gpu(a: Any, b: Any, **options: Any) -> Any:
    from tilewright import tensors

    return tensors.matmul(a, b, **options)


def _matmul_by_torch(a: Any, b: Any, **options: Any) -> Any:
    from tilewright.pytorch import dense

    return dense.matmul(a, b, **options)


def _is_host_product(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Whether a plan would leave these plain operands to NumPy for certain, or has done so."""
    dtype = a.dtype
    if dtype is not b.dtype or (dtype is not _SINGLE and dtype is not _DOUBLE):
        return False
    named = settings.device()
    if a.ndim == b.ndim == 2:
        (m, k), (rows, n) = a.shape, b.shape
        flops = 2 * m * n * k
        if k != rows:
            return False
        if named is None and flops <= ALWAYS_HOST:
            return True
        bounds = known_bounds(dtype.char, named)
        if bounds is not None and (flops == 0 or bounds.is_host(m, n, k)):
            return True
    return _plain.get(_signature(a, b, named)) is True


def _signature(a: npt.NDArray[Any], b: npt.NDArray[Any], named: str | None) -> tuple[Any, ...]:
    """What decides the plan of a plain product."""
    return (a.shape, b.shape, a.strides, b.strides, a.dtype.char, named)
