"""8-bit products and quantising on processors: decoded to float32, a product of torch's a group.

float32 holds every sum of 1,024 products of int8 exactly, and those of so much of k are added up in
int32. What kernels on GPUs give is compared with these; quantised bits are the same there, bit for
bit.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tilewright.backends.cuda.fp8.work import BLOCK, Fp8Work, Scales
from tilewright.errors import ShapeError
from tilewright.inputs.tensors import writing

_LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0}
_EXACT = 1024  # products of int8, at most 2^14 each, whose sum float32 holds: 2^24
_SMALLEST = torch.finfo(torch.float32).tiny  # a scale: its inverse is finite


def multiply(work: Fp8Work) -> None:
    """Write the product. Raises ShapeError for offsets that cannot be."""
    with writing(work.operands.out):
        _multiply(work)


def _multiply(work: Fp8Work) -> None:
    a, b, offsets, scale_a, scale_b, out = work.operands
    sums: Any
    bounds = _bounds(work, offsets, a.shape[1 if work.depths else 0])
    if work.clear:
        out.zero_()
    if work.depths:
        left, right = _decoded(a, scale_a, 1, 1), _of_b(b, scale_b[0], work.scales)
        for group, (begin, end) in enumerate(bounds):
            out[group] = left[:, begin:end] @ right[begin:end]
        return
    for group, (begin, end) in enumerate(bounds):
        if end <= begin:
            continue
        if work.of_integers:
            whole = _whole(a[begin:end], b[group])
            exact = out.dtype == torch.int32
            scale = 1 if exact else scale_a[begin:end] * scale_b[group]
            out[begin:end] = whole if exact else whole.float() * scale
        elif work.scales == Scales.ROWS:
            sums = a[begin:end].float() @ b[group].float()
            out[begin:end] = sums * scale_a[begin:end] * scale_b[group]
        else:
            left = _decoded(a[begin:end], scale_a[begin:end], 1, 1)
            out[begin:end] = left @ _of_b(b[group], scale_b[group], work.scales)


def _whole(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in int32, which wraps around."""
    sums = torch.zeros(a.shape[0], b.shape[1], dtype=torch.int32, device=a.device)
    for begin in range(0, a.shape[1], _EXACT):
        part = slice(begin, begin + _EXACT)
        sums += (a[:, part].float() @ b[part].float()).int()
    return sums


def _of_b(b: Tensor, scale: Tensor, kind: Scales) -> Tensor:
    return _decoded(b, scale, 0, BLOCK if kind == Scales.BLOCKS else 1)


def _decoded(values: Tensor, scale: Tensor, along: int, across: int) -> Tensor:
    """The float32 that these stand for: a scale for 128 along k by `across`."""
    for dimension, size in ((along, BLOCK), (1 - along, across)):
        if size > 1:
            scale = scale.repeat_interleave(size, dimension)
    return values.float() * scale[: values.shape[0], : values.shape[1]]


def _bounds(work: Fp8Work, offsets: Tensor, most: int) -> list[tuple[int, int]]:
    values = offsets.tolist()
    if len(values) == work.groups:
        values = [0, *values]
    for group, (begin, end) in enumerate(pairwise(values)):
        if not 0 <= begin <= end <= most:
            raise ShapeError(
                f"offsets[group {group}]: goes from {begin} to {end}; must not decrease, begin"
                f" below 0 or run past the {most} rows"
            )
        if work.depths and (begin | end) % BLOCK:
            raise ShapeError(
                f"offsets[group {group}]: goes from {begin} to {end}; must be multiples of {BLOCK},"
                " as those that quantise_fp8 returns"
            )
    return list(pairwise(values))


def quantise(x: Tensor, values: Tensor, scales: Tensor, scale: str, groups: Any) -> None:
    """What `backends.cuda.fp8.quantise.write` does. Raises ShapeError."""
    if groups is not None:
        x = _padded(x, values.shape[2], *groups)
    batch, rows, k = x.shape
    x = x.float()
    sizes = torch.where(x.isfinite(), x.abs(), 0.0)
    if scale == "row":
        most = sizes.amax(2, keepdim=True) if k else sizes.new_zeros(batch, rows, 1)
        spread = scales.copy_(_scale(most[..., 0], values.dtype))[..., None]
    else:
        down = BLOCK if scale == "128x128" else 1
        tops, blocks = -(-rows // down), -(-k // BLOCK)
        whole = sizes.new_zeros(batch, tops * down, blocks * BLOCK)
        whole[:, :rows, :k] = sizes
        most = whole.view(batch, tops, down, blocks, BLOCK).amax((2, 4))
        scales.copy_(_scale(most, values.dtype))
        spread = scales.repeat_interleave(down, 1)[:, :rows].repeat_interleave(BLOCK, 2)[..., :k]
    largest = _LARGEST[values.dtype]
    scaled = (x * (1.0 / spread)).clamp(-largest, largest)
    if values.dtype == torch.int8:  # which has nothing for what is not finite: the scale says so
        strange = ~x.isfinite().all(2, keepdim=True)
        spread.masked_fill_(strange, float("nan"))
        values[..., :k] = scaled.masked_fill(strange, 0).round().to(torch.int8)
        return
    other = x if values.dtype == torch.float8_e5m2 else float("nan")  # e4m3fn has no infinity
    scaled = torch.where(x.isfinite(), scaled, other)
    values[..., :k] = scaled.to(values.dtype)


def _scale(most: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.where(most == 0, 1.0, (most / _LARGEST[dtype]).clamp(min=_SMALLEST))


def _padded(x: Tensor, room: int, ends: Tensor, padded: Tensor) -> Tensor:
    """x with groups of k at multiples of 128; their ends go to `padded`."""
    found = x.new_zeros(*x.shape[:2], room)
    at = 0
    for group, (begin, end) in enumerate(pairwise([0, *ends.tolist()])):
        if not 0 <= begin <= end <= x.shape[2]:
            raise ShapeError(
                f"offsets[group {group}]: goes from {begin} to {end}; must not decrease, begin"
                f" below 0 or run past the {x.shape[2]} rows"
            )
        found[..., at : at + end - begin] = x[..., begin:end]
        at += -(-(end - begin) // BLOCK) * BLOCK
        padded[group] = at
    return found
