"""Columns read from memory are what every array says of itself when it is asked."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tilewright.arrays import addresses
from tilewright.arrays.addresses import Columns

FIELDS = ("address", "rows", "cols", "row", "col")
READERS = (addresses.read, addresses._read_slowly)


def assert_same(arrays: list[Any], dtype: Any) -> None:
    found, asked = (read(arrays, np.dtype(dtype)) for read in READERS)
    assert isinstance(found, Columns)
    assert isinstance(asked, Columns)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(asked, name), name)
        assert getattr(found, name).dtype == np.int64


def odd_arrays(dtype: str) -> list[Any]:
    base = np.zeros((13, 17), dtype)
    records = np.zeros((5, 6), [("x", dtype), ("y", dtype)])
    return [
        base,
        base.T,
        base[::-1],
        base[:, ::-2],
        base[3:3],
        base[:, 5:5],
        base[4:5, 7:8],
        np.asfortranarray(base),
        np.broadcast_to(base[0], (9, 17)),
        np.broadcast_to(np.zeros((), dtype), (3, 4)),
        np.empty((0, 0), dtype),
        np.zeros((4, 3, 2), dtype)[:, :, 1],
        np.zeros((4, 3, 2), dtype)[1],
        records["y"],
        np.lib.stride_tricks.as_strided(base, (3, 3), (base.itemsize, base.itemsize)),
    ]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_odd_arrays_read_as_they_say_of_themselves(dtype: str) -> None:
    assert_same(odd_arrays(dtype), dtype)
    for array in odd_arrays(dtype):
        assert_same([array], dtype)


def test_the_documented_layout_holds_here() -> None:
    """Else every other test of this file compares the slow way with itself."""
    assert addresses.layout_holds()


def test_the_numbers_are_those_of_the_arrays() -> None:
    base = np.zeros((6, 8), np.float32)
    found = addresses.read([base[1::2, 7:2:-3]], base.dtype)
    assert isinstance(found, Columns)
    start = base.__array_interface__["data"][0]
    assert [getattr(found, name).tolist() for name in FIELDS] == [
        [start + 4 * (8 + 7)], [3], [2], [64], [-12],
    ]  # fmt: skip


def test_transposed_columns_are_those_of_the_transpose() -> None:
    base = np.zeros((6, 8), np.float32)[1:, ::2]
    found, turned = (addresses.read([x], base.dtype) for x in (base, base.T))
    assert isinstance(found, Columns)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found.swapped, name), getattr(turned, name))


@pytest.mark.parametrize("read", READERS)
def test_no_arrays_give_empty_columns(read: Any) -> None:
    found = addresses.read([], np.dtype(np.float32))
    assert isinstance(found, Columns)
    assert [len(getattr(found, name)) for name in FIELDS] == [0] * 5


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(4, np.float32),
        np.zeros((), np.float32),
        np.zeros((2, 2, 2), np.float32),
        np.zeros((4, 4), np.float64),
        np.zeros((4, 4), np.int32),
        np.zeros((4, 4), ">f4"),
        np.zeros((4, 4), object),
        np.zeros((4, 4), [("flag", "i1"), ("value", "f4")])["value"],
    ],
    ids=lambda array: f"{array.dtype}-{array.ndim}d-{array.strides}",
)
def test_the_first_array_that_does_not_fit_is_named_by_its_index(
    read: Any, place: int, wrong: Any
) -> None:
    arrays = [np.zeros((2, 3), np.float32) for _ in range(7)]
    arrays[place] = wrong
    arrays[6] = wrong
    assert read(arrays, np.dtype(np.float32)) == place


@pytest.mark.parametrize("read", READERS)
def test_dtypes_that_are_equal_but_other_objects_fit(read: Any) -> None:
    dtype = np.dtype("f4").newbyteorder("<").newbyteorder("=")
    other = np.zeros((2, 3), np.dtype(np.float32, metadata={"unit": "m"}))
    assert other.dtype is not dtype
    assert isinstance(read([np.zeros((2, 3), dtype), other], np.dtype(np.float32)), Columns)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=60)
def test_any_slices_of_any_arrays_read_as_they_say_of_themselves(data: Any) -> None:
    dtype = data.draw(st.sampled_from(["float16", "float32", "float64"]))
    steps = st.sampled_from([-3, -1, 1, 2])
    arrays = []
    for _ in range(data.draw(st.integers(1, 20))):
        base = np.zeros(data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9))), dtype)
        view = base[:: data.draw(steps), :: data.draw(steps)]
        arrays.append(view.T if data.draw(st.booleans()) else view)
    assert_same(arrays, dtype)
