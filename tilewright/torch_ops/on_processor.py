"""Ragged products on processors: torch's own of groups where it takes them, else a loop of them.

Most are the kernels' of `ragged_tensors.py`; here is what those leave: what they are slower at,
or not compiled for yet. Offsets lie in the host's memory there, so they are read and checked before
anything is written: torch's own would go on with whatever they say. It takes fp32, fp16 and bf16
whose rows (or columns) begin at multiples of 16 bytes; its loop costs 4 us a group where one of
Python's costs 5 to 6.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.arrays.storage import check_memory
from tilewright.backends.host import invariant
from tilewright.errors import ShapeError
from tilewright.facts.arithmetic import is_alone
from tilewright.inputs.tensors import DTYPES, writing
from tilewright.torch_ops import ragged_tensors
from tilewright.torch_ops.ragged_tensors import WIDTHS, is_aligned

_grouped = private.grouped(torch)
_COUNTS, _STRIDED = (torch.int32, torch.int64), torch.strided


def write_product(
    x: Tensor, w: Tensor, offsets: Tensor, bias: Any, out: Tensor, precision: str
) -> None:
    """Either product, into `out`; rows of `out` without a group stay as they are.

    Raises ShapeError for offsets that run past the rows.
    """
    with writing(out):
        alone = is_alone(precision) and w.dim() == 3
        if not alone and ragged_tensors.product_into(x, w, offsets, bias, out):
            return
        check_memory({"x": x, "w": w, "offsets": offsets, "bias": bias, "out": out})
        (_write_alone if alone else _write)(x, w, _bounds(x, w, offsets), bias, out)


def new_product(x: Tensor, w: Tensor, offsets: Tensor, bias: Any, precision: str) -> Tensor:
    """Either product; rows without a group, and groups without rows, are zero."""
    alone = is_alone(precision) and w.dim() == 3
    if not alone and (found := ragged_tensors.product(x, w, offsets, bias)) is not None:
        return found
    check_memory({"x": x, "w": w, "offsets": offsets, "bias": bias})
    bounds = _bounds(x, w, offsets)
    found = _by_torch(x, w, offsets, bounds) if bias is None and not alone else None
    if found is not None:
        return found
    rows = (x.shape[0], w.shape[-1])
    out = x.new_empty(rows if w.dim() == 3 else (offsets.shape[0], *rows))
    (_write_alone if alone else _write)(x, w, bounds, bias, out)
    if w.dim() == 3:
        _clear(out, bounds)
    return out


def plain_product(x: Tensor, w: Tensor, offsets: Tensor) -> Any:
    """The product of plain tensors, unchecked, where they fit and one is made; else None."""
    sizes, others = x.shape, w.shape
    if x.dtype not in DTYPES or w.dtype is not x.dtype or len(sizes) != 2:
        return None
    if len(others) == 3:
        fits = sizes[1] == others[1] and 0 <= offsets.numel() - others[0] <= 1
    else:
        fits = len(others) == 2 and sizes[1] == others[0]
    if not fits or not (w.is_cpu and offsets.is_cpu) or offsets.dtype not in _COUNTS:
        return None
    if offsets.dim() != 1 or x.layout is not _STRIDED or w.layout is not _STRIDED:
        return None
    found = ragged_tensors.product(x, w, offsets, None)
    if found is not None:
        return found
    check_memory({"x": x, "w": w, "offsets": offsets})
    return _by_torch(x, w, offsets, _bounds(x, w, offsets))


def check_offsets(x: Tensor, w: Tensor, offsets: Tensor) -> None:
    """Raise ShapeError for offsets that decrease or run past the rows."""
    check_memory({"x": x, "w": w, "offsets": offsets})
    _bounds(x, w, offsets)


def _write(x: Tensor, w: Tensor, bounds: list[int], bias: Any, out: Tensor) -> None:
    if w.dim() == 2:
        for one, (begin, end) in zip(out.unbind(0), pairwise(bounds), strict=True):
            torch.mm(x[:, begin:end], w[begin:end], out=one)
        return
    vectors = None if bias is None else bias.unbind(0)
    for group, (begin, end) in enumerate(pairwise(bounds)):
        if begin == end:
            continue
        rows, part = x[begin:end], out[begin:end]
        if vectors is None:
            torch.mm(rows, w[group], out=part)
        else:
            torch.addmm(vectors[group], rows, w[group], out=part)


def _write_alone(x: Tensor, w: Tensor, bounds: list[int], bias: Any, out: Tensor) -> None:
    """Of rows, each in bits that no other row decides; halves are summed in float32."""
    wide, cores = torch.promote_types(x.dtype, torch.float32), torch.get_num_threads()
    for group, (begin, end) in enumerate(pairwise(bounds)):
        if begin == end:
            continue
        sums = torch.empty((end - begin, out.shape[1]), dtype=wide, device=x.device)
        given = (x[begin:end], w[group])
        rows, matrix = (one.detach().resolve_neg().to(wide).numpy() for one in given)
        invariant.multiply(rows, matrix, sums.numpy(), cores)
        out[begin:end] = sums if bias is None else sums + bias[group].to(wide)


def _by_torch(x: Tensor, w: Tensor, offsets: Tensor, bounds: list[int]) -> Any:
    """The product as torch makes it, or None where it does not."""
    width = WIDTHS.get(x.dtype)
    if width is None or len(bounds) < 2 or bounds[0]:
        return None
    if not is_aligned(x, width) or not is_aligned(w, width):
        return None
    if w.dim() == 3 and len(bounds) == 2 and bounds[1] == x.shape[0]:
        return torch.mm(x, w[0])
    ends = offsets if len(bounds) > offsets.shape[0] else offsets[1:]
    found = _grouped(x, w, offs=ends if ends.dtype is torch.int32 else ends.int())
    if w.dim() == 3 and bounds[-1] != x.shape[0]:
        _clear(found, bounds)
    return found


def _clear(out: Tensor, bounds: list[int]) -> None:
    """Zeros into the rows that no group has."""
    out[: bounds[0]].zero_()
    out[bounds[-1] :].zero_()


def _bounds(x: Tensor, w: Tensor, offsets: Tensor) -> list[int]:
    """Where the first group begins and where each ends. Raises ShapeError."""
    values: list[int] = offsets.tolist()
    most = x.shape[0] if w.dim() == 3 else x.shape[1]
    if w.dim() == 2 or len(values) == w.shape[0]:
        values.insert(0, 0)
    if values[0] < 0 or values[-1] > most or sorted(values) != values:
        _refuse(values, most)
    return values


def _refuse(values: list[int], most: int) -> None:
    for group, (begin, end) in enumerate(pairwise(values)):
        if not 0 <= begin <= end <= most:
            raise ShapeError(
                f"offsets[group {group}]: goes from {begin} to {end}; must not decrease, begin"
                f" below 0 or run past the {most} rows"
            )
