"""`tilewright.ragged_matmul`, checked: what it takes, one clear error each, then the operators.

What was checked is not checked again where only the number of rows has changed.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from tilewright.backends.cuda.machine.arrays import extent
from tilewright.errors import ArgumentError, DtypeError, OperandError, OverlapError, ShapeError
from tilewright.facts.arithmetic import OF_SINGLES, asked
from tilewright.facts.limits import MOST
from tilewright.inputs.checks import check_shape
from tilewright.inputs.overlap import SHARED, check_apart
from tilewright.inputs.tensors import DTYPES, NAMES, is_nested
from tilewright.remember import Shelf
from tilewright.torch_ops import autocast, ragged, ragged_explained
from tilewright.torch_ops.eager import PLAIN
from tilewright.wording import short

# Sizes, dtypes and devices that were checked, whatever the number of rows.
_passed: Shelf[Any, bool] = Shelf("checked ragged products", most=1 << 20)


def product(
    x: Any, w: Any, offsets: Any, bias: Any, out: Any, precision: str | None, alone: bool
) -> Any:
    """Arguments, results and errors are those of `tilewright.ragged_matmul`; all are tensors.

    `alone`: it is batch-invariant.
    """
    if alone and w.dim() == 2:
        raise ArgumentError(
            "batch_invariant=True: not with offsets along k, where every row of w is summed;"
            " accepted is False"
        )
    if not isinstance(precision, str | None):
        _refuse(precision)
    key = _key(x, w, offsets, bias, precision)
    if key not in _passed:
        _check_devices(x, w=w, offsets=offsets, bias=bias, out=out)
    if out is None:
        before, (x, w, bias) = (x, w, bias), autocast.cast(x, w, bias)
        left = x is not before[0] or w is not before[1]
        if left and precision in OF_SINGLES:
            precision = None  # asked for float32, which autocast has just left
        if left or bias is not before[2]:
            key = None  # what is checked now is not what was given
    if key is None or key not in _passed:
        _check(x, w, offsets, bias, precision)
        if key is not None:
            _passed.keep(key, True)
    how = asked(precision, alone=alone)
    if out is None:
        return ragged.product(x, w, offsets, bias, how)
    inputs = {"x": x, "w": w, "offsets": offsets, "bias": bias}
    _check_out(out, inputs)
    if torch.compiler.is_compiling():
        return _put(out, ragged.product(x, w, offsets, bias, how), w, offsets)
    _check_memory(out, inputs)
    if alone and (out.stride(1) != 1 or out.stride(0) < 1) and out.shape[1] > 1:
        raise OperandError(
            f"out.stride()={out.stride()}: with batch_invariant rows must be contiguous"
        )
    x, w, offsets, bias = map(_as_it_reads, inputs.values())
    ragged.product_into(x, w, offsets, bias, out, how)
    return out


def explain(x: Any, w: Any, offsets: Any, bias: Any, precision: str | None, alone: bool) -> str:
    """The report of `product` into a new tensor. Raises what that raises."""
    if alone and w.dim() == 2:
        raise ArgumentError(
            "batch_invariant=True: not with offsets along k, where every row of w is summed;"
            " accepted is False"
        )
    _check_devices(x, w=w, offsets=offsets, bias=bias)
    before, (x, w, bias) = x, autocast.cast(x, w, bias)
    if x is not before and isinstance(precision, str) and precision in OF_SINGLES:
        precision = None  # asked for float32, which autocast has just left
    if not isinstance(precision, str | None):
        _refuse(precision)
    _check(x, w, offsets, bias, precision)
    return ragged_explained.product(x, w, offsets, bias, asked(precision, alone=alone))


def _key(x: Any, w: Any, offsets: Any, bias: Any, precision: str | None) -> Any:
    """What the checks look at but for the rows, or None where they must look each time.

    Not for what is no plain tensor, and not where torch.compile traces.
    """
    given = (x, w, offsets) if bias is None else (x, w, offsets, bias)
    if torch.compiler.is_compiling() or not all(type(value) in PLAIN for value in given):
        return None
    if True in map(is_nested, given):
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


def _check_devices(x: Tensor, **others: Any) -> None:
    for name, value in others.items():
        if value is not None and value.device != x.device:
            raise OperandError(f"{name}.device={str(value.device)!r}: x lies on {str(x.device)!r}")


def _check(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, precision: str | None) -> None:
    for name, value in (("x", x), ("w", w), ("offsets", offsets), ("bias", bias)):
        if value is not None and value.is_nested:
            raise OperandError(f"{name}.layout=nested: accepted are dense tensors")
    for name, value in (("x", x), ("w", w), ("offsets", offsets)):
        if any(size > MOST for size in value.shape):  # max: torch 2.11 cannot compile it
            raise ShapeError(
                f"{name}.shape={tuple(value.shape)}: accepted are sizes from 0 to 2^31 - 64"
            )
    if x.dtype not in DTYPES:
        kind = str(x.dtype).removeprefix("torch.")
        raise DtypeError(f"x.dtype={kind!r}: accepted are {NAMES}")
    if w.dtype != x.dtype:
        raise DtypeError(f"w.dtype={str(w.dtype)!r}: must equal x.dtype={str(x.dtype)!r}")
    if offsets.dtype not in (torch.int32, torch.int64):
        raise DtypeError(f"offsets.dtype={str(offsets.dtype)!r}: accepted are int32 and int64")
    of_singles = precision in OF_SINGLES and x.dtype == torch.float32
    if precision is not None and not of_singles:
        _refuse(precision)
    if x.dim() != 2 or w.dim() not in (2, 3):
        raise ShapeError(
            f"x.shape={tuple(x.shape)}, w.shape={tuple(w.shape)}: accepted are [t, k] by [g, k, n],"
            " and [m, t] by [t, n]"
        )
    if x.shape[1] != w.shape[-2]:
        raise ShapeError(f"w.shape={tuple(w.shape)}: must have {x.shape[1]} rows, the columns of x")
    if offsets.dim() != 1:
        raise ShapeError(f"offsets.shape={tuple(offsets.shape)}: must have one dimension")
    if w.dim() == 3:
        _check_groups(x, w, offsets, bias)
    elif bias is not None:
        raise ArgumentError("bias: not with offsets along k; accepted is None")


def _refuse(precision: Any) -> NoReturn:
    raise ArgumentError(
        f"precision={short(precision)}: accepted are None, and 'tf32' and 'fp32x' for float32"
    )


def _check_groups(x: Tensor, w: Tensor, offsets: Tensor, bias: Any) -> None:
    """Of the first form: an end for each matrix of w, and its row of the bias."""
    groups, _, n = w.shape
    count = offsets.shape[0]
    if count not in (groups, groups + 1):
        raise ShapeError(
            f"offsets.shape=({count},): must have {groups} ends, one a matrix of w, or"
            f" {groups + 1} with the first beginning"
        )
    if bias is not None and (tuple(bias.shape) != (groups, n) or bias.dtype != x.dtype):
        raise ShapeError(
            f"bias: {bias.dtype} {tuple(bias.shape)}; must be {x.dtype} ({groups}, {n})"
        )


def _check_out(out: Tensor, inputs: dict[str, Any]) -> None:
    """Raise where the product of these cannot be written there."""
    x, w, offsets, _ = inputs.values()
    _check_devices(x, out=out)
    groups = offsets.shape[0]
    shape = (x.shape[0], w.shape[2]) if w.dim() == 3 else (groups, x.shape[0], w.shape[1])
    check_shape("out", out.shape, shape)
    if out.dtype != x.dtype:
        raise DtypeError(f"out.dtype={str(out.dtype)!r}: must equal x.dtype={str(x.dtype)!r}")
    if out.requires_grad:
        raise ArgumentError("out: requires a gradient; accepted is out=None then")
    check_apart("out", shape, out.stride())


def _put(out: Tensor, found: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    """What was found into out's place, as operations that compilers know.

    Rows without a group stay as they are.
    """
    if w.dim() == 2:
        return out.copy_(found)
    if not offsets.shape[0]:
        return out
    rows = torch.arange(out.shape[0], device=out.device).unsqueeze(1)
    begins = offsets[0] if offsets.shape[0] > w.shape[0] else 0
    return out.copy_(torch.where((rows >= begins) & (rows < offsets[-1]), found, out))


def _check_memory(out: Tensor, inputs: dict[str, Any]) -> None:
    """Raise where `out` has no memory of its own, or shares it."""
    for name, value in {**inputs, "out": out}.items():
        _check_plain(name, value)
    if out.is_neg():
        raise OperandError("out: its memory has the negative; accepted is out.resolve_neg()")
    begin, end = _reach(out)
    for name, value in inputs.items():
        if value is not None:
            first, last = _reach(value)
            if first < end and begin < last:
                raise OverlapError(SHARED.format(name))


def _check_plain(name: str, value: Any) -> None:
    """Raise where elements do not lie in a tensor's own memory as they read: `out` needs that.

    Wrappers (quantised, distributed, fake tensors) are taken where `out` is None.
    """
    usual = Tensor.__torch_dispatch__
    if getattr(type(value), "__torch_dispatch__", usual) is not usual:
        raise OperandError(
            f"{name}={type(value).__name__}: keeps its elements elsewhere; accepted with out= are"
            " plain tensors"
        )


def _as_it_reads(value: Any) -> Any:
    """A tensor whose memory has what it reads as: of a conjugate's imaginary part not so."""
    return value.resolve_neg() if value is not None and value.is_neg() else value


def _reach(tensor: Tensor) -> tuple[int, int]:
    """The bytes from a tensor's first element to past its last; its strides are never below 0."""
    begin, end = extent(tensor)
    return tensor.data_ptr() + begin, tensor.data_ptr() + end
