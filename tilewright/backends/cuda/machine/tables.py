"""Brings the tables that kernels read onto the device: records of problems, lists of tiles.

    up to 4 KiB       as parameters of a kernel that stores them (put.cu): 3.7 us of an H200's host
    more of them      through pinned memory: 6.5 us, where `Tensor.pin_memory().to()` takes 16
    inside a capture  as parameters, 32 KiB a launch: a graph holds what its kernels were given

The host waits for neither. Torch keeps a pinned block until the copy has read it; of what a graph
copies again at each replay nobody would know how long. More than 4 KiB of them need CUDA 12.1.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilewright.arrays import torch_private as private
from tilewright.arrays.record import OWN, WORDS, K, M, N, fill
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.work import Ints, Work
from tilewright.facts.dtypes import ITEMSIZE, PARTS

_SIZES = (60, 508, 4080)  # words that a launch of put.cu takes
_MOST_PUT = 508
_THREADS = 256
captured: list[Any] = []  # pinned blocks of graphs where there are no such parameters (ROCm)
_putting = threading.Lock()
_buffers: dict[tuple[int, int], tuple[Any, ...]] = {}  # by size and GPU


def records(work: Work) -> Ints:
    """[problems, WORDS] as arrays/record.py and backends/cuda/kernels/triton/record.py draw it."""
    table = np.zeros((len(work.m), WORDS), np.int64)
    fill_records(work, table)
    return table


def fill_records(work: Work, table: Ints) -> None:
    """The same, into zeros that are there."""
    bias = 0 if work.bias is None else work.bias.address
    sizes = (work.m, work.n, work.k)
    fill(table, (work.a, work.b, work.c), bias, sizes, ITEMSIZE[work.dtype])
    if work.dtype in PARTS:
        _fill_complex(work, table)
        return
    table[:, 13] = np.ascontiguousarray(work.alpha, np.float64).view(np.int64)
    table[:, 14] = (work.beta + 0.0).view(np.int64)  # -0.0 becomes 0: all bits zero


def _fill_complex(work: Work, table: Ints) -> None:
    """The words of complex products that differ: sizes share two, alpha and beta have two each."""
    table[:, M] |= work.n << 32
    table[:, N] = work.k
    numbers = (work.alpha.real, work.alpha.imag, work.beta.real + 0.0, work.beta.imag + 0.0)
    for word, column in zip((K, OWN, OWN + 1, OWN + 2), numbers, strict=True):
        table[:, word] = np.ascontiguousarray(column, np.float64).view(np.int64)


def goes_by_parameters(count: int, ordinal: int) -> bool:
    """Whether so many words are best stored by `put`."""
    import torch

    if ordinal < 0 or not nvrtc.is_cuda(ordinal):
        return False
    return count <= _MOST_PUT or bool(private.is_capturing(torch)())


def put(words: Ints, ordinal: int, stream: int) -> Any:
    """These words on a device as a tensor, stored there by the time that `stream` goes on.

    The stream is torch's current one. Raises DeviceError and torch's OutOfMemoryError.
    """
    import torch

    made = torch.empty(len(words), dtype=torch.int64, device=place(ordinal))
    address = made.data_ptr()
    for first in range(0, len(words), _SIZES[-1]):
        _put(words[first : first + _SIZES[-1]], address + 8 * first, ordinal, stream)
    return made


def _put(words: Ints, address: int, ordinal: int, stream: int) -> None:
    size = next(size for size in _SIZES if len(words) <= size)
    with _putting:
        if (size, ordinal) not in _buffers:
            buffer = np.zeros(size, np.int64)
            to, count = ctypes.c_void_p(), ctypes.c_int()
            at = (ctypes.c_int64 * size).from_address(buffer.ctypes.data)
            kernel = nvrtc.function("put", (("WORDS", size),), ordinal)
            call = (kernel, -(-size // _THREADS), _THREADS, nvrtc.Arguments((to, count, at)))
            _buffers[size, ordinal] = (buffer, to, count, nvrtc.launcher(call))
        buffer, to, count, enqueue = _buffers[size, ordinal]
        buffer[: len(words)] = words
        to.value, count.value = address, len(words)
        enqueue(stream)


def upload(count: int, fill: Callable[[Ints], None], ordinal: int) -> Any:
    """So many words on a device as a tensor, as `fill` writes them, in one copy.

    Raises torch's OutOfMemoryError.
    """
    import torch

    pinned = torch.empty(count, dtype=torch.int64, device="cpu", pin_memory=ordinal >= 0)
    fill(pinned.numpy())
    if ordinal < 0:
        return pinned
    if private.is_capturing(torch)():
        captured.append(pinned)
    made = torch.empty(count, dtype=torch.int64, device=place(ordinal))
    return made.copy_(pinned, non_blocking=True)


@cache
def place(ordinal: int) -> Any:
    """A GPU as torch names it; below 0 the processor, where Triton's interpreter plays one."""
    import torch

    return torch.device("cuda", ordinal) if ordinal >= 0 else torch.device("cpu")


def scratch(size: int, ordinal: int) -> Any:
    """`size` bytes on a device. Raises torch's OutOfMemoryError."""
    import torch

    return torch.empty(size, dtype=torch.uint8, device=place(ordinal))
