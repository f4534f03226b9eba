"""Residuals of int8 networks are one step, or end a convolution, with the definitions' bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import NodeText, model, picture, plain_net, residual_blocks, weights_of
from tilewright import nn
from tilewright.nn import quantise
from tilewright.nn.net import Network
from tilewright.nn.passes.int8 import with_int8

pytest.importorskip("numba")
pytest.importorskip("onnx")


def rounded(name: str, made: str, number: str) -> list[NodeText]:
    """To bytes and back, by the scale and zero of this number."""
    parts = [f"s{number}", f"z{number}"]
    return [
        ("QuantizeLinear", [name, *parts], [f"{made}8"], {}),
        ("DequantizeLinear", [f"{made}8", *parts], [made], {}),
    ]


def numbers(dtype: str, scale: float, zero: int, at: int) -> dict[str, Any]:
    return {f"s{at}": np.array(scale, np.float32), f"z{at}": np.array(zero, dtype)}


@pytest.mark.parametrize("sizes", [(1, 3, 5, 7), (2, 16, 33, 20), (3, 17), (1,)])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("end", ["", "Relu", "Clip"])
@pytest.mark.parametrize("dtypes", [("uint8", "uint8", "uint8"), ("int8", "uint8", "int8")])
def test_a_sum_between_roundings_has_the_bits_of_its_nodes(
    sizes: tuple[int, ...], both: bool, end: str, dtypes: tuple[str, str, str]
) -> None:
    held = numbers(dtypes[0], 0.031, 3, 0) | numbers(dtypes[1], 0.0173, 100, 1)
    held |= numbers(dtypes[2], 0.02, -7 if dtypes[2] == "int8" else 41, 2)
    held |= {"low": np.array(-0.4, np.float32), "high": np.array(1.3, np.float32)}
    nodes = [*rounded("x", "a", "0"), *(rounded("z", "b", "1") if both else [])]
    nodes.append(("Add", ["a", "b" if both else "z"], ["s"], {}))
    if end:
        nodes.append((end, ["s", "low", "high"] if end == "Clip" else ["s"], ["t"], {}))
    nodes += rounded("t" if end else "s", "y", "2")
    net = nn.import_onnx(model(nodes, {"x": sizes, "z": sizes}, held))
    given = [2 * picture(*sizes), np.flip(picture(*sizes)).copy()]
    bound = net.bind(None, "host")
    np.testing.assert_array_equal(bound(*given), net.run(*given))
    assert "whole_sum" in {step.engine for step in bound.steps}
    assert not any(node.operator == "Add" for node in bound.graph.nodes)


def test_every_pair_of_bytes_is_summed_as_the_nodes_say() -> None:
    """Halves of steps are among them, which round to even."""
    pairs = np.stack(np.meshgrid(np.arange(256), np.arange(256))).reshape(2, 1, 1, 256, 256)
    for scales in ((0.5, 0.25, 0.5), (0.3, 0.7, 0.11), (1.0, 1.0, 2.0)):
        held: dict[str, Any] = {}
        for at, scale in enumerate(scales):
            held |= numbers("uint8", scale, 10 * at, at)
        nodes = [*rounded("x", "a", "0"), *rounded("z", "b", "1"), ("Add", ["a", "b"], ["s"], {})]
        nodes += rounded("s", "y", "2")
        sizes = (1, 1, 256, 256)
        net = nn.import_onnx(model(nodes, {"x": sizes, "z": sizes}, held))
        given = [
            ((p - 10 * at) * np.float32(scales[at])).astype(np.float32)
            for at, p in enumerate(pairs)
        ]
        np.testing.assert_array_equal(net.bind(None, "host")(*given), net.run(*given))


def test_what_is_no_number_is_the_least_byte_as_by_the_nodes() -> None:
    held = numbers("uint8", 0.1, 5, 0) | numbers("uint8", 0.1, 7, 2)
    nodes = [*rounded("x", "a", "0"), ("Add", ["a", "z"], ["s"], {}), *rounded("s", "y", "2")]
    net = nn.import_onnx(model(nodes, {"x": (1, 40), "z": (1, 40)}, held))
    x, z = picture(1, 40), picture(1, 40)
    z[0, :3], z[0, 37:] = (np.nan, np.inf, -np.inf), (np.nan, np.inf, -np.inf)
    np.testing.assert_array_equal(net.bind(None, "host")(x, z), net.run(x, z))


def test_a_sum_that_others_read_and_one_of_unlike_sizes_keep_their_values() -> None:
    held = numbers("uint8", 0.03, 3, 0) | numbers("uint8", 0.02, 9, 2)
    for sizes, outputs in (((2, 4, 5, 6), ("y", "s")), ((1, 4, 1, 1), ("y", "a"))):
        nodes = [*rounded("x", "a", "0"), ("Add", ["a", "z"], ["s"], {}), *rounded("s", "y", "2")]
        net = nn.import_onnx(model(nodes, {"x": (2, 4, 5, 6), "z": sizes}, held, outputs))
        given = picture(2, 4, 5, 6), picture(*sizes)
        for made, wanted in zip(net.bind(None, "host")(*given), net.run(*given), strict=True):
            np.testing.assert_array_equal(made, wanted)


def test_residuals_of_a_quantised_network_end_its_convolutions() -> None:
    net, x = plain_net(*residual_blocks()), picture(2, 3, 30, 41)
    small = quantise(net, [x])
    bound = small.bind(x.shape, "host")
    assert [step.node.operator for step in bound.steps] == ["Convs"] * 3
    assert [step.node.attributes["layers"][-1].adds for step in bound.steps] == [False, True, True]
    wanted = Network(with_int8(small.graph)).run(x)
    np.testing.assert_array_equal(bound(x), wanted)


def test_limits_before_a_residual_keep_it_apart() -> None:
    nodes: list[NodeText] = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["a"], ["b"], {}),
        ("Add", ["b", "x"], ["c"], {}),
        ("Clip", ["c", "low", "high"], ["y"], {}),
    ]
    ends = {"low": np.array(-0.5, np.float32), "high": np.array(1.0, np.float32)}
    net = plain_net(nodes, {"x": (1, 8, 9, 11)}, {**weights_of(w=(8, 8, 3, 3)), **ends})
    x = picture(1, 8, 9, 11)
    small = quantise(net, [x])
    wanted = Network(with_int8(small.graph)).run(x)
    np.testing.assert_array_equal(small.bind(None, "host")(x), wanted)
