"""Graphs of operators: what a file says is what runs, free sizes and all types among it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import model, weights_of
from tilewright import nn
from tilewright.errors import ArgumentError, DtypeError, FileError, ShapeError
from tilewright.nn.graph import Graph, Input, Node, Tensor
from tilewright.nn.infer import tensors

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def residual() -> bytes:
    """x -> Conv -> Relu -> Conv -> + x, pads 1, free height and width."""
    w = weights_of(first=(8, 4, 3, 3), second=(4, 8, 3, 3), bias=(8,))
    nodes = [
        ("Conv", ["x", "first", "bias"], ["a"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["b", "second"], ["c"], {"auto_pad": "SAME_UPPER"}),
        ("Add", ["c", "x"], ["y"], {}),
    ]
    return model(nodes, {"x": (1, 4, "height", "width")}, w)


def test_a_network_gives_what_onnxruntime_gives(rng: np.random.Generator) -> None:
    content = residual()
    x = rng.standard_normal((1, 4, 9, 12)).astype(np.float32)
    (wanted,) = ort.InferenceSession(content).run(None, {"x": x})
    net = nn.import_onnx(content)
    assert net.inputs == (Input("x", (1, 4, "height", "width"), "float32"),)
    np.testing.assert_allclose(net.run(x), wanted, atol=1e-5)
    np.testing.assert_array_equal(net.run(x=x), net.run(x))


def test_a_network_runs_on_torch_by_the_same_definitions(rng: np.random.Generator) -> None:
    pytest.importorskip("array_api_compat")
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((1, 4, 5, 6)).astype(np.float32)
    net = nn.import_onnx(residual())
    given = net.run(torch.from_numpy(x))
    assert isinstance(given, torch.Tensor)
    np.testing.assert_allclose(given.numpy(), net.run(x), atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "sizes"),
    [
        ({"strides": [2, 1], "dilations": [1, 2]}, (2, 4, 8, 9)),
        ({"group": 2, "pads": [0, 1, 2, 3]}, (1, 8, 6, 5)),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (1, 4, 7, 8)),
        ({"auto_pad": "VALID"}, (1, 4, 7, 8)),
    ],
)
def test_convolutions_of_every_kind(
    attributes: dict[str, Any], sizes: tuple[int, ...], rng: np.random.Generator
) -> None:
    nodes = [("Conv", ["x", "w"], ["y"], attributes)]
    content = model(nodes, {"x": sizes}, weights_of(w=(6, 4, 3, 3)))
    x = rng.standard_normal(sizes).astype(np.float32)
    (wanted,) = ort.InferenceSession(content).run(None, {"x": x})
    net = nn.import_onnx(content)
    np.testing.assert_allclose(net.run(x), wanted, atol=1e-5)
    assert tensors(net.graph, {"x": sizes})["y"].shape == wanted.shape


def test_bfloat16_is_rounded_after_every_operator(rng: np.random.Generator) -> None:
    net = nn.import_onnx(model([("Add", ["x", "x"], ["y"], {})], {"x": (64,)}, dtype="BFLOAT16"))
    x = rng.standard_normal(64).astype(np.float32)
    made = net.run(x)
    assert not (made.view(np.uint32) & 0xFFFF).any()
    np.testing.assert_allclose(made, 2 * x, rtol=2**-8)


def test_everything_that_is_not_understood_is_named_at_once() -> None:
    nodes = [
        ("Whatever", ["x"], ["a"], {}),
        ("Relu", ["a"], ["b"], {"alpha": 1.0}),
        ("Add", ["b", "x", "x"], ["c"], {}),
        ("Other", ["c"], ["y"], {}),
    ]
    content = model(nodes, {"x": (3,)}, check=False)
    with pytest.raises(FileError) as caught:
        nn.import_onnx(content)
    said = str(caught.value)
    for part in (
        "node 'a' (Whatever)",
        "node 'b' (Relu): attribute 'alpha'",
        "3 inputs",
        "(Other)",
    ):
        assert part in said


def test_element_types_that_an_operator_does_not_take_are_named() -> None:
    nodes = [("Relu", ["x"], ["y"], {})]
    with pytest.raises(FileError, match=r"node 'y' \(Relu\): bool; accepted are float16"):
        nn.import_onnx(model(nodes, {"x": (3,)}, dtype="BOOL", check=False))


def test_inputs_that_do_not_fit_are_named() -> None:
    net = nn.import_onnx(residual())
    x = np.zeros((1, 4, 9, 12), np.float32)
    with pytest.raises(ShapeError, match=r"input 'x': shape \[1, 3, 9, 12\]; accepted is"):
        net.run(x[:, :3])
    with pytest.raises(DtypeError, match=r"input 'x': float64; accepted is float32"):
        net.run(x.astype(np.float64))
    with pytest.raises(ArgumentError, match=r"input 'x' is absent"):
        net.run()
    with pytest.raises(ArgumentError, match=r"input 'z': accepted is each of \['x'\] once"):
        net.run(x, z=x)


def test_a_graph_whose_names_do_not_agree_is_refused() -> None:
    x = Input("x", (3,), "float32")
    relu = Node("Relu", 14, ("x",), ("y",))
    one = Tensor((3,), "float32", np.ones(3, np.float32))
    with pytest.raises(ArgumentError, match=r"'y' is there already"):
        Graph((relu, relu), (x,), ("y",), {})
    with pytest.raises(ArgumentError, match=r"input 'x': the name is taken"):
        Graph((relu,), (x,), ("y",), {"x": one})
    with pytest.raises(ArgumentError, match=r"input 'z' is no value before it"):
        Graph((Node("Add", 14, ("x", "z"), ("y",)),), (x,), ("y",), {})
    with pytest.raises(ArgumentError, match=r"output 'z': no node gives it"):
        Graph((relu,), (x,), ("z",), {})
