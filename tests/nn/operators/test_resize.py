"""Resize of pictures of nothing, and to nothing: sizes as of any other, no elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import model
from tilewright import nn
from tilewright.errors import ShapeError
from tilewright.nn.operators.resize_axis import MODES

pytest.importorskip("onnx")


def resize(shape: tuple[int, ...], kind: str, to: list[Any], **attributes: Any) -> nn.Network:
    """The one node, by its sizes or scales."""
    told = np.array(to, np.int64 if kind == "sizes" else np.float32)
    inputs = ["x", "", "", "to"] if kind == "sizes" else ["x", "", "to"]
    nodes = [("Resize", inputs, ["y"], attributes)]
    return nn.import_onnx(model(nodes, {"x": shape}, {"to": told}, opset=19, check=False))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("shape", "kind", "to", "wanted"),
    [
        ((0, 3, 4, 5), "sizes", [0, 3, 8, 3], (0, 3, 8, 3)),
        ((2, 0, 4, 5), "scales", [1, 1, 2, 0.5], (2, 0, 8, 2)),
        ((2, 3, 4, 5), "scales", [1, 1, 0.1, 2], (2, 3, 0, 10)),
        ((2, 3, 4, 5), "sizes", [2, 3, 7, 0], (2, 3, 7, 0)),
        ((2, 3, 0, 5), "sizes", [2, 3, 0, 9], (2, 3, 0, 9)),
    ],
)
def test_pictures_without_elements_are_resized(
    mode: str, shape: tuple[int, ...], kind: str, to: list[Any], wanted: tuple[int, ...]
) -> None:
    for way in MODES[:5]:
        net = resize(shape, kind, to, mode=mode, coordinate_transformation_mode=way)
        x = np.ones(shape, np.float32)
        assert net.run(x).shape == wanted
        assert net.bind(shape, device="host")(x).shape == wanted


def test_nothing_is_not_made_into_something() -> None:
    net = resize((2, 3, 0, 5), "sizes", [2, 3, 4, 5], mode="linear")
    with pytest.raises(ShapeError, match=r"size 4 of axis 2 of 0 elements"):
        net.run(np.ones((2, 3, 0, 5), np.float32))
