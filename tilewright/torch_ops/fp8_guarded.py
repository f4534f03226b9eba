"""8-bit products on a GPU whose tensors lie exactly as earlier ones did: a guard, then the launch.

    guard     what torch's compiler puts before its code: types, sizes, strides, dtypes and devices
              of all tensors in one call
    then      what it does not look at: alignments, whether `out` lies apart, a GPU's fault
    launch    of which only addresses are replaced

`fp8_again` serves any number of rows and asks each tensor in Python for what it depends on: 50 to
58 us of an H200's host with the launches. What comes a second time without a change gets a guard.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import mul
from typing import Any

import torch
from torch import Tensor

from tilewright.arrays import torch_private as private
from tilewright.arrays.storage import is_within
from tilewright.backends.cuda.fp8.work import Fp8Work, Settling, Way
from tilewright.backends.cuda.machine import faults
from tilewright.errors import DeviceError
from tilewright.inputs.tensors import written
from tilewright.remember import Shelf
from tilewright.torch_ops import fp8_constants
from tilewright.torch_ops.eager import modes, transform

_WITHIN = 15  # bytes: what an address is a multiple of matters up to one more
# As they were passed: a, b, then offsets (None for a single product) and scales, or None.
Given = tuple[Any, Any, Any, Any, Any]
_tracing, _forward = torch.compiler.is_dynamo_compiling, private.forward_ad(torch)
_trace = private.trace(torch)
_REFUSALS = (RuntimeError, AttributeError, TypeError, IndexError)


class _Guarded:
    """A product of tensors that lie so, and its launches."""

    def __init__(
        self, check: Callable[..., bool], work: Fp8Work, given: Given, way: Settling
    ) -> None:
        """`work` is what was made of what is `given`, `out` the result. Raises DeviceError."""
        operands = work.operands
        self._check, self._launch = check, way.settled(work)
        self._ordinal = operands.a.get_device()
        self._device_of, self._stream_of = private.current_device(torch), private.raw_stream(torch)
        self._empty = private.empty_strided(torch)
        inputs = operands[:5]
        self._lows = [one.data_ptr() & _WITHIN for one in inputs]
        self._low = operands.out.data_ptr() & _WITHIN
        self._bytes = [_bytes(one) for one in inputs]
        self._bytes_out = _bytes(operands.out)
        out = operands.out
        self._new = tuple(out.shape), out.stride(), out.dtype
        self._alone, self._whole = given[2] is None, given[3] is None

    def is_for(self, given: Given, out: Any) -> bool:
        """Whether these lie so, and nobody looks on; alignments are asked later."""
        tensors = [one for one in given if one is not None]
        if out is not None:
            tensors.append(out)
        return self._check(*tensors)

    def __call__(self, given: Given, out: Any) -> Any:
        """The product of what it is for, or None where an alignment or `out` is otherwise."""
        if self._device_of() != self._ordinal:
            return None
        a, b, offsets, scale_a, scale_b = given
        if self._alone:
            offsets = fp8_constants.end(a)
        if self._whole:
            scale_a = scale_b = fp8_constants.one(a)
        a_at, b_at, of_a, of_b = a.data_ptr(), b.data_ptr(), scale_a.data_ptr(), scale_b.data_ptr()
        places = (a_at, b_at, offsets.data_ptr(), of_a, of_b)
        if [at & _WITHIN for at in places] != self._lows or not all(places):
            return None
        read = (a, b, offsets, scale_a, scale_b)
        if not all(map(is_within, read, self._bytes)):
            return None
        result = out
        if out is None:
            result = self._empty(*self._new)
        begin = result.data_ptr()
        if begin & _WITHIN != self._low or (out is not None and not self._is_free(out, places)):
            return None
        faults.check_unless_captured(a)
        stream = self._stream_of(self._ordinal)
        self._launch(stream, offsets, result, (a_at, b_at, of_a, of_b, begin))
        if out is not None:
            written(out)
        return result

    def _is_free(self, out: Any, places: tuple[int, ...]) -> bool:
        """Whether it may be written: it has memory, of no input, and learns nothing."""
        begin = out.data_ptr()
        end = begin + self._bytes_out
        for at, size in zip(places, self._bytes, strict=True):
            if at < end and begin < at + size:
                return False
        return begin != 0 and not out.requires_grad and is_within(out, self._bytes_out)


_guarded: Shelf[tuple[Any, ...], _Guarded] = Shelf("guards of 8-bit products", most=1 << 20)


def at_once(given: Given, out: Any, out_dtype: Any) -> Any:
    """The product where tensors that lie exactly so were met twice; else None.

    None, too, where somebody looks on, or one of the arguments is no tensor.
    """
    if _tracing() or _forward._current_level >= 0:
        return None
    if modes() or transform() is not None or _trace() is not None:  # guards know nothing of these
        return None
    try:
        known = _guarded.get(_key(given, out, out_dtype))
        if known is None or not known.is_for(given, out):
            return None
    except _REFUSALS:
        return None
    return known(given, out)


def met(given: Given, out: Any, out_dtype: Any, work: Fp8Work, way: Way) -> None:
    """Have `at_once` know tensors that lie as these do, which `way` has just multiplied.

    `work` has what was made of them, and the result as its `out`. Nobody may look on.
    """
    if not isinstance(way, Settling) or not all(one.data_ptr() for one in work.operands):
        return
    tensors = [one for one in (*given, out) if one is not None]
    if any(one.is_inference() for one in tensors) or private.is_capturing(torch)():
        return
    how = {
        "dynamic_dims_sizes": [list(one.shape) for one in tensors],
        "dynamic_dims_strides": [list(one.stride()) for one in tensors],
    }
    check = private.tensor_guards(torch)(*tensors, **how).check
    if not check(*tensors):
        return
    with suppress(DeviceError):  # what cannot be settled goes on as it went
        made = _Guarded(check, work, given, way)
        key = _key(given, out, out_dtype)
        _guarded.drop(key)
        _guarded.keep(key, made, size=1 << 12)


def _key(given: Given, out: Any, out_dtype: Any) -> tuple[Any, ...]:
    """What is looked up; all else is asked of the guard."""
    a, b, offsets, scale_a, scale_b = given
    alone, whole = offsets is None, (scale_a is None, scale_b is None)
    return a.shape, b.shape, a.dtype, out_dtype, alone, whole, None if out is None else out.dtype


def _bytes(one: Tensor) -> int:
    """From its first element to past its last."""
    steps = one.stride()
    last: int = sum(map(mul, one.shape, steps)) - sum(steps)
    return (last + 1) * int(one.element_size())
