"""Products whose sizes lie on the device: offsets are a tensor there and are never read back.

    ragged_matmul(x [t, k], w [g, k, n], offsets) -> [t, n]       rows grouped by offsets
    ragged_matmul(x [m, t], y [t, n], offsets)    -> [g, m, n]    k grouped: weight gradients

A group of mixture-of-experts tokens or of a graph's typed nodes is a run of rows; how long each run
is, the router or the sampler has left in GPU memory. One small kernel plans there, above
2,048 groups three (in the second form two).

On Hopper fp16 and bf16 run on wgmma and the copy engine (hopper_rows.py and hopper_depths.py of
backends/cuda/ragged) where rows of the operands are contiguous and begin at multiples of 16 bytes:
in the first form w's k or n may be the contiguous one (k a multiple of 16 for n), with a bias or
without; in the second the contiguous ones are m and n. A layer's forward product and both its
gradients are such. All else, and all other GPUs, run Triton kernels (triton.py there, ragged*.py
of backends/cuda/kernels/triton). On processors the host's own kernels plan and multiply in one call
(backends/host/ragged.py): NumPy's arrays and torch's tensors there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.arrays.views import unfollowed
from tilewright.errors import ArgumentError, OperandError
from tilewright.facts.arithmetic import OF_SINGLES, asked
from tilewright.inputs.checks import check_invariant, check_is_tensor
from tilewright.inputs.watched import is_int8

_NEEDED = ("x", "w", "offsets")


def ragged_matmul(
    x: Any,
    w: Any,
    offsets: Any,
    *,
    bias: Any = None,
    out: Any = None,
    precision: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = None,
    batch_invariant: bool = False,
) -> Any:
    """Products of groups of rows, the groups given by a tensor of offsets on the same device.

    Args:
        x: tensor [t, k], its rows grouped; or [m, t], its columns grouped. Or a NumPy array, as
            all others are then; of float16, float32 or float64.
        w: tensor [g, k, n]: out[i] = x[i] @ w[group of i]; or [t, n], rows grouped as x's columns:
            out[j] = x[:, group j] @ w[group j].
        offsets: int32 or int64 tensor: where each group ends, [g]; or with the beginning of the
            first before them, [g + 1] (for the second form always ends, [g]).
        bias: [g, n], added to the rows of its group (first form only).
        out: written in place of a new tensor; must lie apart from every input, and its elements
            apart from each other. Rows past the last offset are left as they are; in a new tensor
            they are zero.
        precision: of float32 only. "tf32" lets operands be rounded to 11 bits for tensor cores;
            "fp32x": errors like IEEE's, on tensor cores where those are faster (docs/gpu.md).
            Gradients are computed so too.
        scale_a, scale_b: float32 scales of x and w, which are then float8_e4m3fn or float8_e5m2
            (`quantise_fp8` makes both), and k contiguous for speed. First form: [t, 1] with
            [g, 1, n], or [t, k / 128] with [g, k / 128, n / 128], rounded up; [t] with [g, n], and
            [] for one scale of all, also stand for the former. Second form: [m, t / 128] with
            [t / 128, n] or [t / 128, n / 128], groups beginning at multiples of 128. Sums are
            float32, and tensor cores add up no more than 128 of k before them.
            x and w may be int8 too (`quantise_int8`), in the first form, with [t, 1] and [g, 1, n]
            or what stands for them, or without scales: then the result is int32. Sums are int32,
            exact below 2^31 (any k to 131,071); past that they wrap around on processors and
            Hopper's GPUs, and on some others stay at the largest.
        out_dtype: of products with scales, torch.bfloat16 (the default) or torch.float32.
        batch_invariant: a row of the result has the same bits whatever rows lie beside it and
            however groups are cut, on one device with the same w: tiles and the order of k follow
            from n, k and the dtype alone, k is never cut, and x is copied where its rows are not
            contiguous at multiples of 16 bytes. First form only, without scales; rows of `out` must
            be contiguous. It costs next to nothing on a GPU; processors multiply by a loop of their
            own, as BLAS chooses kernels by the number of rows.

    Returns: [t, n] or [g, m, n], of x's dtype unless that has 8 bits, ordered on the current
        stream; nothing is waited for. Differentiable where `out` is None and they are tensors. On
        processors a row's bits may depend on its group's other rows, within rounding.

    Offsets that decrease, begin below zero or run past the rows cannot be seen without waiting:
    that group and those after it count as empty (of the second form only the wrong groups), and the
    next such product after the kernel has finished, or `synchronize`, raises ShapeError.

    Under autocast operands but float64 ones are cast to its dtype first, unless `out` is given.

    Raises: ShapeError, DtypeError, OperandError, OverlapError, ArgumentError.
    """
    if batch_invariant is not False:
        check_invariant(batch_invariant)
    if scale_a is not None or scale_b is not None or out_dtype is not None or is_int8(x):
        if batch_invariant:
            raise ArgumentError("batch_invariant=True: not with scales or int8; accepted is False")
        return _scaled(x, w, offsets, bias, out, precision, scale_a, scale_b, out_dtype)
    # Of NumPy's arrays a compiler must not be asked what only tensors know: it gives up.
    plain = type(x) is not np.ndarray and w is not None and offsets is not None and out is None
    if plain and getattr(x, "is_cuda", False) and (precision is None or _is_known(precision)):
        from tilewright.torch_ops.ragged import repeated

        result = repeated(x, w, offsets, bias, asked(precision, alone=batch_invariant))
        if result is not None:
            return result
    elif plain and precision is None and not batch_invariant and _lies_here(x):
        from tilewright.torch_ops.ragged import at_once

        result = at_once(x, w, offsets, bias)
        if result is not None:
            return result
    if isinstance(x, np.ndarray):
        from tilewright.calls import ragged_host

        way = unfollowed(ragged_host.product)
        return way(x, w, offsets, bias, out, precision, bool(batch_invariant))
    given = {"x": x, "w": w, "offsets": offsets, "bias": bias, "out": out}
    for name, value in given.items():
        if not hasattr(value, "data_ptr") and (value is not None or name in _NEEDED):
            raise OperandError(
                f"{name}={type(value).__name__}: accepted are torch tensors, and NumPy arrays where"
                " all are"
            )
    from tilewright.torch_ops.ragged_call import product

    return product(x, w, offsets, bias, out, precision, batch_invariant)


def explain_ragged(
    x: Any,
    w: Any,
    offsets: Any,
    *,
    bias: Any = None,
    precision: str | None = None,
    batch_invariant: bool = False,
) -> str:
    """The report of what `ragged_matmul` of these tensors would do; nothing is computed.

    Args:
        x, w, offsets, bias, precision, batch_invariant: as in `ragged_matmul`, torch's tensors.
            8-bit operands, which have scales, are not explained.

    Returns: lines of text: the engine, its tile and why, predicted seconds where there is a model
        of them, and why not the others. On a processor the host's kernels and torch's loop are
        predicted by these offsets; on a GPU, where the lengths of groups are not known, engines
        are chosen by sizes, strides and dtypes, and predict nothing.

    Raises: ShapeError, DtypeError, OperandError, ArgumentError. Offsets are checked on processors.
    """
    check_invariant(batch_invariant)
    if is_int8(x):
        raise ArgumentError("x.dtype='int8': 8-bit products are not explained; accepted are floats")
    given = {"x": x, "w": w, "offsets": offsets, "bias": bias}
    for name, value in given.items():
        if value is not None or name in _NEEDED:
            check_is_tensor(value, name)
    from tilewright.torch_ops.ragged_call import explain

    return explain(x, w, offsets, bias, precision, bool(batch_invariant))


def _scaled(
    x: Any,
    w: Any,
    offsets: Any,
    bias: Any,
    out: Any,
    precision: Any,
    scale_a: Any,
    scale_b: Any,
    out_dtype: Any,
) -> Any:
    """Of 8-bit floats and int8."""
    for name, value in (("bias", bias), ("precision", precision)):
        if value is not None:
            raise ArgumentError(f"{name}: not with scales or int8; accepted is None")
    check_is_tensor(x, "x")
    from tilewright.torch_ops.fp8_call import ragged

    return ragged(x, w, offsets, scale_a, scale_b, out, out_dtype)


def _lies_here(x: Any) -> bool:
    """Whether it is a tensor of a processor."""
    return bool(getattr(x, "is_cpu", False))


def _is_known(precision: Any) -> bool:
    """Whether it is one of the names; arrays, whose comparison has no truth, are not."""
    return isinstance(precision, str) and precision in OF_SINGLES


def synchronize(device: Any = None) -> None:
    """Wait for a GPU, then raise what its kernels found wrong in offsets or experts.

    Raises ShapeError for offsets (`ragged_matmul`), ArgumentError for experts (`moe`).
    `device` is what `torch.cuda.synchronize` takes; None is the current one.
    """
    from tilewright.backends.cuda.machine import driver, faults

    cuda = driver.need().cuda
    cuda.synchronize(device)
    where = driver.need().device(device if device is not None else cuda.current_device())
    faults.check(where.index if where.index is not None else cuda.current_device())
