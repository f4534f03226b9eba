"""AMX's tiles of the host: whether batches of bfloat16 and int8 may be multiplied by them.

Linux keeps what tiles hold out of a process until it asks (arch_prctl, ARCH_REQ_XCOMP_PERM): the
first instruction would end it. What was granted goes for every thread, and for children by fork. It
is refused where a thread's stack for signals has no room for tiles, or by a sandbox; then vectors
multiply, as they do on every other processor. So whether tiles are used is told to machine code
when it is called, and is nothing that it was compiled with: it is kept on disk for processes that
may be refused.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from tilewright.backends.host import compiled

_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # numbers of Linux's on x86-64


@cache
def is_granted() -> bool:
    """Whether Linux lets this process use tiles, having been asked."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        library: Any = ctypes.CDLL(None)
        return bool(library.syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
    except (OSError, AttributeError):
        return False


def is_there(item: int) -> bool:
    """Whether products of elements of so many bytes can be had of tiles."""
    return bool(compiled.kernels("grouped_amx").has(item)) and is_granted()


def code_of_products(item: int) -> int:
    """Address of what multiplies tiles of elements of so many bytes, or 0."""
    return compiled.code_of_products("grouped_amx", item) if is_there(item) else 0
