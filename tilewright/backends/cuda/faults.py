"""What a kernel found wrong, without waiting for it: a flag in memory that host and GPU both reach.

A kernel that meets offsets that cannot be leaves the group's number plus one in the flag of its
device. The host looks, without waiting, before the next such product, and after waiting in
`synchronize`; it raises once and forgets.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tilewright.errors import ShapeError


@cache
def flag(ordinal: int) -> Any:
    """The flag of a device, int32 [1]; of the interpreter where the ordinal is negative."""
    import torch

    return torch.zeros(1, dtype=torch.int32, pin_memory=ordinal >= 0)


def check(ordinal: int) -> None:
    """Raise what a kernel that has finished found wrong. Raises ShapeError naming the group."""
    number = int(_seen(ordinal)[0])
    if number:
        _seen(ordinal)[0] = 0
        raise ShapeError(
            f"offsets[group {number - 1}]: of an earlier product decrease, begin below 0 or run"
            " past the rows; its rows, and maybe those of later groups, were not computed"
        )


def check_unless_captured(value: Any) -> None:
    """`check` for the device of a tensor, but while a CUDA graph is captured: nothing runs then."""
    ordinal = value.get_device()
    if _seen(ordinal)[0]:
        import torch

        if not torch.cuda.is_current_stream_capturing():
            check(ordinal)


@cache
def _seen(ordinal: int) -> Any:
    """The flag as NumPy sees it."""
    return flag(ordinal).numpy()
