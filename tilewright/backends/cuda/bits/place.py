"""One-bit matrices on NVIDIA GPUs: torch tensors of int64 words, packed and multiplied there.

`PLACE` packs in one pass over the numbers (bits_pack.cu) and keeps the ones of every row,
which the tensor cores' `and` needs. Rows of words begin at multiples of 16 bytes, as Hopper's copy
engine and cp.async want them: a tensor [rows, words] is a view of one with an even number of words.
Everything is enqueued on torch's current stream.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays import storage
from tilewright.arrays.views import loaded_torch
from tilewright.backends.cuda.bits.engines import ENGINES
from tilewright.backends.cuda.bits.launch import padded
from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.engines.bits import WORD, BitEngine
from tilewright.errors import ArgumentError, DeviceMemoryError, DtypeError
from tilewright.facts.device import Device

# IN of bits_pack.cu.
_INPUTS = (
    *("float32", "float16", "bfloat16", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8"),
)
_SEGMENT = 1024  # of bits_pack.cu
_ENOUGH = 4096  # blocks of 256 threads: more than any GPU holds at once
_MOST = 65535  # blocks of a grid along y


class Packing(ctypes.Structure):
    """`struct Packing` of kernels/bits/bits_pack.cu."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "words", "counts", "errors")),
        *((name, ctypes.c_longlong) for name in ("stride", "step", "pitch", "rows", "inner")),
        *((name, ctypes.c_int) for name in ("k", "zero", "whole")),
    ]


class CudaPlace:
    """Torch tensors on NVIDIA GPUs."""

    def takes(self, value: Any) -> bool:
        """Whether it is a torch tensor on such a GPU."""
        torch = loaded_torch()
        if torch is None or not isinstance(value, torch.Tensor) or not value.is_cuda:
            return False
        return torch.version.hip is None

    def device(self, value: Any) -> Device:
        """Its GPU."""
        return driver.device_of(value.device.index)

    def engines(self, device: Device) -> tuple[BitEngine, ...]:
        """Tensor cores of Hopper and of Ampere, population count."""
        return ENGINES

    def pack(self, value: Any, axis: int, zero: int | None) -> tuple[Any, Any]:
        """By loads of 16 bytes where `axis` is contiguous, else by 64 loads a word.

        Waits for the GPU where NaN or 0 could occur, to tell of them.
        """
        import torch

        name = str(value.dtype).removeprefix("torch.")
        if name not in _INPUTS:
            raise DtypeError(f"x.dtype={name!r}: accepted on a GPU are {', '.join(_INPUTS)}")
        value = value.detach()
        storage.check(value, "x")
        k = int(value.shape[axis])
        lead = tuple(value.shape[:axis]) + tuple(value.shape[axis + 1 :])
        words = padded((*lead, -(-k // WORD)), torch.int64, value.device)
        counts = torch.zeros(lead, dtype=torch.int32, device=value.device)
        if counts.numel() and k:
            errors = torch.zeros(1, dtype=torch.int32, device=value.device)
            enqueue_pack(value, axis, words, counts, errors, zero or 0)
            if value.is_floating_point() or (zero is None and name != "bool"):
                _raise(int(errors.item()))
        return words, counts

    def counts(self, words: Any) -> Any:
        """By population count, a warp a row."""
        import torch

        flat = _rows(words)
        counts = torch.zeros(flat.shape[0], dtype=torch.int32, device=words.device)
        if flat.numel():
            places = (ctypes.c_void_p(x.data_ptr()) for x in (flat, counts))
            sizes = map(ctypes.c_longlong, (flat.shape[0], flat.stride(0)))
            arguments = nvrtc.Arguments((*places, *sizes, ctypes.c_int(flat.shape[1])))
            kernel = nvrtc.function("bits_pack:bits_count", (), words.device.index)
            kernel.launch(-(-flat.shape[0] // 8), 256, arguments)
        return counts.reshape(words.shape[:-1])

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """A tensor beside `like`; rows of words begin at multiples of 16 bytes."""
        import torch

        try:
            if dtype == "bits":
                return padded(shape, torch.int64, like.device)
            return torch.empty(shape, dtype=getattr(torch, dtype), device=like.device)
        except torch.cuda.OutOfMemoryError:
            raise DeviceMemoryError(
                f"out: the GPU has no room for a result of shape {shape} in {dtype}"
            ) from None

    def vector(self, value: Any, dtype: str, like: Any) -> Any:
        """A tensor beside `like`, copied where it lies elsewhere."""
        import torch

        own = value if isinstance(value, torch.Tensor) else np.array(value)
        return torch.as_tensor(own, dtype=getattr(torch, dtype), device=like.device).contiguous()

    def to_host(self, words: Any) -> npt.NDArray[np.uint64]:
        """A copy."""
        found: npt.NDArray[np.uint64] = words.cpu().contiguous().numpy().view(np.uint64)
        return found

    def from_host(self, words: npt.NDArray[np.uint64], device: Device) -> Any:
        """A copy."""
        import torch

        where = torch.device("cuda", driver.ordinal_of(device))
        signed = torch.from_numpy(np.array(words, copy=True).view(np.int64))
        return padded(tuple(signed.shape), torch.int64, where).copy_(signed)

    def reshape(self, value: Any, shape: tuple[int, ...]) -> Any:
        """The same memory: rows stay as far apart as they are."""
        return value.view(shape)


def _rows(words: Any) -> Any:
    """Words [..., words] as a matrix, no copy."""
    return words.view(words.shape[:-1].numel(), words.shape[-1])


def enqueue_pack(value: Any, axis: int, words: Any, counts: Any, errors: Any, zero: int) -> None:
    """Launch the kernel for the way that `axis` lies in memory; nothing is waited for.

    Adds to `counts` [...], int32, and sets bits of `errors` [1]: 1 for NaN, 2 for 0 with no rule.
    """
    if value.ndim == 2 and value.stride(0) == 1 and value.stride(1) >= value.shape[0]:
        value, axis = value.T, 1 - axis  # a transposed view: the same numbers, row-major
    if value.ndim != 2 or value.stride(1) != 1:
        value = value.contiguous()
    k = int(value.shape[axis])
    inner = int(value.shape[axis + 1 :].numel())
    flat = _rows(words)
    rows = int(flat.shape[0])
    places = (x.data_ptr() for x in (value, flat, counts, errors))
    stride = _outer_stride(value, axis)
    steps = (stride, value.stride(axis), flat.stride(0))
    packing = Packing(*places, *steps, rows, inner, k, zero, _aligned(value, stride, 16))
    abreast = 4 // value.element_size()  # rows a thread packs side by side; 0 for 64 bits
    if inner == 1 and value.stride(axis) == 1:
        name, step, part = "rows", 8, _SEGMENT
    elif abreast and inner % abreast == 0 and _aligned(value, value.stride(axis), 4):
        name, step, part = "abreast", 256 * abreast, WORD
    else:
        name, step, part = "columns", 256, WORD
    blocks = -(-rows // step)
    grid = (blocks, min(_MOST, -(-k // part), -(-_ENOUGH // blocks)))
    kind = _INPUTS.index(str(value.dtype).removeprefix("torch."))
    kernel = nvrtc.function(f"bits_pack:bits_pack_{name}", (("IN", kind),), value.device.index)
    kernel.launch(grid, 256, nvrtc.Arguments((packing,)))


def _aligned(value: Any, stride: int, size: int) -> bool:
    """Whether it begins, and goes on every `stride` elements, at multiples of `size` bytes."""
    return bool(value.data_ptr() % size == 0 and stride * value.element_size() % size == 0)


def _outer_stride(value: Any, axis: int) -> int:
    """Elements from one group of rows to the next; the dimensions before `axis` are dense."""
    return int(value.stride(axis - 1)) if axis else 0


def _raise(errors: int) -> None:
    if errors & 1:
        raise ArgumentError("x: holds NaN; accepted are real numbers")
    if errors & 2:
        raise ArgumentError(
            "x: holds 0, which has no sign; zero=1 makes it +1, zero=-1 makes it -1"
        )


PLACE = CudaPlace()
