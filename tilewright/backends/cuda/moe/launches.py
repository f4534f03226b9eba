"""Launches Triton kernels, compiled once for tensors of the same kinds, sizes and alignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.arrays import torch_private as private
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED, Task, reusable
from tilewright.backends.cuda.ragged.plan import ordinal_of
from tilewright.remember import Shelf

_ALIGNMENT = 16  # bytes: what Triton compiles for
_known: Shelf[tuple[Any, ...], Callable[..., None]] = Shelf("launches of experts", most=1 << 20)


def enqueue(
    kernel: Any,
    programs: int,
    tensors: tuple[Any, ...],
    numbers: tuple[int, ...],
    constants: Mapping[str, Any],
    *,
    moving: tuple[int, ...] = (),
    options: Mapping[str, int] | None = None,
) -> None:
    """Enqueue on torch's current stream, on the current device.

    The kernel takes `tensors`, then `moving`, for which it is not compiled, then `numbers`, for
    which it is, then what is constant.
    """
    ordinal, more = ordinal_of(tensors[0]), options or {}
    kinds = tuple((one.dtype, one.data_ptr() % _ALIGNMENT == 0) for one in tensors)
    key = (kernel, ordinal, kinds, numbers, *constants.items(), *more.items())
    task = Task(kernel, 1, (*tensors, *moving, *numbers), constants, more)
    launch = _known.found(key, lambda: reusable(task, ordinal), lambda _: 1024)
    launch(stream_of(ordinal), programs, *tensors, *moving)


def stream_of(ordinal: int) -> int:
    """Torch's current stream of a GPU."""
    if ordinal == INTERPRETED:
        return 0
    import torch

    return int(private.raw_stream(torch)(ordinal))
