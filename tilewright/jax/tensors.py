"""Ragged products on XLA's memory, seen as torch's tensors; nothing is copied.

On a GPU by the engines of `ragged_matmul`, on XLA's stream; scratch is torch's of that stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright.jax.ffi import Buffer, register
from tilewright.remember import Shelf

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
_LAUNCH = 1 << 13  # bytes of the host that a kept launch holds, about
# By what is multiplied and where it lies.
_launches: Shelf[tuple[Any, ...], Callable[[int], None]] = Shelf("launches for JAX", most=16 << 20)


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
    """A product on XLA's stream. XLA gives the same places again, so launches are kept by them."""
    key = (form, precision, stream, inputs, results)
    launch = _launches.get(key)
    if launch is None:
        launch = _launches.keep(key, _prepared(*key), size=_LAUNCH)
    launch(stream)  # XLA has made its GPU's context this thread's


def _prepared(
    form: str, precision: str, stream: int, inputs: Sequence[Buffer], results: Sequence[Buffer]
) -> Callable[[int], None]:
    """The launches of a product, on its stream alone: they share a table, as streams do not."""
    from tilewright.backends.cuda.machine import driver, nvrtc
    from tilewright.backends.cuda.ragged import engine

    torch = driver.need()
    (x, y, ends), (out,) = map(_seen_there, inputs), map(_seen_there, results)
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=x.device)):
        nvrtc.enter(x.device.index)
        if form == "depths":
            return engine.standing_depths(x.t(), y, ends, out, precision)
        turned = y.transpose(1, 2) if form == "turned" else y
        return engine.standing_rows(x, turned, ends, out, precision)


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
