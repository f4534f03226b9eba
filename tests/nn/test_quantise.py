"""Networks in int8: calibrated, close to float32, bit-equal wherever whole numbers are summed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.nets import NodeText, model, weights_of
from tilewright import nn
from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, ShapeError
from tilewright.nn.net import Network
from tilewright.nn.operators.conv_int8 import NAME
from tilewright.nn.passes.int8 import with_int8

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
ONE = {"pads": [1, 1, 1, 1]}


def chain(channels: int = 16) -> bytes:
    """The net S: 3x3 convolutions 1 -> 16, 3 x 16 -> 16, 16 -> 4, ReLU between, a pixel shuffle."""
    sizes = [1, *[channels] * 4, 4]
    shapes = {f"w{i}": (sizes[i + 1], sizes[i], 3, 3) for i in range(5)}
    w = weights_of(**shapes, **{f"b{i}": (sizes[i + 1],) for i in range(5)})
    nodes: list[NodeText] = []
    x = "x"
    for at in range(5):
        nodes.append(("Conv", [x, f"w{at}", f"b{at}"], [f"c{at}"], ONE))
        if at < 4:
            nodes.append(("Relu", [f"c{at}"], [f"r{at}"], {}))
        x = f"r{at}"
    nodes.append(("DepthToSpace", ["c4"], ["y"], {"blocksize": 2, "mode": "CRD"}))
    return model(nodes, {"x": ("n", 1, "h", "w")}, w)


def pictures(count: int = 4, size: int = 24) -> NDArray:
    """Smooth pictures from 0 to 1."""
    rng = np.random.default_rng(5)
    waves = rng.uniform(0, 0.6, (count, 1, 1, 2))
    rows, columns = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    phase = waves[..., 0, None] * rows + waves[..., 1, None] * columns
    return (0.5 + 0.5 * np.sin(phase)).reshape(count, 1, size, size).astype(np.float32)


@pytest.fixture(scope="module")
def net() -> Network:
    return nn.import_onnx(chain())


@pytest.mark.parametrize("method", ["minmax", "percentile", "squares"])
def test_a_network_in_int8_is_close_to_float32(net: Network, method: str) -> None:
    samples = pictures()
    small = nn.quantise(net, samples, method=method)
    found = nn.damage(net, small, samples)
    assert found.psnr > 38, found.table()
    assert {name for name, _ in found.layers} == {f"c{at}" for at in range(5)}
    kinds = {t.dtype for n, t in small.graph.constants.items() if n.endswith("int8")}
    assert kinds == {"int8"}


def test_every_convolution_becomes_one_of_whole_numbers_and_values_between_are_uint8(
    net: Network,
) -> None:
    joined = Network(with_int8(nn.quantise(net, pictures()).graph))
    convolutions = [node for node in joined.graph.nodes if node.operator == NAME]
    assert len(convolutions) == 5
    assert [joined.types[n.outputs[0]] for n in convolutions] == ["uint8"] * 4 + ["float32"]
    assert [n.operator for n in joined.graph.nodes if n.operator != NAME] == [
        "QuantizeLinear",
        "DepthToSpace",
    ]


def test_joined_and_alone_they_differ_by_the_rounding_of_float32_sums_alone(net: Network) -> None:
    small, x = nn.quantise(net, pictures()), pictures(2)
    alone, joined = small.run(x), Network(with_int8(small.graph)).run(x)
    step = np.abs(alone).max() / 255
    assert np.abs(alone - joined).max() < 2 * step
    np.testing.assert_array_equal(small.bind(x.shape, "host")(x), joined)


def test_sums_are_exact_in_float32_only_where_none_passes_its_whole_numbers() -> None:
    rng = np.random.default_rng(4)
    for channels, short in ((8, True), (600, False)):
        w = weights_of(w=(3, channels, 3, 3))
        net = nn.import_onnx(
            model([("Conv", ["x", "w"], ["y"], ONE)], {"x": (1, channels, 5, 5)}, w)
        )
        x = rng.standard_normal((1, channels, 5, 5)).astype(np.float32)
        joined = with_int8(nn.quantise(net, x).graph)
        (node,) = (node for node in joined.nodes if node.operator == NAME)
        assert node.attributes["numbers"].short is short
        wide = replace(node.attributes["numbers"], short=False)
        nodes = [
            replace(n, attributes={**n.attributes, "numbers": wide}) if n is node else n
            for n in joined.nodes
        ]
        exact = Network(joined.with_nodes(nodes)).run(x)
        np.testing.assert_array_equal(Network(joined).run(x), exact)


def test_torch_gives_the_same_bits(net: Network) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    joined, x = Network(with_int8(nn.quantise(net, pictures()).graph)), pictures(2)
    np.testing.assert_array_equal(joined.run(torch.from_numpy(x)).numpy(), joined.run(x))


def test_onnxruntime_reads_what_the_nodes_say() -> None:
    """A file of QuantizeLinear and DequantizeLinear means the same there, but for its rounding."""
    rng = np.random.default_rng(2)
    small, zero = np.float32(0.02), np.uint8(100)
    constants = {
        "s": np.asarray(small), "z": np.asarray(zero),
        "w": rng.integers(-127, 128, (6, 4, 3, 3), np.int8),
        "ws": rng.uniform(0.001, 0.01, 6).astype(np.float32), "wz": np.zeros(6, np.int8),
        "b": rng.integers(-900, 900, 6, np.int32), "bz": np.zeros(6, np.int32),
        "t": np.asarray(np.float32(0.05)), "tz": np.asarray(np.uint8(3)),
    }  # fmt: skip
    constants["bs"] = constants["ws"] * small
    nodes: list[NodeText] = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ("DequantizeLinear", ["w", "ws", "wz"], ["wd"], {"axis": 0}),
        ("DequantizeLinear", ["b", "bs", "bz"], ["bd"], {"axis": 0}),
        ("Conv", ["d", "wd", "bd"], ["c"], {"strides": [2, 1], **ONE}),
        ("Relu", ["c"], ["r"], {}),
        ("QuantizeLinear", ["r", "t", "tz"], ["p"], {}),
        ("DequantizeLinear", ["p", "t", "tz"], ["y"], {}),
    ]
    content = model(nodes, {"x": (2, 4, 9, 8)}, constants)
    x = rng.standard_normal((2, 4, 9, 8)).astype(np.float32)
    net = nn.import_onnx(content)
    joined = with_int8(net.graph)
    assert [n.operator for n in joined.nodes] == ["QuantizeLinear", NAME, "DequantizeLinear"]
    (wanted,) = ort.InferenceSession(content).run(None, {"x": x})
    made = Network(joined).run(x)
    assert np.abs(made - wanted).max() <= 0.05 * 1.001
    assert (made != wanted).mean() < 0.01


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize(("scale", "zero"), [((1,), ()), ((), (1,)), ((1,), (1,)), ((), ())])
def test_one_scale_and_its_zero_may_be_numbers_or_arrays_of_one(
    scale: tuple[int, ...], zero: tuple[int, ...], fuse: bool
) -> None:
    """Onnxruntime's quantizer writes the scale of a bias as [1] beside a zero that is a number."""
    rng = np.random.default_rng(3)
    constants = {
        "s": np.full(scale, 0.02, np.float32), "z": np.full(zero, 100, np.uint8),
        "w": rng.integers(-127, 128, (6, 4, 3, 3), np.int8),
        "ws": np.full(scale, 0.005, np.float32), "wz": np.zeros(zero, np.int8),
        "b": rng.integers(-900, 900, 6, np.int32), "bz": np.zeros(zero, np.int32),
        "bs": np.full(scale, np.float32(0.02) * np.float32(0.005), np.float32),
    }  # fmt: skip
    nodes: list[NodeText] = [
        ("QuantizeLinear", ["x", "s", "z"], ["q"], {}),
        ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ("DequantizeLinear", ["w", "ws", "wz"], ["wd"], {}),
        ("DequantizeLinear", ["b", "bs", "bz"], ["bd"], {}),
        ("Conv", ["d", "wd", "bd"], ["y"], ONE),
    ]
    content = model(nodes, {"x": (1, 4, 9, 8)}, constants)
    x = rng.standard_normal((1, 4, 9, 8)).astype(np.float32)
    (wanted,) = ort.InferenceSession(content).run(None, {"x": x})
    made = nn.import_onnx(content).bind(device="host", fuse=fuse)(x)
    assert np.abs(made - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_network_is_quantised_with_scales_of_one_shape_or_refused() -> None:
    nodes: list[NodeText] = [("QuantizeLinear", ["x", "s", "z"], ["y"], {})]
    constants = {"s": np.ones(4, np.float32), "z": np.asarray(np.uint8(0))}
    net = nn.import_onnx(model(nodes, {"x": (1, 4, 9, 8)}, constants, check=False))
    with pytest.raises(ShapeError, match=r"scale \[4\], zero \[\]; accepted are equal"):
        net.bind(device="host")


def test_a_bias_behind_an_identity_is_a_constant_too() -> None:
    w = weights_of(w=(8, 3, 3, 3), b=(8,))
    nodes: list[NodeText] = [
        ("Identity", ["b"], ["same"], {}),
        ("Conv", ["x", "w", "same"], ["y"], ONE),
    ]
    net = nn.import_onnx(model(nodes, {"x": (1, 3, 8, 8)}, w))
    x = np.random.default_rng(1).random((1, 3, 8, 8)).astype(np.float32)
    joined = with_int8(nn.quantise(net, x).graph)
    assert [node.operator for node in joined.nodes] == ["QuantizeLinear", NAME]


def test_bound_on_the_host_chains_and_a_dense_end_run_on_the_engine_of_int8() -> None:
    w = weights_of(w=(16, 3, 3, 3), v=(24, 16, 1, 1), g=(10, 24), b=(10,))
    nodes: list[NodeText] = [
        ("Conv", ["x", "w"], ["c"], {"strides": [2, 2], **ONE}),
        ("Relu", ["c"], ["r"], {}),
        ("Conv", ["r", "v"], ["d"], {}),
        ("GlobalAveragePool", ["d"], ["m"], {}),
        ("Flatten", ["m"], ["f"], {}),
        ("Gemm", ["f", "g", "b"], ["y"], {"transB": 1}),
    ]
    x = np.random.default_rng(1).random((2, 3, 16, 16)).astype(np.float32)
    small = nn.quantise(nn.import_onnx(model(nodes, {"x": (2, 3, 16, 16)}, w)), x)
    bound = small.bind(x.shape, "host")
    engines = [step.engine for step in bound.steps if step.node.operator == "Convs"]
    assert engines.count("int8_chain") == 2
    assert not any(step.node.operator == "DenseInt8" for step in bound.steps)
    wanted = Network(with_int8(small.graph)).run(x)
    np.testing.assert_allclose(bound(x), wanted, rtol=0, atol=np.abs(wanted).max() / 100)


def test_batch_norms_go_into_the_weights_first() -> None:
    w = weights_of(w=(8, 3, 3, 3), gamma=(8,), beta=(8,), mean=(8,))
    w["variance"] = np.linspace(0.5, 2, 8, dtype=np.float32)
    names = ["gamma", "beta", "mean", "variance"]
    nodes: list[NodeText] = [
        ("Conv", ["x", "w"], ["c"], ONE),
        ("BatchNormalization", ["c", *names], ["n"], {}),
        ("Relu", ["n"], ["y"], {}),
    ]
    net = nn.import_onnx(model(nodes, {"x": (1, 3, 8, 8)}, w))
    x = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    small = nn.quantise(net, x)
    assert "BatchNormalization" not in {node.operator for node in small.graph.nodes}
    assert nn.damage(net, small, x).psnr > 38


def test_dense_layers_are_quantised_and_named_ones_are_kept() -> None:
    w = weights_of(a=(5, 7), b=(7, 4), bias=(5,))
    nodes: list[NodeText] = [
        ("Gemm", ["x", "a", "bias"], ["m"], {"transB": 1}),
        ("Gemm", ["m", "c"], ["y"], {}),
    ]
    content = model(nodes, {"x": ("n", 7)}, {**w, "c": weights_of(c=(5, 3))["c"]})
    net = nn.import_onnx(content)
    x = np.random.default_rng(0).standard_normal((16, 7)).astype(np.float32)
    both, one = nn.quantise(net, x), nn.quantise(net, x, keep=["y"])
    assert sum(n.operator == "QuantizeLinear" for n in both.graph.nodes) == 2
    assert sum(n.operator == "QuantizeLinear" for n in one.graph.nodes) == 1
    assert 30 < nn.damage(net, both, x).psnr < nn.damage(net, one, x).psnr


def test_ranges_that_training_knows_need_no_samples(net: Network) -> None:
    given = {f"w{at}": (0.0, 2.0) for at in range(5)}
    small = nn.quantise(net, ranges=given)
    scales = [t.value for n, t in small.graph.constants.items() if n in ("x, scale", "r1, scale")]
    assert [float(s) for s in scales if s is not None] == [np.float32(2 / 255)] * 2
    with pytest.raises(ArgumentError, match=r"samples: none, and no range of value 'r1'"):
        nn.quantise(net, ranges={"w0": (0, 1), "w1": (0, 1)})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"samples": []}, "samples: none; accepted are one and more"),
        ({"method": "guess"}, "method='guess': accepted are minmax, percentile, squares"),
        ({"percentile": 40}, "percentile=40: accepted are numbers above 50"),
        ({"percentile": "a"}, "percentile='a': accepted are numbers above 50"),
        ({"samples": 5}, "samples=5: accepted are an array, or a list of inputs"),
        ({"samples": {"x": 5}}, "samples=.*: accepted are an array, or a list of inputs"),
        ({"keep": "c1"}, "keep='c1': accepted are lists of names of nodes"),
        ({"keep": 5}, "keep=5: accepted are lists of names of nodes"),
        ({"net": 3}, "net=3: accepted are networks"),
        (
            {"ranges": {"nobody": (0, 1)}},
            "ranges: no value or weights are called 'nobody'; accepted",
        ),
        ({"keep": ["nobody"]}, "keep: no node is called 'nobody'; accepted are names of nodes, as"),
    ],
)
def test_what_does_not_fit_is_named(net: Network, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        nn.quantise(**{"net": net, "samples": pictures(1), **changed})


NONE = (np.nan, np.inf, -np.inf)


@pytest.mark.parametrize(
    "ends",
    [*((0.0, bad) for bad in NONE), *((bad, 0.0) for bad in NONE), (1.0, -1.0), (0, 1e300), 5,
     (1,), (0, 1, 2), ("a", "b"), None],
)  # fmt: skip
def test_ranges_that_are_none_are_named(net: Network, ends: Any) -> None:
    given: Any = {**{f"w{at}": (0.0, 2.0) for at in range(5)}, "w3": ends}
    with pytest.raises(ArgumentError, match=r"ranges\['w3'\]=.*accepted are two finite"):
        nn.quantise(net, ranges=given)


@pytest.mark.parametrize("bad", NONE)
def test_constants_that_are_not_finite_are_named_all_at_once(bad: float) -> None:
    w = weights_of(a=(4, 2, 3, 3), b=(4, 4, 1, 1), c=(3, 4), bias=(4,), last=(3,))
    for name, at in (("a", (1, 0, 2, 2)), ("bias", (3,)), ("c", (2, 1))):
        w[name][at] = bad
    nodes: list[NodeText] = [
        ("Conv", ["x", "a"], ["p"], ONE),
        ("Conv", ["p", "b", "bias"], ["q"], {}),
        ("GlobalAveragePool", ["q"], ["r"], {}),
        ("Flatten", ["r"], ["s"], {}),
        ("Gemm", ["s", "c", "last"], ["y"], {"transB": 1}),
    ]
    net = nn.import_onnx(model(nodes, {"x": (1, 2, 6, 6)}, w))
    ranges = {"a": (-1.0, 1.0), "b": (-1.0, 1.0), "c": (-1.0, 1.0)}
    said = rf"'a' has {bad} at \[1, 0, 2, 2\].*'bias' has {bad} at \[3\].*'c' has {bad} at"
    with pytest.raises(ArgumentError, match=said):
        nn.quantise(net, ranges=ranges)
    kept = nn.quantise(net, ranges=ranges, keep=["p", "q", "y"])
    x = pictures(2, 6).reshape(1, 2, 6, 6)
    np.testing.assert_array_equal(kept.run(x), net.run(x))


@pytest.mark.parametrize("method", ["minmax", "percentile", "squares"])
@pytest.mark.parametrize(("of_samples", "of_weights"), [(1e-44, 1), (1, 1e-44), (1e-40, 1e-40)])
def test_numbers_too_small_for_float32_are_quantised_to_finite_ones(
    method: str, of_samples: float, of_weights: float
) -> None:
    w = weights_of(w=(3, 2, 3, 3), b=(3,))
    w = {name: value * np.float32(of_weights) for name, value in w.items()}
    net = nn.import_onnx(model([("Conv", ["x", "w", "b"], ["y"], {})], {"x": (1, 2, 6, 6)}, w))
    x = pictures(2, 6).reshape(1, 2, 6, 6) * np.float32(of_samples)
    wanted = net.run(x)
    made = nn.quantise(net, x, method=method).run(x)
    np.testing.assert_allclose(made, wanted, atol=0.02 * np.abs(wanted).max() + 1e-37)


def test_samples_that_are_not_finite_are_named_by_number_and_place(net: Network) -> None:
    samples = [pictures(1), pictures(1)]
    samples[1][0, 0, 2, 3] = np.nan
    with pytest.raises(ArgumentError, match=r"samples\[1\]: input 'x' has nan at \[0, 0, 2, 3\]"):
        nn.quantise(net, samples)


def test_a_network_is_quantised_once(net: Network) -> None:
    with pytest.raises(ArgumentError, match="net: has QuantizeLinear already"):
        nn.quantise(nn.quantise(net, pictures(1)), pictures(1))
