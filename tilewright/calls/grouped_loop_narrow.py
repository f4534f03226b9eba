"""Batches of bfloat16 or int8 without a grouped kernel: NumPy's products of wider copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host.backend import activate
from tilewright.calls.grouped_loop_host import views
from tilewright.inputs.batch import Call


def narrow_loop(call: Call) -> Callable[[], None]:
    """One product after another: of bfloat16 in float32, rounded once; of int8 in int32."""
    halves = call.a.dtype.name == "bfloat16"
    widened = _single if halves else _int
    shifts: list[Any] = [None] * len(call.a) if call.bias is None else views(call.bias)
    jobs = list(
        zip(views(call.a), views(call.b), views(call.c), call.alpha, call.beta, shifts, strict=True)
    )

    @np.errstate(all="ignore")
    def run() -> None:
        for x, y, z, alpha, beta, shift in jobs:
            if alpha == 0:
                x, y = x[:, :0], y[:0]
            value = widened(x) @ widened(y)
            number = value.dtype.type
            value *= number(alpha)
            if beta:
                value += number(beta) * widened(z)
            if shift is not None and len(shift):
                value += widened(shift[:, 0])
            value = activate(value, call.activation)
            np.copyto(z, _halved(value) if halves else value)

    return run


def _int(array: NDArray) -> NDArray:
    return array.astype(np.int32)


def _single(array: NDArray) -> NDArray:
    """bfloat16's bits as float32."""
    wide: NDArray = (array.astype(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return wide


def _halved(value: NDArray) -> NDArray:
    """The nearest bfloat16, ties to even, as bits; NaN stays one."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    near = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    found: NDArray = np.where(np.isnan(value), (bits >> 16) | 0x40, near).astype(np.uint16)
    return found.view(np.int16)
