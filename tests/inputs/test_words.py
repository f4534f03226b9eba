"""Errors of odd arguments are the library's own, name the argument, and are short."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import Device, GroupedPlan, RaggedBatch
from tilewright.errors import (
    ArgumentError,
    CacheError,
    DeviceError,
    DeviceMemoryError,
    FileError,
    OperandError,
    TilewrightError,
)
from tilewright.settings import cache_folder

ONES = [np.ones((3, 3), np.float32)] * 2000
LONG: dict[str, Callable[[], Any]] = {
    "alpha": lambda: tilewright.grouped_matmul(ONES, ONES, alpha=["x"] * 2000),
    "beta": lambda: tilewright.grouped_matmul(ONES, ONES, beta=[0.5] * 2000),
    "bias": lambda: tilewright.grouped_matmul(ONES, ONES, bias=np.zeros((2000, 3))),
    "transpose_a": lambda: tilewright.grouped_matmul(ONES, ONES, transpose_a=[1] * 2000),
    "shape": lambda: tilewright.empty((-1,) * 2000),
    "activation": lambda: tilewright.matmul(ONES[0], ONES[0], activation="x" * 9000),
}


@pytest.mark.parametrize("argument", LONG)
def test_values_are_shortened(argument: str) -> None:
    with pytest.raises(TilewrightError, match=argument) as raised:
        LONG[argument]()
    assert len(str(raised.value)) < 400


def test_a_result_that_no_memory_holds_is_refused_in_words() -> None:
    empty = np.zeros((10**8, 0), np.float32)
    with pytest.raises(DeviceMemoryError, match="no room"):
        tilewright.matmul(empty, empty.T)


COPIED: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda a, b: tilewright.matmul(a, b, device="host"),
    "scaled": lambda a, b: tilewright.matmul(a, b, alpha=2.0, device="host"),
    "stacked": lambda a, b: tilewright.matmul(a[None], b[None], device="host"),
    "listed": lambda a, b: tilewright.grouped_matmul([a], [b], device="host"),
    "of many": lambda a, b: tilewright.grouped_matmul([a] * 9, [b] * 9, device="host"),
    "activated": lambda a, b: tilewright.grouped_matmul([a], [b], activation="gelu", device="host"),
}


# Batches of singles are read where they lie, whatever their strides, and nothing is copied.
IN_PLACE = {"listed", "of many", "activated"}
WAYS = [(way, "float16") for way in COPIED] + [
    (way, "float32") for way in COPIED if way not in IN_PLACE
]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("way", "dtype"), WAYS)
def test_copies_that_no_memory_holds_are_refused_in_words(way: str, dtype: str) -> None:
    """One element, spread over terabytes: NumPy copies what its BLAS cannot read in place."""
    k = 2**31 - 64
    a, b = (np.broadcast_to(np.ones((), dtype), shape) for shape in ((4096, k), (k, 4096)))
    with pytest.raises(DeviceMemoryError, match="no room"):
        COPIED[way](a, b)


def test_a_device_has_a_number_or_a_name_behind_its_colon() -> None:
    with pytest.raises(DeviceError, match="no such device"):
        tilewright.matmul(ONES[0], ONES[0], device="opencl:")


def test_a_cache_in_the_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "~nobody-of-this-name/x")
    with pytest.raises(CacheError, match="TILEWRIGHT_CACHE"):
        cache_folder()


def test_names_of_files_have_no_zero_byte() -> None:
    with pytest.raises(ArgumentError, match="path"):
        tilewright.plan_grouped([3], [3], [3]).save("a\0b")


def test_a_saved_plan_without_a_dtype_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    tilewright.plan_grouped([3], [3], [3]).save(file)
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "dtype": None}))
    with pytest.raises(FileError, match="dtype"):
        GroupedPlan.load(file)


@pytest.mark.parametrize("way", [copy.deepcopy, pickle.dumps])
def test_memory_of_a_device_is_not_copied_by_stealth(
    way: Callable[[Any], Any], opencl_device: Device
) -> None:
    array = tilewright.asarray(ONES[0], device=opencl_device)
    batch = RaggedBatch.from_list(ONES[:3], opencl_device)
    for value in (array, batch):
        with pytest.raises(OperandError, match="accepted is"):
            way(value)


def test_the_argument_that_is_another_kind_of_array_is_named() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(OperandError, match="bias="):
        tilewright.matmul(ONES[0], ONES[0], bias=torch.zeros(3, requires_grad=True))
