"""Multiplies plain lists of NumPy's arrays into `out` at once, without checks and plans of its own.

Columns of addresses, their overlap and a plan found again take 0.6 ms a call, in which NumPy
multiplies several hundred small products. Here a product costs 1 µs beside NumPy's. What is
asked are the few things that make all of the checks pass for certain: arrays that own their memory
cannot share it, so whose memory it is replaces where it lies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import settings
from tilewright.arrays.views import is_compiling
from tilewright.backends.host.backend import NO_ROOM
from tilewright.calls.grouped_quick_host import COMPLEX, REAL, is_left_to_a_plan
from tilewright.errors import DeviceMemoryError
from tilewright.planning.host_part import ZEROED
from tilewright.settings import DEVICE, VARIABLES

_PLAIN = np.ndarray
_KINDS = (*REAL, *COMPLEX)


def written(a: Any, b: Any, out: Any) -> bool:
    """Whether every a[i] @ b[i] now is in out[i]; else nothing was written, and the batch is to be
    checked and planned like any other. Takes lists and tuples of which `a` is not empty."""
    held = tuple(a), tuple(b), tuple(out)  # another thread may change the lists
    if not len(held[0]) == len(held[1]) == len(held[2]) or type(held[0][0]) is not _PLAIN:
        return False
    if is_compiling() or (DEVICE in VARIABLES and settings.device() != "host"):
        return False
    kind: Any = held[0][0].dtype
    operations = _operations(*held, kind) if kind in _KINDS else None
    if operations is None:
        return False
    if kind in REAL and is_left_to_a_plan(len(held[0]), operations, kind):
        return False
    try:
        for x, y, z in zip(*held):  # noqa: B905 (as many as there are)
            if z.size < ZEROED:
                x.dot(y, z)  # 0.6 µs less than matmul, and zeros before the product
            else:
                np.matmul(x, y, z)
    except MemoryError:
        raise DeviceMemoryError(NO_ROOM) from None
    return True


def _operations(
    a: tuple[Any, ...], b: tuple[Any, ...], out: tuple[Any, ...], kind: Any
) -> int | None:
    """Multiplications of all products, where all are plain matrices that fit, and results lie for
    certain apart from each other and from the operands; else None."""
    places = set(map(id, out))
    operations = 0
    for x, y, z in zip(a, b, out):  # noqa: B905 (as many as there are)
        if not type(x) is type(y) is type(z) is _PLAIN or not x.dtype is y.dtype is z.dtype is kind:
            return None
        flags = z.flags
        if x.ndim != 2 or y.ndim != 2 or not (flags.carray and flags.owndata):
            return None
        rows, inner = x.shape
        depth, columns = y.shape
        if inner != depth or z.shape != (rows, columns):
            return None
        for one in (x, y):
            owner = one if one.base is None else one.base
            if type(owner) is not _PLAIN or not owner.flags.owndata or id(owner) in places:
                return None
        operations += rows * inner * columns
    return operations if len(places) == len(out) else None
