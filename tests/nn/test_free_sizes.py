"""Sizes of outputs said by the names of free ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import model, weights_of
from tilewright import nn
from tilewright.nn.free_sizes import outputs_by_name

pytest.importorskip("onnx")
W = weights_of(w=(8, 2, 3, 3))
X = {"x": ("batch", 2, "height", "width")}
CASES: list[tuple[str, list[Any], tuple[Any, ...]]] = [
    ("as it is", [("Relu", ["x"], ["y"], {})], ("batch", 2, "height", "width")),
    (
        "edges go",
        [("Conv", ["x", "w"], ["y"], {})],
        ("batch", 8, "height - 2", "width - 2"),
    ),
    (
        "twice as large",
        [
            ("Conv", ["x", "w"], ["a"], {"pads": [1] * 4}),
            ("DepthToSpace", ["a"], ["y"], {"blocksize": 2}),
        ],
        ("batch", 2, "2·height", "2·width"),
    ),
    (
        "halves, rounded up: nothing is claimed",
        [("Conv", ["x", "w"], ["y"], {"pads": [1] * 4, "strides": [2, 2]})],
        ("batch", 8, "?", "?"),
    ),
    (
        "halves that have to be whole",
        [("SpaceToDepth", ["x"], ["y"], {"blocksize": 2})],
        ("batch", 8, "height/2", "width/2"),
    ),
    ("two names in one size", [("Flatten", ["x"], ["y"], {})], ("batch", "?")),
    ("one result an image", [("GlobalAveragePool", ["x"], ["y"], {})], ("batch", 2, 1, 1)),
]


@pytest.mark.parametrize(("what", "nodes", "said"), CASES, ids=[case[0] for case in CASES])
def test_sizes_of_outputs_follow_names(what: str, nodes: list[Any], said: tuple[Any, ...]) -> None:
    used = {n: w for n, w in W.items() if any(n in node[1] for node in nodes)}
    network = nn.import_onnx(model(nodes, X, used))
    assert outputs_by_name(network.graph) == {"y": said}


def test_what_is_said_is_what_runs_give() -> None:
    for _, nodes, said in CASES:
        used = {n: w for n, w in W.items() if any(n in node[1] for node in nodes)}
        network = nn.import_onnx(model(nodes, X, used))
        y = network.run(np.ones((3, 2, 10, 14), np.float32))
        names = {"batch": 3, "height": 10, "width": 14}
        for size, text in zip(y.shape, said, strict=True):
            if text != "?":
                formula = str(text).replace("·", "*")
                assert size == eval(formula, {}, names), (text, size)


def test_sizes_that_fit_nothing_are_not_guessed() -> None:
    nodes: Any = [("Reshape", ["x", "s"], ["y"], {})]
    shape = np.array([5, -1], np.int64)
    network = nn.import_onnx(model(nodes, {"x": ("n", 7)}, {"s": shape}))
    assert outputs_by_name(network.graph) == {"y": None}
