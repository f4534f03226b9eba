"""Ragged products on XLA's memory, seen as torch's tensors; nothing is copied.

On a GPU by the engines of `ragged_matmul`, on XLA's stream; scratch is torch's of that stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

from tilewright.jax.ffi import Buffer, register

# By the numbers that XLA's C interface gives dtypes: torch's name, and as what memory is shown.
_DTYPES = {
    4: ("int32", "int32", "<i4"),
    10: ("float16", "float16", "<f2"),
    11: ("float32", "float32", "<f4"),
    12: ("float64", "float64", "<f8"),
    16: ("bfloat16", "int16", "<i2"),
}
_ITEM = {"<i2": 2, "<i4": 4, "<f2": 2, "<f4": 4, "<f8": 8}
PREFIX = "tilewright_ragged"


def register_all() -> None:
    """Every form and precision, for both platforms."""
    for form in ("rows", "turned", "depths"):
        for precision in ("ieee", "tf32"):
            name = f"{PREFIX}_{form}_{precision}"
            register(name, partial(_on_gpu, form, precision), "CUDA")
            register(name, partial(_on_processor, form), "cpu")


def _on_gpu(
    form: str, precision: str, inputs: Sequence[Buffer], results: Sequence[Buffer], stream: Any
) -> None:
    from tilewright.backends.cuda.machine import driver, nvrtc
    from tilewright.backends.cuda.ragged import engine

    torch = driver.need()
    (x, y, ends), (out,) = map(_seen_there, inputs), map(_seen_there, results)
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=x.device)):
        nvrtc.enter(x.device.index)
        if form == "depths":
            engine.depths(x.t(), y, ends, out, precision)
        else:
            turned = y.transpose(1, 2) if form == "turned" else y
            engine.rows(x, turned, ends, None, out, precision, True)


class _Seen:
    """Memory of a GPU as CuPy's protocol describes it."""

    def __init__(self, buffer: Buffer, kind: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": buffer.shape,
            "typestr": kind,
            "data": (buffer.address, False),
            "strides": None,
            "version": 3,
            "stream": None,
        }


def _seen_there(buffer: Buffer) -> Any:
    import torch

    dtype, plain, kind = _DTYPES[buffer.kind]
    seen = torch.as_tensor(_Seen(buffer, kind), device="cuda")
    return seen if dtype == plain else seen.view(getattr(torch, dtype))


def _on_processor(
    form: str, inputs: Sequence[Buffer], results: Sequence[Buffer], stream: Any
) -> None:
    from tilewright.products.ragged import ragged_matmul

    (x, y, ends), (out,) = map(_seen_here, inputs), map(_seen_here, results)
    if form == "depths":
        out.copy_(ragged_matmul(x.t(), y, ends))
    else:
        out.copy_(ragged_matmul(x, y.transpose(1, 2) if form == "turned" else y, ends))


def _seen_here(buffer: Buffer) -> Any:
    import math

    import torch

    dtype, _, kind = _DTYPES[buffer.kind]
    size = math.prod(buffer.shape) * _ITEM[kind]
    memory = (ctypes.c_char * size).from_address(buffer.address)
    return torch.frombuffer(memory, dtype=getattr(torch, dtype)).view(buffer.shape)
