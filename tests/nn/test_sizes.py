"""Sizes of inputs come as whole numbers of any library, and anything else is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import plain_net
from tilewright.errors import ArgumentError, ShapeError
from tilewright.nn.net import Network
from tilewright.nn.stored import save


def net() -> Network:
    return plain_net([("Neg", ["x"], ["y"], {})], {"x": ("n", 3)}, {})


@pytest.mark.parametrize(
    "shape",
    [(2, 3), [2, 3], range(2, 4), np.array([2, 3]), (np.int64(2), np.uint8(3)),
     {"x": np.array([2, 3], np.int32)}],
    ids=str,
)  # fmt: skip
def test_whole_numbers_of_any_kind_are_sizes(shape: Any) -> None:
    assert net().bind(shape, device="host").tensors["y"].shape == (2, 3)


@pytest.mark.parametrize(
    "shape",
    [(2.0, 3.0), (2, -3), (True, 3), np.array([2.0, 3.0]), np.array([[2, 3]]), np.int64(2), 2, "23",
     {"x": None}, (2, None)],
    ids=str,
)  # fmt: skip
def test_what_is_no_sizes_is_named(shape: Any) -> None:
    with pytest.raises(ShapeError, match=r"shape of 'x': .*accepted are whole numbers from 0"):
        net().bind(shape, device="host")


@pytest.mark.parametrize("repeats", ["a", 0, -1, 1.5, None])
def test_repeats_are_whole_numbers(repeats: Any) -> None:
    bound = net().bind((2, 3), device="host")
    with pytest.raises(ArgumentError, match=r"repeats=.*: accepted are whole numbers from 1"):
        bound.profile(np.ones((2, 3), np.float32), repeats=repeats)


def test_what_is_no_network_is_not_saved(tmp_path: Any) -> None:
    pytest.importorskip("onnx")
    value: Any = 3
    with pytest.raises(ArgumentError, match="network=3: accepted are networks"):
        save(value, tmp_path / "net.npz")
    assert not list(tmp_path.iterdir())
