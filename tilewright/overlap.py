"""Whether an array's elements lie over each other: what may be read so, but never written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.errors import OverlapError

_MOST_WORK: Any = 100_000  # steps of the exact search, which may take exponential time


def check_apart(name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Raise OverlapError where elements of what is to be written share a place."""
    if overlaps_itself(shape, strides):
        raise OverlapError(
            f"{name}.strides={tuple(map(int, strides))}: overlaps itself in shape"
            f" {tuple(map(int, shape))}; accepted are strides that give each element its own place"
        )


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements of an array of these strides (in elements) share a place.

    Exact but for strides that NumPy's search gives up on, which count as overlapping.
    """
    if 0 in shape:
        return False
    reach = 0  # from the first to the last element of the dimensions seen so far
    sides = sorted((abs(step), size) for size, step in zip(shape, strides, strict=True) if size > 1)
    for step, size in sides:
        if step <= reach:
            return _found_by_search(sides)
        reach += step * (size - 1)
    return False


def _found_by_search(sides: list[tuple[int, int]]) -> bool:
    """Two elements that meet differ in some dimension; there one of them may as well be the first.

    NumPy compares addresses and reads nothing, so that one byte stands for all of the memory.
    """
    steps, sizes = zip(*sides, strict=True)
    for at, (_, size) in enumerate(sides):
        first, rest = list(sizes), list(sizes)
        first[at], rest[at] = 1, size - 1
        memory = np.zeros(1, np.uint8)
        one = as_strided(memory, first, steps)
        other = as_strided(memory, sizes, steps)[(slice(None),) * at + (slice(1, None),)]
        try:
            if np.shares_memory(one, other, max_work=_MOST_WORK):
                return True
        except np.exceptions.TooHardError:
            return True
    return False
