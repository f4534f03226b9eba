"""Products whose sizes lie on the device: offsets are a tensor there and are never read back.

    ragged_matmul(x [t, k], w [g, k, n], offsets) -> [t, n]       rows grouped by offsets
    ragged_matmul(x [m, t], y [t, n], offsets)    -> [g, m, n]    k grouped: weight gradients

A group of mixture-of-experts tokens or of a graph's typed nodes is a run of rows; how long each run
is, the router or the sampler has left in GPU memory. One small kernel plans there.

On Hopper fp16 and bf16 run on wgmma and the copy engine (backends/cuda/hopper) where rows of the
operands are contiguous and begin at multiples of 16 bytes: in the first form w's k or n may be the
contiguous one (k a multiple of 16 for n), with a bias or without; in the second the contiguous ones
are m and n. A layer's forward product and both its gradients are such. All else, and all other
GPUs, run the Triton kernels of backends/cuda/kernels/triton/ragged.py.
"""

from __future__ import annotations

from typing import Any

from tilewright.errors import ArgumentError, DtypeError, OperandError, OverlapError, ShapeError
from tilewright.facts.limits import MOST
from tilewright.inputs.overlap import check_apart
from tilewright.remember import Shelf

_PRECISIONS = (None, "tf32")
_DTYPES = ("float16", "bfloat16", "float32", "float64")
# Sizes, dtypes and devices that were checked, whatever the number of rows.
_passed: Shelf[Any, bool] = Shelf("checked ragged products", most=1 << 20)


def ragged_matmul(
    x: Any,
    w: Any,
    offsets: Any,
    *,
    bias: Any = None,
    out: Any = None,
    precision: str | None = None,
) -> Any:
    """Products of groups of rows, the groups given by a tensor of offsets on the same device.

    Args:
        x: tensor [t, k], its rows grouped; or [m, t], its columns grouped.
        w: tensor [g, k, n]: out[i] = x[i] @ w[group of i]; or [t, n], rows grouped as x's columns:
            out[j] = x[:, group j] @ w[group j].
        offsets: int32 or int64 tensor: where each group ends, [g]; or with the beginning of the
            first before them, [g + 1] (for the second form always ends, [g]).
        bias: [g, n], added to the rows of its group (first form only).
        out: written in place of a new tensor; must lie apart from every input, and its elements
            apart from each other. Rows past the last offset are left as they are; in a new tensor
            they are zero.
        precision: "tf32" lets fp32 operands be rounded to 11 bits for tensor cores.

    Returns: [t, n] or [g, m, n], of x's dtype, ordered on the current stream; nothing is waited
    for. Differentiable where `out` is None. On processors the same by a loop.

    Offsets that decrease, begin below zero or run past the rows cannot be seen without waiting:
    that group and those after it count as empty (of the second form only the wrong groups), and the
    next such product after the kernel has finished, or `synchronize`, raises ShapeError.

    Under autocast operands but float64 ones are cast to its dtype first, unless `out` is given.

    Raises: ShapeError, DtypeError, OperandError, OverlapError, ArgumentError.
    """
    given = w is not None and offsets is not None and out is None
    if given and getattr(x, "is_cuda", False) and precision in _PRECISIONS:
        from tilewright.torch_ops.ragged import repeated

        result = repeated(x, w, offsets, bias, precision or "ieee")
        if result is not None:
            return result
    key = _key(x, w, offsets, bias, precision)
    if key not in _passed:
        _check_tensors(x=x, w=w, offsets=offsets, bias=bias, out=out)
    from tilewright.torch_ops import autocast, ragged

    if out is None:
        before, (x, w, bias) = (x, w, bias), autocast.cast(x, w, bias)
        left = x is not before[0] or w is not before[1]
        if left and precision == "tf32":
            precision = None  # asked for float32, which autocast has just left
        if left or bias is not before[2]:
            key = None  # what is checked now is not what was given
    rows = w.dim() == 3
    if key is None or key not in _passed:
        _check(x, w, offsets, precision)
        _check_bias(bias, x, _groups(w, offsets, rows=rows), w, rows=rows)
        _pass(key)
    if out is not None:
        _check_tensors(x=x, out=out)
        groups = _groups(w, offsets, rows=rows)
        _check_out(out, x, (x.shape[0], w.shape[2]) if rows else (groups, x.shape[0], w.shape[1]))
        inputs = {"x": x, "w": w, "offsets": offsets, "bias": bias}
        _check_plain(**inputs, out=out)
        _check_shared(out, inputs)
        x, w, offsets, bias = (_as_it_reads(value) for value in inputs.values())
        ragged.ragged_into(x, w, offsets, bias, out, precision or "ieee")
        return out
    if rows:
        return ragged.ragged_rows(x, w, offsets, bias, precision or "ieee")
    return ragged.ragged_depths(x, w, offsets, precision or "ieee")


def synchronize(device: Any = None) -> None:
    """Wait for a GPU, then raise what its kernels found wrong in offsets (ShapeError).

    `device` is what `torch.cuda.synchronize` takes; None is the current one.
    """
    from tilewright.backends.cuda.machine import driver, faults

    cuda = driver.need().cuda
    cuda.synchronize(device)
    where = driver.need().device(device if device is not None else cuda.current_device())
    faults.check(where.index if where.index is not None else cuda.current_device())


def _key(x: Any, w: Any, offsets: Any, bias: Any, precision: str | None) -> Any:
    """What the checks look at but for the rows, or None where they must look each time.

    Not for what is no plain tensor, and not where torch.compile traces.
    """
    given = (x, w, offsets) if bias is None else (x, w, offsets, bias)
    if not all(hasattr(value, "data_ptr") for value in given):
        return None
    import torch

    plain = (torch.Tensor, torch.nn.Parameter)
    if torch.compiler.is_compiling() or not all(type(value) in plain for value in given):
        return None
    sizes, others = x.shape, w.shape
    if len(sizes) != 2 or sizes[0] > MOST or sizes[1] > MOST:
        return None
    if len(others) == 3:
        sizes = sizes[1:]
    elif len(others) == 2 and others[0] == sizes[1]:
        sizes, others = sizes[:1], others[1:]
    else:
        return None
    extra = None if bias is None else (bias.shape, bias.dtype, bias.device)
    others = (others, w.dtype, w.device, offsets.shape, offsets.dtype, offsets.device, extra)
    return precision, sizes, x.dtype, x.device, others


def _pass(key: Any) -> None:
    if key is not None:
        _passed.keep(key, True)


def _check_tensors(x: Any, **others: Any) -> None:
    """All are tensors of one device; of `others`, bias and out may be None."""
    for name, value in {"x": x, **others}.items():
        if value is None and name in ("bias", "out"):
            continue
        if not hasattr(value, "data_ptr"):
            raise OperandError(f"{name}={type(value).__name__}: accepted are torch tensors")
        if value.device != x.device:
            raise OperandError(f"{name}.device={str(value.device)!r}: x lies on {str(x.device)!r}")


def _check(x: Any, w: Any, offsets: Any, precision: str | None) -> None:
    for name, value in (("x", x), ("w", w), ("offsets", offsets)):
        if any(size > MOST for size in value.shape):  # max: torch 2.11 cannot compile it
            raise ShapeError(
                f"{name}.shape={tuple(value.shape)}: accepted are sizes from 0 to 2^31 - 64"
            )
    kind = str(x.dtype).rpartition(".")[2]
    if kind not in _DTYPES:
        raise DtypeError(f"x.dtype={kind!r}: accepted are {', '.join(_DTYPES)}")
    if w.dtype != x.dtype:
        raise DtypeError(f"w.dtype={str(w.dtype)!r}: must equal x.dtype={str(x.dtype)!r}")
    if str(offsets.dtype) not in ("torch.int32", "torch.int64"):
        raise DtypeError(f"offsets.dtype={str(offsets.dtype)!r}: accepted are int32 and int64")
    if precision not in _PRECISIONS or (precision == "tf32" and kind != "float32"):
        raise ArgumentError(f"precision={precision!r}: accepted is None, and 'tf32' for float32")
    if x.dim() != 2 or w.dim() not in (2, 3):
        raise ShapeError(
            f"x.shape={tuple(x.shape)}, w.shape={tuple(w.shape)}: accepted are [t, k] by [g, k, n],"
            " and [m, t] by [t, n]"
        )
    if x.shape[1] != w.shape[-2]:
        raise ShapeError(f"w.shape={tuple(w.shape)}: must have {x.shape[1]} rows, the columns of x")
    if offsets.dim() != 1:
        raise ShapeError(f"offsets.shape={tuple(offsets.shape)}: must have one dimension")


def _groups(w: Any, offsets: Any, *, rows: bool) -> int:
    count = int(offsets.shape[0])
    if not rows:
        return count
    groups = int(w.shape[0])
    if count not in (groups, groups + 1):
        raise ShapeError(
            f"offsets.shape=({count},): must have {groups} ends, one a matrix of w, or"
            f" {groups + 1} with the first beginning"
        )
    return groups


def _check_bias(bias: Any, x: Any, groups: int, w: Any, *, rows: bool) -> None:
    if bias is None:
        return
    if not rows:
        raise ArgumentError("bias: not with offsets along k; accepted is None")
    if tuple(bias.shape) != (groups, w.shape[2]) or bias.dtype != x.dtype:
        raise ShapeError(
            f"bias: {bias.dtype} {tuple(bias.shape)}; must be {x.dtype} ({groups}, {w.shape[2]})"
        )


def _check_out(out: Any, x: Any, shape: tuple[int, ...]) -> None:
    if tuple(out.shape) != shape:
        raise ShapeError(f"out.shape={tuple(out.shape)}: must be {shape}")
    if out.dtype != x.dtype:
        raise DtypeError(f"out.dtype={str(out.dtype)!r}: must equal x.dtype={str(x.dtype)!r}")
    if out.requires_grad:
        raise ArgumentError("out: requires a gradient; accepted is out=None then")
    check_apart("out", shape, out.stride())


def _check_plain(**tensors: Any) -> None:
    """Raise where elements do not lie in a tensor's own memory as they read: `out` needs that.

    Wrappers (quantised, distributed, fake tensors) are taken where `out` is None.
    """
    import torch

    for name, value in tensors.items():
        if value is None:
            continue
        usual = torch.Tensor.__torch_dispatch__
        if getattr(type(value), "__torch_dispatch__", usual) is not usual:
            raise OperandError(
                f"{name}={type(value).__name__}: keeps its elements elsewhere; accepted with out="
                " are plain tensors"
            )
    if tensors["out"].is_neg():
        raise OperandError("out: its memory has the negative; accepted is out.resolve_neg()")


def _as_it_reads(value: Any) -> Any:
    """A tensor whose memory has what it reads as: of a conjugate's imaginary part not so."""
    return value.resolve_neg() if value is not None and value.is_neg() else value


def _check_shared(out: Any, inputs: dict[str, Any]) -> None:
    """Raise where `out` lies among the elements of an input."""
    begin, end = _extent(out)
    for name, value in inputs.items():
        if value is None:
            continue
        first, last = _extent(value)
        if first < end and begin < last:
            raise OverlapError(f"out: shares memory with {name}; accepted is memory of its own")


def _extent(tensor: Any) -> tuple[int, int]:
    """The bytes from a tensor's first element to past its last; its strides are never below 0."""
    if not tensor.numel():
        return tensor.data_ptr(), tensor.data_ptr()
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
