"""Custom operators of 8-bit products: what torch.compile and fake tensors see; no gradients follow.

fp8_rows       a [t, k], b [groups, k, n]   groups of rows       -> [t, n]
fp8_depths     a [m, t], b [t, n]           groups of k          -> [groups, m, n]
fp8_quantised  x [batch, rows, k]           -> values [batch, rows, pitch], scales, ends
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tilewright.backends.cuda.fp8.work import BLOCK, Fp8Work, Operands, Scales
from tilewright.inputs.tensors import written
from tilewright.torch_ops import fp8_on_processor
from tilewright.torch_ops.eager import is_eager
from tilewright.torch_ops.flops import shapes_of

_ALIGNED = 16  # bytes that rows of values begin at multiples of
_FOUR = 4  # scales that rows of scales begin at multiples of: 16 bytes


def product(work: Fp8Work, dtype: torch.dtype) -> Tensor:
    """The product in a new tensor; rows without a group, and groups without rows, are zero."""
    given = work.operands[:5]
    if is_eager(*given):
        return _new(*given, work.scales, dtype, work.depths)
    operator = torch.ops.tilewright.fp8_depths if work.depths else torch.ops.tilewright.fp8_rows
    found: Tensor = operator(*given, int(work.scales), dtype)
    return found


def product_into(work: Fp8Work) -> None:
    """The product into `out`; rows of `out` without a group stay as they are."""
    _run(work)
    written(work.operands.out)


def _new(
    a: Tensor,
    b: Tensor,
    offsets: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    scales: Scales,
    dtype: torch.dtype,
    depths: bool,
) -> Tensor:
    out = a.new_empty(_shape(a, b, offsets, depths), dtype=dtype)
    operands = Operands(a, b, offsets, scale_a, scale_b, out)
    _run(Fp8Work(operands, scales, depths, clear=not depths))
    return out


def _shape(a: Tensor, b: Tensor, offsets: Tensor, depths: bool) -> tuple[int, ...]:
    return (offsets.shape[0], a.shape[0], b.shape[1]) if depths else (a.shape[0], b.shape[2])


def _run(work: Fp8Work) -> None:
    if not work.operands.a.is_cuda:
        fp8_on_processor.multiply(work)
        return
    from tilewright.backends.cuda.fp8 import engine
    from tilewright.backends.cuda.machine import faults

    faults.check_unless_captured(work.operands.a)
    engine.run(work)


@torch.library.custom_op("tilewright::fp8_rows", mutates_args=())
def _rows(
    a: Tensor,
    b: Tensor,
    offsets: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    scales: int,
    dtype: torch.dtype,
) -> Tensor:
    return _new(a, b, offsets, scale_a, scale_b, Scales(scales), dtype, False)


@torch.library.custom_op("tilewright::fp8_depths", mutates_args=())
def _depths(
    a: Tensor,
    b: Tensor,
    offsets: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    scales: int,
    dtype: torch.dtype,
) -> Tensor:
    return _new(a, b, offsets, scale_a, scale_b, Scales(scales), dtype, True)


@shapes_of(_rows)
def _(a: Tensor, b: Tensor, offsets: Tensor, *rest: Any) -> Tensor:
    return a.new_empty(_shape(a, b, offsets, False), dtype=rest[-1])


@shapes_of(_depths)
def _(a: Tensor, b: Tensor, offsets: Tensor, *rest: Any) -> Tensor:
    return a.new_empty(_shape(a, b, offsets, True), dtype=rest[-1])


def quantised(x: Tensor, scale: str, dtype: torch.dtype, ends: Tensor | None) -> tuple[Tensor, ...]:
    """Of x [batch, rows, k]: values as wide, their scales, and ends of groups once padded.

    Scales are [batch, rows, 1] or [batch, rows or blocks of 128, blocks of k].
    """
    if is_eager(x, ends):
        values, scales, padded = _quantised(x, scale, dtype, ends)
    else:
        values, scales, padded = torch.ops.tilewright.fp8_quantised(x, scale, dtype, ends)
    k = x.shape[2] if ends is None else values.shape[2]
    if scale == "row":
        scales = scales[..., None]
    elif scale == "1x128":
        scales = scales[..., : x.shape[1]].transpose(1, 2)
    return values[..., :k], scales, padded


def _room(x: Tensor, scale: str, dtype: torch.dtype, ends: Tensor | None) -> tuple[Tensor, ...]:
    """Memory for what is found; scales of strips have those of a block of k beside each other."""
    batch, rows, k = x.shape
    if ends is not None:
        k = (k + (BLOCK - 1) * ends.shape[0]) // BLOCK * BLOCK
    values = x.new_empty((batch, rows, -(-k // _ALIGNED) * _ALIGNED), dtype=dtype)
    blocks = -(-k // BLOCK)
    shape: tuple[int, ...] = (batch, -(-rows // BLOCK), blocks)
    if scale == "row":
        shape = (batch, rows)
    elif scale == "1x128":
        shape = (batch, blocks, -(-rows // _FOUR) * _FOUR)
    padded = x.new_empty(0, dtype=torch.int32) if ends is None else ends.new_empty(ends.shape[0])
    return values, x.new_empty(shape, dtype=torch.float32), padded


def _quantised(
    x: Tensor, scale: str, dtype: torch.dtype, ends: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    values, scales, padded = _room(x, scale, dtype, ends)
    seen = scales[..., : x.shape[1]].transpose(1, 2) if scale == "1x128" else scales
    groups = None if ends is None else (ends, padded)
    if x.is_cuda:
        from tilewright.backends.cuda.fp8 import quantise

        quantise.write(x, values, seen, scale, groups)
    else:
        fp8_on_processor.quantise(x, values, seen, scale, groups)
    return values, scales, padded


@torch.library.custom_op("tilewright::fp8_quantised", mutates_args=())
def _operator(
    x: Tensor, scale: str, dtype: torch.dtype, ends: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return _quantised(x, scale, dtype, ends)


@shapes_of(_operator)
def _(x: Tensor, scale: str, dtype: torch.dtype, ends: Tensor | None) -> tuple[Tensor, ...]:
    return _room(x, scale, dtype, ends)
