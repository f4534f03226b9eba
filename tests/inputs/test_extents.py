"""How far arrays reach: bytes from the lowest element to one past the highest, by NumPy's word."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.arrays.views import View, view_host
from tilewright.errors import OperandError, OverlapError
from tilewright.inputs import matrices, overlap, overlap_batch

WHOLE = np.arange(20 * 30, dtype=np.float32).reshape(20, 30)
VIEWS = {
    "whole": WHOLE,
    "rows": WHOLE[3:9],
    "columns": WHOLE[:, 4:7],
    "a part": WHOLE[2:19:4, 5:29:3],
    "rows turned": WHOLE[::-2, 3:5],
    "columns turned": WHOLE[4:6, ::-3],
    "both turned": WHOLE[::-1, ::-1],
    "transposed": WHOLE.T[3:8],
    "one": WHOLE[7:8, 9:10],
    "one row": WHOLE[5:6],
    "one column": WHOLE[:, 6:7],
    "doubles": np.zeros((4, 5))[::-1, 1:3],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_batch_reaches_as_far_as_numpy_says(view: Any) -> None:
    low, high = overlap_batch.extents(matrices.matrices([view], "a"))
    assert (low[0], high[0]) == np.lib.array_utils.byte_bounds(view)


def test_what_is_empty_reaches_over_nothing() -> None:
    low, high = overlap_batch.extents(matrices.matrices([WHOLE[:0], WHOLE[:, :0], WHOLE], "a"))
    assert (low == high).tolist() == [True, True, False]


@dataclass
class Buffer:
    """A device's buffer, or a part of another from a byte on."""

    number: int
    associated_memobject: Any = None
    offset: int = 0

    @property
    def int_ptr(self) -> int:
        return self.number


def lying(buffer: Buffer, array: Any) -> View:
    """A view of a buffer that lies there as the array lies in WHOLE, from element 0 on."""
    steps = tuple(step // array.itemsize for step in array.strides)
    begin = (array.__array_interface__["data"][0] - address(WHOLE)) // array.itemsize
    return View(buffer, begin, array.shape, steps, array.dtype, False)


def address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


IN_WHOLE = {name: view for name, view in VIEWS.items() if view.dtype == np.float32}


@pytest.mark.parametrize("view", IN_WHOLE.values(), ids=IN_WHOLE)
@pytest.mark.parametrize("start", [0, 48])
def test_a_view_of_a_buffer_reaches_as_far(view: Any, start: int) -> None:
    whole = Buffer(5)
    buffer = Buffer(6, whole, start) if start else whole
    memory, low, high = overlap._reach(lying(buffer, view))
    bounds = np.lib.array_utils.byte_bounds(view)
    assert memory == 5
    assert (low, high) == tuple(bound - address(WHOLE) + start for bound in bounds)


@pytest.mark.parametrize("first", IN_WHOLE.values(), ids=IN_WHOLE)
def test_ranges_meet_where_one_begins_before_the_other_ends(first: Any) -> None:
    whole, other = Buffer(5), Buffer(6)
    for second in IN_WHOLE.values():
        a, b = (np.lib.array_utils.byte_bounds(view) for view in (first, second))
        meet = a[0] < b[1] and b[0] < a[1]
        assert overlap._ranges_meet(lying(whole, first), lying(whole, second)) == meet
        assert not overlap._ranges_meet(lying(whole, first), lying(other, second))
    for side in range(2):
        shape = tuple(0 if axis == side else 3 for axis in range(2))
        empty = View(whole, 40, shape, (30, 1), np.dtype(np.float32), False)
        assert not overlap._ranges_meet(lying(whole, first), empty)
        assert not overlap._ranges_meet(empty, lying(whole, first))


@pytest.mark.parametrize(
    ("shape", "strides", "apart"),
    [
        ((4, 5), (5, 1), True),
        ((4, 5), (4, 1), False),
        ((4, 5), (1, 4), True),
        ((4, 5), (1, 3), False),
        ((4, 5), (10, 2), True),
        ((4, 5), (2, 8), True),
        ((4, 5), (0, 1), False),
        ((4, 5), (5, 0), False),
        ((1, 5), (0, 1), True),
        ((4, 1), (1, 0), True),
        ((1, 1), (0, 0), True),
        ((4, 5), (-5, 1), True),
        ((4, 5), (5, -1), True),
        ((4, 5), (-4, -1), False),
    ],
)
def test_no_element_of_an_output_lies_over_another(
    shape: tuple[int, int], strides: tuple[int, int], apart: bool
) -> None:
    held = np.zeros(200, np.float32)
    steps = tuple(4 * step for step in strides)
    out = np.lib.stride_tricks.as_strided(held[100:], shape, steps)
    a, b = np.ones((shape[0], 3), np.float32), np.ones((3, shape[1]), np.float32)
    if apart:
        tw.grouped_matmul([a], [b], out=[out], device="host")
        assert (out == 3).all()
        assert (held == 3).sum() == shape[0] * shape[1]
        return
    with pytest.raises(OverlapError, match=r"out\[0\]"):
        tw.grouped_matmul([a], [b], out=[out], device="host")
    assert not held.any()


def between_elements(shape: tuple[int, ...], begin: int, step: int = 4) -> Any:
    """Singles that begin at a byte, with so many bytes from one to the next."""
    raw = np.zeros(begin + step * int(np.prod(shape)) + 4, np.uint8)
    steps = (step * shape[1], step)
    return np.ndarray(shape, np.float32, raw, begin, steps)


@pytest.mark.parametrize(("begin", "step"), [(1, 4), (2, 4), (0, 5), (4, 6), (3, 7)])
def test_arrays_between_elements_are_read_and_never_written(begin: int, step: int) -> None:
    a, out = between_elements((3, 4), begin, step), between_elements((3, 2), begin, step)
    a[...] = np.arange(12).reshape(3, 4)
    b = np.ones((4, 2), np.float32)
    for device in ("host", None):
        np.testing.assert_array_equal(tw.matmul(a, b, device=device), a @ b)
        with pytest.raises(OperandError, match=r"out\.strides=.*whole elements \(4 bytes\)"):
            tw.matmul(np.ones((3, 4), np.float32), b, out=out, device=device)
    assert not out.any()


def test_swapping_turns_the_last_two_dimensions_alone() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    found = view_host(array).swapped
    assert found.shape == (2, 4, 3)
    assert found.strides == (12, 1, 4)
    np.testing.assert_array_equal(found.memory, array.transpose(0, 2, 1))
    elsewhere = View(SimpleNamespace(), 7, (2, 3, 4), (12, 4, 1), np.dtype(np.float32), False)
    assert elsewhere.swapped.shape == (2, 4, 3)
    assert elsewhere.swapped.strides == (12, 1, 4)
    assert elsewhere.swapped.memory is elsewhere.memory
    assert elsewhere.swapped.offset == 7
