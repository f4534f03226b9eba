"""Passes change how a network is computed and not what: each is run before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import NodeText, model, weights_of
from tilewright import nn
from tilewright.arrays.array import NDArray
from tilewright.nn.graph import Graph
from tilewright.nn.infer import tensors
from tilewright.nn.net import Network
from tilewright.nn.operators import found
from tilewright.nn.passes import simplified

pytest.importorskip("onnx")
ONE = {"pads": [1, 1, 1, 1]}
W = weights_of(w=(8, 4, 3, 3), v=(8, 8, 3, 3), bias=(8,), gamma=(8,), beta=(8,), mean=(8,))
W["variance"] = np.linspace(0.5, 2, 8, dtype=np.float32)
W["by_channel"] = np.linspace(-1, 2, 8, dtype=np.float32).reshape(8, 1, 1)
W["low"], W["high"] = np.float32(-0.25).reshape(()), np.float32(0.5).reshape(())
W["around"] = np.array([0, 0, 1, 2, 0, 0, 0, 1])
SIZES = (2, 4, 6, 7)


def passed(content: bytes, sizes: tuple[int, ...] = SIZES) -> tuple[Graph, Graph]:
    """A network's graph as it was read, and with all passes done."""
    graph = nn.import_onnx(content).graph
    return graph, simplified(graph, tensors(graph, {"x": sizes}))


def both(content: bytes, sizes: tuple[int, ...] = SIZES) -> tuple[NDArray, NDArray, list[str]]:
    """What it gives before and after the passes, and the operators that are left."""
    before, after = passed(content, sizes)
    x = np.random.default_rng(3).standard_normal(sizes).astype(np.float32)
    return Network(before).run(x), Network(after).run(x), [n.operator for n in after.nodes]


CONV: NodeText = ("Conv", ["x", "w", "bias"], ["c"], ONE)
FOLLOW: dict[str, list[NodeText]] = {
    "relu": [("Relu", ["c"], ["y"], {})],
    "leaky": [("LeakyRelu", ["c"], ["y"], {"alpha": 0.3})],
    "clip": [("Clip", ["c", "low", "high"], ["y"], {})],
    "clip of crossing bounds": [("Clip", ["c", "high", "low"], ["y"], {})],
    "clip from below": [("Clip", ["c", "low"], ["y"], {})],
    "sigmoid": [("Sigmoid", ["c"], ["y"], {})],
    "prelu": [("PRelu", ["c", "by_channel"], ["y"], {})],
    "hard swish": [("HardSwish", ["c"], ["y"], {})],
    "hard sigmoid": [("HardSigmoid", ["c"], ["y"], {"alpha": 0.3, "beta": 0.4})],
    "silu": [("Sigmoid", ["c"], ["s"], {}), ("Mul", ["c", "s"], ["y"], {})],
    "hard swish of two": [
        ("HardSigmoid", ["c"], ["s"], {"alpha": 1 / 6, "beta": 0.5}),
        ("Mul", ["s", "c"], ["y"], {}),
    ],
    "tanh": [("Tanh", ["c"], ["y"], {})],
    "batch norm": [
        ("BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["n"], {}),
        ("Relu", ["n"], ["y"], {}),
    ],
    "scale and shift": [
        ("Mul", ["by_channel", "c"], ["a"], {}),
        ("Sub", ["low", "a"], ["b"], {}),
        ("Add", ["b", "by_channel"], ["y"], {}),
    ],
    "divided": [("Div", ["c", "high"], ["y"], {})],
    "shuffle, channels first": [("DepthToSpace", ["c"], ["y"], {"blocksize": 2, "mode": "CRD"})],
    "shuffle, blocks first": [
        ("PRelu", ["c", "by_channel"], ["p"], {}),
        ("DepthToSpace", ["p"], ["y"], {"blocksize": 2, "mode": "DCR"}),
    ],
    "shuffle, then relu": [
        ("DepthToSpace", ["c"], ["s"], {"blocksize": 2, "mode": "CRD"}),
        ("Relu", ["s"], ["y"], {}),
    ],
    "residual": [
        ("Conv", ["c", "v"], ["d"], ONE),
        ("Add", ["d", "c"], ["s"], {}),
        ("Relu", ["s"], ["y"], {}),
    ],
    "pad": [
        ("Pad", ["c", "around"], ["p"], {}),
        ("Conv", ["p", "v"], ["d"], ONE),
        ("Relu", ["d"], ["y"], {}),
    ],
}


@pytest.mark.parametrize("nodes", FOLLOW.values(), ids=FOLLOW)
def test_what_follows_a_convolution_becomes_part_of_it(nodes: list[NodeText]) -> None:
    missing = {node[0] for node in nodes} - set(found())
    if missing:
        pytest.skip(f"{missing} not implemented")
    before, after, left = both(model([CONV, *nodes], {"x": SIZES}, W))
    assert set(left) == {"Convs"}
    np.testing.assert_allclose(after, before, atol=2e-6 * np.abs(before).max())


TRANSPOSED: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "kernel as stride": ((2, 2), {"strides": [2, 2]}),
    "pads": ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "more at the end": ((9, 9), {"strides": [2, 2], "pads": [4] * 4, "output_padding": [1, 1]}),
    "stride 3": ((5, 4), {"strides": [3, 3], "pads": [1, 0, 1, 1]}),
    "stride 1": ((3, 3), {"pads": [1, 1, 1, 1]}),
    "sizes by stride": ((3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
}


@pytest.mark.parametrize(("kernel", "attributes"), TRANSPOSED.values(), ids=TRANSPOSED)
def test_a_transposed_convolution_is_a_convolution_and_a_pixel_shuffle(
    kernel: tuple[int, int], attributes: dict[str, Any]
) -> None:
    spread = weights_of(t=(4, 3, *kernel), shift=(3,))
    nodes: list[NodeText] = [("ConvTranspose", ["x", "t", "shift"], ["y"], attributes)]
    before, after, left = both(model(nodes, {"x": SIZES}, spread))
    assert left == ["Convs"]
    np.testing.assert_allclose(after, before, atol=3e-6 * np.abs(before).max())


@pytest.mark.parametrize(
    "attributes",
    [{"strides": [2, 1]}, {"strides": [2, 2]}, {"dilations": [2, 2]}, {"group": 2}],
)
def test_a_transposed_convolution_that_is_none_stays(attributes: dict[str, Any]) -> None:
    spread = weights_of(t=(4, 3, 3, 3))
    nodes: list[NodeText] = [("ConvTranspose", ["x", "t"], ["y"], attributes)]
    before, after, left = both(model(nodes, {"x": SIZES}, spread))
    assert left == ["ConvTranspose"]
    np.testing.assert_array_equal(after, before)


def test_a_chain_is_one_node() -> None:
    nodes: list[NodeText] = [
        CONV,
        ("Relu", ["c"], ["a"], {}),
        ("Conv", ["a", "v"], ["b"], ONE),
        ("Relu", ["b"], ["d"], {}),
        ("Conv", ["d", "v"], ["y"], {"strides": [2, 2]}),
    ]
    before, after = passed(model(nodes, {"x": SIZES}, W))
    (chain,) = after.nodes
    assert len(chain.attributes["layers"]) == 3
    names = [node.name for node in before.nodes]
    assert chain.attributes["parts"] == ((*names[:2],), (*names[2:4],), (names[4],))


def test_a_value_that_two_read_ends_a_chain() -> None:
    nodes: list[NodeText] = [
        CONV,
        ("Relu", ["c"], ["a"], {}),
        ("Conv", ["a", "v"], ["b"], ONE),
        ("Add", ["b", "a"], ["y"], {}),
    ]
    before, after, left = both(model(nodes, {"x": SIZES}, W))
    assert left == ["Convs", "Convs"]
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_outputs_of_the_network_are_kept() -> None:
    nodes: list[NodeText] = [CONV, ("Relu", ["c"], ["y"], {})]
    before, after = passed(model(nodes, {"x": SIZES}, W, outputs=("c", "y")))
    assert [node.operator for node in after.nodes] == ["Convs", "Relu"]
    x = np.ones(SIZES, np.float32)
    for one, other in zip(Network(before).run(x), Network(after).run(x), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "other",
    [("Add", ["c", "row"], ["y"], {}), ("Mul", ["c", "c"], ["y"], {}), ("Relu", ["x"], ["y"], {})],
)
def test_what_cannot_be_taken_in_stays(other: Any) -> None:
    if other[0] not in found():
        pytest.skip("not implemented")
    row = {"row": np.arange(7, dtype=np.float32)}
    before, after, left = both(model([CONV, other], {"x": SIZES}, {**W, **row}))
    assert left[-1] == other[0]
    np.testing.assert_array_equal(after, before)


def test_scales_that_leave_float32_are_not_taken_in() -> None:
    big = {"big": np.full((8, 1, 1), 1e38, np.float32)}
    wide = {**W, **big, "w": W["w"] * np.float32(100)}
    if "Mul" not in found():
        pytest.skip("not implemented")
    _, after = passed(model([CONV, ("Mul", ["c", "big"], ["y"], {})], {"x": SIZES}, wide))
    assert [node.operator for node in after.nodes] == ["Convs", "Mul"]


def test_constants_are_computed_once_and_what_nobody_reads_goes() -> None:
    nodes: list[NodeText] = [
        ("Add", ["w", "w"], ["twice"], {}),
        ("Relu", ["twice"], ["above"], {}),
        ("Relu", ["x"], ["nobody"], {}),
        ("Conv", ["x", "above"], ["y"], ONE),
    ]
    before, after, left = both(model(nodes, {"x": SIZES}, W))
    assert left == ["Convs"]
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("flatten", [("Flatten", {"axis": 1}), ("Squeeze", {})])
def test_the_end_of_a_classifier_is_two_convolutions(flatten: tuple[str, dict[str, Any]]) -> None:
    operator, attributes = flatten
    given = ["m"] if operator == "Flatten" else ["m", "axes"]
    content = model(
        [
            CONV,
            ("GlobalAveragePool", ["c"], ["m"], {}),
            (operator, given, ["f"], attributes),
            ("Gemm", ["f", "dense", "row"], ["y"], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
        ],
        {"x": SIZES},
        {
            **W,
            **weights_of(dense=(5, 8), row=(1, 5)),
            **({} if operator == "Flatten" else {"axes": np.array([2, 3])}),
        },
    )
    before, after, left = both(content)
    assert left == ["Convs", "Flatten"]
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("perm", "left"), [([0, 2, 1, 3, 4], 1), ([0, 1, 2, 3, 4], 4)])
def test_a_channel_shuffle_is_one_node(perm: list[int], left: int) -> None:
    content = model(
        [
            ("Relu", ["x"], ["a"], {}),
            ("Neg", ["x"], ["b"], {}),
            ("Concat", ["a", "b"], ["c"], {"axis": 1}),
            ("Reshape", ["c", "split"], ["d"], {}),
            ("Transpose", ["d"], ["e"], {"perm": perm}),
            ("Reshape", ["e", "whole"], ["y"], {}),
        ],
        {"x": SIZES},
        {"split": np.array([2, 2, 4, 6, 7]), "whole": np.array([2, 8, 6, 7])},
    )
    before, after, kept = both(content)
    assert len(kept) == 2 + left
    np.testing.assert_array_equal(after, before)


def test_means_of_pixels_and_of_channels_are_convolutions() -> None:
    content = model(
        [
            CONV,
            ("ReduceMean", ["c"], ["g"], {"axes": [1]}),
            ("Mul", ["c", "g"], ["d"], {}),
            ("ReduceMean", ["d"], ["m"], {"axes": [-1, 2], "keepdims": 0}),
            ("Gemm", ["m", "dense"], ["y"], {"transB": 1}),
        ],
        {"x": SIZES},
        {**W, **weights_of(dense=(5, 8))},
    )
    before, after, left = both(content)
    assert left == ["Convs", "Convs", "Mul", "Convs", "Flatten"]
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_products_of_one_row_are_convolutions() -> None:
    content = model(
        [
            ("Gemm", ["x", "first"], ["a"], {"transB": 1}),
            ("HardSwish", ["a"], ["b"], {}),
            ("Gemm", ["b", "second", "row"], ["y"], {}),
        ],
        {"x": (1, 9)},
        weights_of(first=(6, 9), second=(6, 5), row=(5,)),
    )
    before, after, left = both(content, (1, 9))
    assert left == ["Unsqueeze", "Convs", "Flatten", "HardSwish", "Unsqueeze", "Convs", "Flatten"]
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)


def test_a_product_whose_bias_differs_by_row_stays_one() -> None:
    content = model(
        [
            CONV,
            ("GlobalAveragePool", ["c"], ["m"], {}),
            ("Flatten", ["m"], ["f"], {"axis": 1}),
            ("Gemm", ["f", "dense", "rows"], ["y"], {"transB": 1}),
        ],
        {"x": SIZES},
        {**W, **weights_of(dense=(5, 8), rows=(2, 5))},
    )
    assert both(content)[2] == ["Convs", "Flatten", "Product"]
