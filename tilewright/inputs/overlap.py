"""Finds arrays whose elements share memory: such may be read, but never written."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tilewright.arrays.views import View
from tilewright.errors import OverlapError

SHARED = "out: shares memory with {}; accepted is an array apart from every input"
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
    sides = _by_steps(shape, strides)
    for step, size in sides:
        if step <= reach:
            return _found_by_search(sides)
        reach += step * (size - 1)
    return False


def _by_steps(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Steps and sizes of the sides longer than one, the smallest step first.

    Not by `sorted`: a compiler compares sizes that it does not know, and sorts none.
    """
    sides: list[tuple[int, int]] = []
    for size, step in zip(shape, strides, strict=True):
        if size > 1:
            at = len(sides)
            while at and sides[at - 1][0] > abs(step):
                at -= 1
            sides.insert(at, (abs(step), size))
    return sides


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


def check_overlap(views: dict[str, View]) -> None:
    """Raise OverlapError where the output shares memory with an input."""
    c = views["c"]
    for name in ("a", "b", "bias"):
        other = views.get(name)
        if other is None:
            continue
        shared = _share_memory(c.memory, other.memory) if c.host else _ranges_meet(c, other)
        if shared:
            raise OverlapError(SHARED.format(name))


def _share_memory(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    if not np.may_share_memory(first, second):
        return False
    try:
        return np.shares_memory(first, second, max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return True


def _ranges_meet(first: View, second: View) -> bool:
    """Whether two views of a device's buffers reach over the same bytes of the same memory."""
    if 0 in first.shape or 0 in second.shape:
        return False
    (a_memory, a_low, a_high), (b_memory, b_low, b_high) = _reach(first), _reach(second)
    return a_memory == b_memory and a_low < b_high and b_low < a_high


def _reach(operand: View) -> tuple[object, int, int]:
    """The memory that a view's buffer stands for, and its bytes that the view reaches over."""
    memory, start = place(operand.memory)
    item = operand.dtype.itemsize
    steps = [(n - 1) * s for n, s in zip(operand.shape, operand.strides, strict=True)]
    low = operand.offset + sum(step for step in steps if step < 0)
    high = operand.offset + sum(step for step in steps if step > 0) + 1
    return memory, start + low * item, start + high * item


def place(buffer: Any) -> tuple[object, int]:
    """The memory that a device's buffer stands for, and the byte of it where the buffer begins.

    Buffers on a host array (memory="use") stand for the host's memory, parts for their whole.
    """
    start = 0
    whole = getattr(buffer, "associated_memobject", None)
    if whole is not None:
        buffer, start = whole, buffer.offset
    memory: object = getattr(buffer, "int_ptr", id(buffer))
    address = _host_address(buffer)
    if address is not None:
        memory, start = "the host's", start + address
    return memory, start


def _host_address(buffer: Any) -> int | None:
    """Where the host's array begins that a buffer was made on; None for memory of its own."""
    ask = getattr(buffer, "get_host_array", None)
    if ask is None:
        return None
    with contextlib.suppress(Exception):  # pyopencl's errors, without importing it: there is none
        address: int = ask((1,), np.dtype(np.uint8)).__array_interface__["data"][0]
        return address
    return None
