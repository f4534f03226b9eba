"""Tells the host what a kernel found wrong: by a flag that both reach, so that nobody waits for it.

A kernel that meets offsets that cannot be leaves the group's number plus one in the flag of its
device; one that meets experts that are none the slot's number plus one, negative. The host looks,
without waiting, before the next such product, and after waiting in `synchronize`; it raises once
and forgets.
"""

from __future__ import annotations

import threading
from typing import Any

from tilewright.errors import ArgumentError, ShapeError

_lock = threading.Lock()
_flags: dict[int, tuple[Any, Any]] = {}  # by device; launches hold them, so they stay for good


def flag(ordinal: int) -> Any:
    """The flag of a device, int32 [1]; of the interpreter where the ordinal is negative."""
    return _flag(ordinal)[0]


def _flag(ordinal: int) -> tuple[Any, Any]:
    """One of each device, whoever asks first, and the same memory as NumPy sees it."""
    found = _flags.get(ordinal)
    if found is None:
        import torch

        with _lock:
            if ordinal not in _flags:
                made = torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=ordinal >= 0)
                _flags[ordinal] = made, made.numpy()
            found = _flags[ordinal]
    return found


def check(ordinal: int) -> None:
    """Raise what a kernel that has finished found wrong.

    Raises ShapeError naming the group, ArgumentError naming the slot.
    """
    seen = _flag(ordinal)[1]
    number = int(seen[0])
    if number:
        seen[0] = 0
        if number < 0:
            raise ArgumentError(
                f"experts.flatten()[{-number - 1}]: of an earlier layer is no expert, from 0 to how"
                " many there are; it, and maybe others, added nothing"
            )
        raise ShapeError(
            f"offsets[group {number - 1}]: of an earlier product decrease, begin below 0 or run"
            " past the rows; its rows, and maybe those of later groups, were not computed"
        )


def check_unless_captured(value: Any) -> None:
    """`check` for the device of a tensor, but while a CUDA graph is captured: nothing runs then."""
    ordinal = value.get_device()
    if _flag(ordinal)[1][0]:
        import torch

        if not torch.cuda.is_current_stream_capturing():
            check(ordinal)
