"""The public calls of one product: matmul, explain, kernels.

small or plain, of the host    NumPy at once             calls/dense_quick_host.py
plain, torch's, met before     torch's own product       calls/grouped_quick_tensors.py
plain, on a GPU, seen before   the plan of that product  calls/dense_plans_gpu.py
torch must see it              gradients, compilers      torch_ops/dense.py
all others                     checked, planned, run     calls/dense.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import calls
from tilewright.arrays.views import unfollowed
from tilewright.calls import dense
from tilewright.calls.dense_quick_host import is_host_product, is_host_result
from tilewright.errors import ArgumentError, OperandError
from tilewright.facts.device import Device
from tilewright.facts.problem import Problem
from tilewright.inputs.checks import check_options
from tilewright.inputs.devices import backend_of, check_named, resolve
from tilewright.inputs.watched import is_int8, is_watched
from tilewright.settings import DEVICE, VARIABLES

__all__ = ["explain", "kernels", "matmul"]


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    device: Device | str | None = None,
    kernel: str | None = None,
    precision: str | None = None,
    accumulate: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = None,
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
        alpha, beta: real numbers, of complex matrices also complex ones; `beta` other than 0 needs
            `out`.
        transpose_a, transpose_b: swap the last two dimensions first (no copy). Nothing is
            conjugated: for an adjoint pass `a.conj()`.
        bias: [n], added to every row.
        activation: "none", "relu" or "gelu" (the exact one, by erf), applied last.
        device: a Device, "host", "opencl", "opencl:0", "opencl:intel"; default TILEWRIGHT_DEVICE or
            the best device. Products that NumPy's BLAS does faster, transfer included, stay there.
        kernel: one of `kernels(device)`, used whatever it costs.
        precision: None, the dtype's own IEEE arithmetic. For float32 on a GPU also "tf32", and
            "fp32x": errors like IEEE's, on tensor cores where those are faster (docs/gpu.md).
        accumulate: "fp16" sums float16 products in float16: error grows with k · 2^-11 instead of
            2^-11. Default: float16 is summed in float32.
        scale_a, scale_b: float32 scales of torch's 8-bit floats (`quantise_fp8`), [m, 1] with
            [1, n] or [m, k / 128] with [k / 128, n / 128], rounded up; [] is one for all. Of its
            int8 (`quantise_int8`) the first and the last of these. Then a [m, k], b [k, n], `out`
            and `out_dtype` are all that may be given beside them.
        out_dtype: of such products, torch.bfloat16 (the default) or torch.float32. Of torch's int8
            without scales int32: its sums, exact below 2^31 (any k to 131,071).

    Returns:
        `out`, or a new array of `a`'s kind: [..., m, n], dimensions of vectors dropped. Of torch
        tensors it is differentiable where `out` is None, and under autocast in its dtype
        (docs/pytorch.md).

    dtypes are float16, float32, float64, complex64 and complex128, of torch's tensors also bfloat16
    (on processors without `device`, `kernel` and `accumulate`), 8-bit floats and int8, as scales
    and out_dtype say. Complex matrices lie in the host's memory or on a GPU; OpenCL devices
    multiply none.
    Any size from 0 up; k == 0 gives beta · out.

    Raises:
        ShapeError, DtypeError, ArgumentError, OperandError, OverlapError, KernelError: before
            anything is written.
        DeviceError, DeviceMemoryError: the device is absent, failed or has too little memory.
    """
    if scale_a is not None or scale_b is not None or out_dtype is not None:
        usual = (alpha, beta, transpose_a, transpose_b) == (1.0, 0.0, False, False)
        rest = (bias, activation, device, kernel, precision, accumulate)
        return _of_8_bits(a, b, out, (scale_a, scale_b, out_dtype), usual, rest)
    if (
        type(a) is np.ndarray
        and type(b) is np.ndarray
        and (out is None or type(out) is np.ndarray)
        and bias is activation is kernel is precision is accumulate is None
        and type(alpha) is type(beta) is float
        and alpha == 1.0
        and beta == 0.0
        and transpose_a is transpose_b is False
        and is_host_product(a, b, device)
        and (out is None or is_host_result(a, b, out))
    ):
        try:
            return np.matmul(a, b, out)
        except MemoryError:
            pass  # the checks have the words for it
    if device is None and VARIABLES.get(DEVICE):
        check_named()
    # Loaded by the first product on a GPU, and an attribute of its package once it is whole. Not
    # asked of `sys.modules`: a compiler that traces this would read all of it.
    plans = getattr(calls, "dense_plans_gpu", None)
    by_known_plan = getattr(plans, "by_known_plan", None)
    if by_known_plan is not None and out is bias is None:
        # In the signature's order, in one tuple: the short way is asked first, at each call.
        # fmt: off
        found = by_known_plan(
            a, b, (alpha, beta, transpose_a, transpose_b, activation, device, kernel, precision,
                   accumulate),
        )
        # fmt: on
        if found is not None:
            return found
    # Met once, torch's small matrices are its own product: of 10 us a call seven were checks.
    product = getattr(getattr(calls, "grouped_quick_tensors", None), "product", None)
    if (
        product is not None
        and out is bias is activation is device is kernel is precision is accumulate is None
        and DEVICE not in VARIABLES
        and type(alpha) is type(beta) is float
        and alpha == 1.0
        and beta == 0.0
        and transpose_a is transpose_b is False
    ):
        found = product(a, b)
        if found is not None:
            return found
    if is_int8(a):
        usual = (alpha, beta, transpose_a, transpose_b) == (1.0, 0.0, False, False)
        rest = (bias, activation, device, kernel, precision, accumulate)
        return _of_8_bits(a, b, out, (None, None, None), usual, rest)
    seen = is_watched(a, b, bias, out)
    way: Any = _by_torch().matmul if seen else unfollowed(dense.matmul)
    return way(
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


def _of_8_bits(
    a: Any, b: Any, out: Any, scaled: tuple[Any, ...], usual: bool, rest: tuple[Any, ...]
) -> Any:
    """Of 8-bit floats and int8: `scaled` are both scales and out_dtype, `rest` other options."""
    if not usual or any(option is not None for option in rest):
        raise ArgumentError(
            "scale_a, scale_b: beside scales, and of int8, accepted are out= and out_dtype=, and no"
            " other option of matmul"
        )
    if not hasattr(a, "data_ptr"):
        raise OperandError(f"a={type(a).__name__}: with scales accepted are torch tensors")
    from tilewright.torch_ops import fp8_call

    scale_a, scale_b, out_dtype = scaled
    return fp8_call.dense(a, b, scale_a, scale_b, out, out_dtype)


def explain(a: Any, b: Any, **options: Any) -> str:
    """The report of the plan that `matmul(a, b, **options)` would follow; nothing is computed.

    Kernel, configuration, predicted time, the measured crossover, vendor rules, and each rejected
    alternative with its reason. Raises what `matmul` raises, and ArgumentError for 8-bit operands.
    """
    defaults = matmul.__kwdefaults__ or {}
    check_options(options, defaults)
    options = {**defaults, **options}
    for name in ("scale_a", "scale_b", "out_dtype"):
        if options.pop(name) is not None:
            raise ArgumentError(f"{name}: products with scales are not explained; accepted is None")
    if is_int8(a):
        raise ArgumentError(
            "a.dtype='int8': single products of it are not explained; accepted are floats, and the"
            " explain() of plan_grouped(..., dtype='int8') for lists"
        )
    if options["device"] is None:
        check_named()
    seen = is_watched(a, b, options["bias"], options["out"])
    way: Any = _by_torch() if seen else dense
    report: str = way.explain(a, b, **options)
    return report


def kernels(device: Device | str | None = None) -> tuple[str, ...]:
    """Names of the kernels that can run on a device (float32), for `kernel=`.

    For a GPU of torch's the names of its engines. `device` is as in `matmul`; raises DeviceError
    where it is not there.
    """
    chosen = resolve(device)
    if chosen.backend == "cuda":
        from tilewright.backends.cuda import choose

        return choose.names()
    sample = Problem(64, 64, 64, 64, 1, 64, 1, 64, 1)
    return tuple(
        kernel.name
        for kernel in backend_of(chosen).kernels(chosen)
        if kernel.why_not(sample, chosen) is None
    )


def _by_torch() -> Any:
    """The same calls for tensors that torch must see, imported where one is met."""
    from tilewright.torch_ops import dense as watched

    return watched
