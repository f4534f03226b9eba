"""Memory of a batch's results: what nobody holds any longer serves the next batch.

The system takes large allocations back at once and gives zeroed pages the next time: 66 MB of
results of 200 products of 64..512 cost 6.6 ms of the 60 that the products take, on two cores of a
Zen 4, for zeros that are overwritten. Below `LEAST` glibc keeps memory by itself.

    results --hold--> their block --dropped--> marked free, kept here --> the next block

What is kept is marked as free (MADV_FREE): the system takes its pages when it is short of memory
and leaves them otherwise, so that marking and using 66 MB again takes 0.1 ms. `forget()` gives all
of it back.
"""

from __future__ import annotations

import mmap
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.aligned import room
from tilewright.remember import forgets

LEAST = 1 << 25  # bytes: glibc's M_MMAP_THRESHOLD goes up to here, and then it keeps such blocks
MOST = 1 << 28  # bytes that are kept
_LOOSE = 2  # a block serves results of as much, down to a half
_FREE: Any = getattr(mmap, "MADV_FREE", None)
_HUGE: Any = getattr(mmap, "MADV_HUGEPAGE", None)
_kept: list[mmap.mmap] = []
forgets(_kept.clear)


class _Block(np.ndarray[Any, Any]):
    """Bytes that results are views of. What is below it nobody sees: who held that would not keep
    it from serving others."""

    base: Any = None


def flat(count: int, dtype: Any, otherwise: str) -> npt.NDArray[Any]:
    """`count` elements of any values. Raises DeviceMemoryError, which says `otherwise`, where there
    is no memory."""
    size = count * np.dtype(dtype).itemsize
    memory = None if size < LEAST or _FREE is None else _served(size) or _mapped(size)
    if memory is None:
        return room(count, dtype, otherwise)
    block: Any = np.ndarray.__new__(_Block, (len(memory),), np.uint8, memory)
    weakref.finalize(block, _take_back, memory).atexit = False
    made: Any = np.ndarray
    elements: npt.NDArray[Any] = made((count,), dtype, block)
    return elements


def _served(size: int) -> mmap.mmap | None:
    """The smallest block that is kept of so many bytes or not many more."""
    fitting = [memory for memory in tuple(_kept) if size <= len(memory) <= _LOOSE * size]
    for memory in sorted(fitting, key=len):
        try:
            _kept.remove(memory)
        except ValueError:  # another thread has it
            continue
        return memory
    return None


def _mapped(size: int) -> mmap.mmap | None:
    """New pages, large ones where the system has them; None where it gives none."""
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if _HUGE is not None:
            memory.madvise(_HUGE)
    except (OSError, ValueError, OverflowError):
        return None
    return memory


def _take_back(memory: mmap.mmap) -> None:
    """Its last holder is gone."""
    if sum(map(len, tuple(_kept))) + len(memory) > MOST:
        return
    try:
        memory.madvise(_FREE)
    except OSError:  # the process locks its memory
        return
    _kept.append(memory)
