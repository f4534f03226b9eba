"""8-bit products on a GPU at once, where one of operands that lie alike was checked and has run.

What was checked is known by sizes, strides, alignments, dtypes, devices and options: not by
addresses, nor by the number of rows, which in training changes with every batch. Whether scales and
`out` have as many rows is compared at each call, and whether `out` lies apart from every input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import mul
from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.arrays.storage import is_short
from tilewright.backends.cuda.fp8 import engine
from tilewright.backends.cuda.fp8.work import BLOCK, Fp8Work, Operands, Way
from tilewright.backends.cuda.machine import faults
from tilewright.inputs.tensors import written
from tilewright.remember import Shelf
from tilewright.torch_ops import fp8_constants, fp8_guarded
from tilewright.torch_ops.eager import PLAIN, is_eager

_FAR = 1 << 31  # elements from which on engines decide otherwise
_WITHIN = 15  # bytes: what an address is a multiple of matters up to one more
_Given = tuple[Any, Any, Any, Any, Any]  # a, b, offsets, and both scales or None
_NOTHING = Operands(None, None, None, None, None, None)


@dataclass(slots=True)
class _Ready:
    """A launch, and what a call's arguments have not; how those of the last call lay."""

    way: Way
    dtype: torch.dtype  # of the result
    whole: bool  # whether no scale is given
    work: Fp8Work  # but for its operands
    last: tuple[Any, ...]


_ready: Shelf[tuple[Any, ...], _Ready] = Shelf("checked 8-bit products", most=1 << 20)


def again(given: _Given, passed: fp8_guarded.Given, out: Any, out_dtype: Any) -> Any:
    """The product, unchecked, where one of operands that lie alike has run; else None.

    None also where somebody looks on, and where `out` may share memory: the checks have the words.
    What comes a second time exactly as it lies, as it was `passed`, gets a guard.
    """
    key = _alike(given, out, out_dtype)
    ready = None if key is None else _ready.get(key)
    if ready is None:
        return None
    a, b, offsets, scale_a, scale_b = given
    ordinal = a.get_device()
    if private.current_device(torch)() != ordinal or not is_eager(a, scale_a, scale_b, out):
        return None
    if out is not None and not _is_apart(out, given):
        return None
    if any(one is not None and is_short(one) for one in (*given, out)):
        return None
    faults.check_unless_captured(a)
    depths, result = b.dim() == 2, out
    if out is None:
        rows = a.shape[0], b.shape[-1]
        result = a.new_empty((offsets.shape[0], *rows) if depths else rows, dtype=ready.dtype)
        if result.data_ptr() & _WITHIN:  # not from torch's own allocator
            return None
    if ready.whole:
        scale_a = scale_b = fp8_constants.one(a)
    scale_a, scale_b = _seen(a, b, scale_a, scale_b)
    operands = Operands(a, b, offsets, scale_a, scale_b, result)
    ready.way(private.raw_stream(torch)(ordinal), operands)
    if out is not None:
        written(out)
    exact = _exactly(operands)
    if exact == ready.last:
        work = replace(ready.work, operands=operands)
        fp8_guarded.met(passed, out, out_dtype, work, ready.way)
    ready.last = exact
    return result


def remember(given: _Given, out: Any, out_dtype: Any, work: Fp8Work, result: Any) -> None:
    """Let `again` do at once what has just been checked and run."""
    key = _alike(given, out, out_dtype)
    if key is None or type(result) is not Tensor or (out is None and result.data_ptr() & _WITHIN):
        return
    way = engine.known(replace(work, operands=work.operands._replace(out=result)))
    if way is not None:
        alone, operands = replace(work, operands=_NOTHING), work.operands._replace(out=result)
        ready = _Ready(way, result.dtype, given[3] is None, alone, _exactly(operands))
        _ready.keep(key, ready, size=1 << 10)


def _exactly(operands: Operands) -> tuple[Any, ...]:
    """How they lie, but for where."""
    return tuple((one.shape, one.stride(), one.data_ptr() & _WITHIN) for one in operands)


def _alike(given: _Given, out: Any, out_dtype: Any) -> tuple[Any, ...] | None:
    """What was checked and decided for such arguments; None of what is always checked."""
    if torch.compiler.is_compiling():
        return None
    lies: list[Any] = []
    for one in (*given, out):
        if one is None:
            lies.append(None)
            continue
        if type(one) not in PLAIN or one.layout is not torch.strided or one.requires_grad:
            return None
        at = one.data_ptr()
        lies += one.dtype, one.get_device(), at & _WITHIN if at else None
    a, b, offsets, scale_a, scale_b = given
    if a is None or b is None or offsets is None or not a.is_cuda or a.dim() != 2:
        return None
    if offsets.dim() != 1:
        return None
    if out_dtype is not None and type(out_dtype) is not torch.dtype:
        return None
    if b.dim() == 3:
        parts = _of_rows(a, b, scale_a, scale_b, out)
        rows, groups = a.shape[0], b.shape[0]
    else:
        parts = _of_depths(a, b, scale_a, scale_b, out)
        rows, groups = a.shape[1], offsets.shape[0]
    if parts is None or not groups:
        return None
    where = offsets.shape, offsets.stride(), rows > 0, engine.is_long(rows, groups)
    return *where, *parts, *lies, out_dtype


def _of_rows(a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any) -> tuple[Any, ...] | None:
    rows = a.shape[0]
    if (scale_a is None) != (scale_b is None) or _reach(a) >= _FAR:
        return None
    scales = result = None
    if scale_a is not None:
        sizes = scale_a.shape
        if (sizes and sizes[0] != rows) or max(_reach(scale_a), _reach(scale_b)) >= _FAR:
            return None
        scales = len(sizes), sizes[1:], _steps(scale_a), scale_b.shape, _steps(scale_b)
    if out is not None:
        if out.dim() != 2 or out.shape[0] != rows:
            return None
        result = out.shape[1], out.stride()
    return a.shape[1], _steps(a), b.shape, b.stride(), scales, result


def _of_depths(a: Any, b: Any, scale_a: Any, scale_b: Any, out: Any) -> tuple[Any, ...] | None:
    rows = a.shape[1]
    if b.dim() != 2 or b.shape[0] != rows or scale_a is None or scale_b is None:
        return None
    blocks = -(-rows // BLOCK)
    if scale_a.dim() != 2 or scale_a.shape[1] != blocks:
        return None
    if scale_b.dim() != 2 or scale_b.shape[0] != blocks:
        return None
    if max(_reach(a), _reach(b), _reach(scale_a), _reach(scale_b)) >= _FAR:
        return None
    pitch = scale_b.stride(0) if scale_b.stride(1) == 1 else None
    scales = scale_a.shape[0], _steps(scale_a), scale_b.shape[1], _steps(scale_b), pitch
    result = None if out is None else (out.shape, out.stride())
    return a.shape[0], _steps(a), b.shape[1], _steps(b), blocks > 1, scales, result


def _steps(one: Any) -> tuple[int, ...]:
    """Strides as far as kernels are compiled and chosen by them."""
    return tuple([step if step < 2 else 16 if step & 15 == 0 else 2 for step in one.stride()])


def _reach(one: Any) -> int:
    """Elements from the first to past the last; of an empty tensor some number."""
    steps = one.stride()
    last: int = sum(map(mul, one.shape, steps)) - sum(steps)
    return last + 1


def _is_apart(out: Any, given: _Given) -> bool:
    """Whether an `out` whose elements lie apart from each other reaches over no input's bytes."""
    begin = out.data_ptr()
    end = begin + _reach(out) * out.element_size()
    for one in given:
        if one is not None:
            first = one.data_ptr()
            if first < end and begin < first + _reach(one) * one.element_size():
                return False
    return True


def _seen(a: Any, b: Any, scale_a: Any, scale_b: Any) -> tuple[Any, Any]:
    """Scales with as many dimensions as launches take."""
    if b.dim() == 2:
        return scale_a, scale_b[None]
    if scale_a.dim() != 2:
        rows = (a.shape[0], 1)
        scale_a = scale_a.reshape(rows) if scale_a.dim() else scale_a.expand(rows)
    if scale_b.dim() != 3:
        columns = (b.shape[0], 1, b.shape[2])
        scale_b = scale_b.reshape(columns) if scale_b.dim() else scale_b.expand(columns)
    return scale_a, scale_b
