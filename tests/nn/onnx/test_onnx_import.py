"""Import from ONNX: what is binary is found, every layer compared, and nothing is believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from bench.birealnet_model import birealnet18
from tests.support.onnx_graphs import Graph, by_onnxruntime
from tilewright import onebit
from tilewright.errors import ArgumentError, FileError
from tilewright.onebit.layers import BitConv, Flatten, MaxPool, RealConv, Sign

NDArray = npt.NDArray[Any]


def plain(g: Graph) -> None:
    """Sign, binary convolution with a size for each channel, norm, sign, and a real last layer."""
    s = g.node("Sign", "x")
    w = g.signs(9, 5, 3, 3) * g.draw.uniform(0.1, 2, (9, 1, 1, 1)).astype(np.float32)
    c = g.node("Conv", s, g.const(w), pads=[1, 1, 1, 1])
    s = g.node("Sign", g.norm(c, 9))
    g.node("Conv", s, g.const(g.reals(3, 9, 2, 2)), g.const(g.reals(3)), strides=[2, 1])


def computed(g: Graph) -> None:
    """Weights that the graph binarises itself: Sign of reals, times their mean."""
    w = g.reals(8, 5, 3, 3)
    signs = g.node("Sign", g.const(w))
    scaled = g.node("Mul", signs, g.const(np.abs(w).mean(axis=(1, 2, 3), keepdims=True)))
    c = g.node("Conv", g.node("Sign", "x"), scaled, dilations=[2, 1], group=1)
    g.node("Sign", g.norm(c, 8))


def shortcut(g: Graph) -> None:
    """Two blocks with real shortcuts, as in Bi-Real networks."""
    x = g.node("Conv", "x", g.const(g.reals(6, 5, 1, 1)))
    for _ in range(2):
        c = g.node("Conv", g.node("Sign", x), g.const(g.signs(6, 6, 3, 3)), pads=[1, 1, 1, 1])
        x = g.node("Add", g.norm(c, 6), x)
    x = g.node("GlobalAveragePool", x)
    g.node("Gemm", g.node("Flatten", x), g.const(g.reals(6, 4)), g.const(g.reals(4)), alpha=0.5)


def minus_one(g: Graph) -> None:
    """-1 round the signs: a Pad node and a convolution that pads nothing."""
    pads = g.const(np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64))
    p = g.node("Pad", g.node("Sign", "x"), pads, g.const(np.float32(-1)))
    g.node("Sign", g.norm(g.node("Conv", p, g.const(g.signs(4, 5, 3, 3))), 4))


def zero_pad(g: Graph) -> None:
    pads = g.const(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    p = g.node("Pad", g.node("Sign", "x"), pads)
    g.norm(g.node("Conv", p, g.const(g.signs(4, 5, 3, 3))), 4)


def groups(g: Graph) -> None:
    x = g.node("Conv", "x", g.const(g.reals(6, 5, 1, 1)))
    c = g.node("Conv", g.node("Sign", x), g.const(g.signs(9, 2, 3, 3)), group=3, strides=[2, 2])
    g.norm(c, 9)


def flattened(g: Graph) -> None:
    """Features in ONNX's order, channels first, met by a dense layer and by a norm."""
    s = g.node("Sign", "x")
    f = g.node("Reshape", s, g.const(np.array([0, -1], np.int64)))
    d = g.node("MatMul", f, g.const(g.signs(5 * 7 * 6, 8)))
    s = g.node("Sign", g.norm(g.node("Add", d, g.const(g.reals(8) + 0.3)), 8))
    g.node("Gemm", s, g.const(g.reals(3, 8)), transB=1)


def pools(g: Graph) -> None:
    m = g.node("MaxPool", g.node("Sign", "x"), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    c = g.norm(g.node("Conv", m, g.const(g.signs(7, 5, 2, 2))), 7)
    a = g.node("AveragePool", c, kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    a = g.node("AveragePool", a, kernel_shape=[3, 2], pads=[1, 0, 1, 0])
    m = g.node("MaxPool", a, kernel_shape=[2, 1], pads=[1, 0, 0, 0])
    g.node("Relu", g.node("ReduceMean", m, axes=[2, 3], keepdims=0))


def arithmetic(g: Graph) -> None:
    """Norms written out, constants on either side, limits as inputs."""
    x = g.node("Sub", "x", g.const(g.reals(5, 1, 1)))
    x = g.node("Div", x, g.const(np.float32(2)))
    x = g.node("Sub", g.const(g.reals(1, 5, 1, 1)), x)
    x = g.node("Clip", x, g.const(np.float32(-0.7)), g.const(np.float32(0.9)))
    c = g.node("Conv", g.node("Sign", x), g.const(g.signs(6, 5, 1, 1)))
    c = g.node("Mul", g.const(g.reals(6, 1, 1) + 3), c)
    s = g.node("Sign", g.node("Add", c, g.const(g.reals(6, 1, 1) + 0.1)))
    g.node("Identity", g.node("Dropout", g.node("Cast", s, to=TensorProto.FLOAT)))
    g.node("Relu", g.nodes[-1].output[0])


MODELS: tuple[Callable[[Graph], None], ...] = (
    plain,
    computed,
    shortcut,
    minus_one,
    zero_pad,
    groups,
    flattened,
    pools,
    arithmetic,
)


def imported(build: Callable[[Graph], None], *shape: int, seed: int = 0) -> Any:
    graph = Graph(*(shape or (5, 7, 6)), seed=seed)
    build(graph)
    content = graph.bytes()
    return content, *onebit.import_onnx(content)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("build", MODELS)
def test_gives_what_onnxruntime_gives(build: Callable[[Graph], None], seed: int) -> None:
    content, network, report = imported(build, seed=seed)
    assert report.exact, report
    x = np.random.default_rng(9).standard_normal((1, 7, 6, 5)).astype(np.float32)
    truth = by_onnxruntime(content, x)
    got = network.run(x).reshape(truth.shape)
    assert np.allclose(got, truth, rtol=1e-5, atol=1e-5)


def test_a_layer_between_signs_has_thresholds_and_no_floats() -> None:
    _, network, _ = imported(computed)
    (conv,) = (layer for layer in network.layers if isinstance(layer, BitConv))
    assert conv.threshold is not None
    assert conv.scale is None
    assert len(network.layers) == 2


def test_kinds_of_layers_are_found() -> None:
    for build, kinds in (
        (plain, (Sign, BitConv, RealConv)),
        (minus_one, (Sign, BitConv)),
        (flattened, (Sign, Flatten, BitConv, RealConv)),
    ):
        assert tuple(type(layer) for layer in imported(build)[1].layers) == kinds
    _, network, _ = imported(pools)
    assert isinstance(network.layers[1], MaxPool)
    assert network.values[network.layers[1].name].kind == "bits"


def test_the_padding_that_a_model_was_trained_with_is_kept() -> None:
    assert imported(minus_one)[1].paddings == ("minus_one",)
    assert imported(zero_pad)[1].paddings == ("zero",)


@pytest.mark.parametrize("comparison", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize("chosen", [(1.0, -1.0), (-1.0, 1.0)])
def test_where_is_a_sign_with_its_own_rule_for_equality(
    comparison: str, constant_first: bool, chosen: tuple[float, float]
) -> None:
    """Sums of nine signs hit a threshold of 1 often: strict and not differ."""

    def build(g: Graph) -> None:
        c = g.node("Conv", g.node("Sign", "x"), g.const(g.signs(4, 1, 3, 3)))
        cut = g.const(np.array([1, -1, 3, 0.5], np.float32).reshape(1, 4, 1, 1))
        order = (cut, c) if constant_first else (c, cut)
        yes, no = (g.const(np.float32(v)) for v in chosen)
        g.node("Where", g.node(comparison, *order), yes, no)

    content, network, report = imported(build, 1, 8, 8)
    assert report.exact
    x = np.random.default_rng(1).standard_normal((1, 8, 8, 1)).astype(np.float32)
    assert np.array_equal(network.run(x), by_onnxruntime(content, x))


@pytest.mark.parametrize("strict", [False, True])
def test_where_of_reals_keeps_its_rule_too(strict: bool) -> None:
    def build(g: Graph) -> None:
        cut = g.const(np.array([[0.5, -2.0, 0.0]], np.float32))
        condition = g.node("Greater" if strict else "GreaterOrEqual", "x", cut)
        g.node("Where", condition, g.const(np.float32(1)), g.const(np.float32(-1)))

    _, network, _ = imported(build, 3)
    equal = -1.0 if strict else 1.0
    assert network.run(np.array([0.5, -2.0, 0.0], np.float32)).tolist() == [equal] * 3
    below = np.nextafter(np.array([0.5, -2.0, 0.0], np.float32), np.float32(-np.inf))
    assert network.run(below).tolist() == [-1.0] * 3


def test_onnx_sign_of_zero_is_reported() -> None:
    """Sums of four signs are often 0: ONNX's Sign gives 0 there, a bit cannot."""

    def build(g: Graph) -> None:
        c = g.node("Conv", g.node("Sign", "x"), g.const(g.signs(6, 1, 2, 2)))
        g.node("Sign", c)

    content, network, report = imported(build, 1, 9, 9)
    assert not report.exact
    last = report.layers[-1]
    assert last.zeros == last.differing > 20
    x = np.random.default_rng(1).standard_normal((1, 9, 9, 1)).astype(np.float32)
    truth = by_onnxruntime(content, x)
    assert np.array_equal(network.run(x), np.where(truth == 0, 1, truth))


def test_weights_that_half_precision_rounds_are_reported() -> None:
    def build(g: Graph) -> None:
        g.node("Conv", "x", g.const(g.draw.standard_normal((4, 5, 3, 3)).astype(np.float32)))

    _, _, report = imported(build)
    (layer,) = report.layers
    assert layer.differing > 0
    assert 0 < layer.largest < 1e-2 * layer.scale


@pytest.mark.parametrize("size", [1e-7, 1e6])
def test_weights_beyond_half_precision_get_a_power_of_two(size: float) -> None:
    def build(g: Graph) -> None:
        power = 2.0 ** np.round(np.log2(size))
        g.node("Conv", "x", g.const((g.reals(4, 5, 3, 3) * power).astype(np.float32)))

    assert imported(build)[2].exact


def test_a_sample_decides_what_is_compared() -> None:
    graph = Graph(5, 7, 6)
    plain(graph)
    x = np.random.default_rng(3).standard_normal((4, 7, 6, 5)).astype(np.float32)
    _, report = onebit.import_onnx(graph.bytes(), sample=x)
    assert report.layers[0].elements == x.size
    with pytest.raises(ArgumentError, match=r"sample\.shape"):
        onebit.import_onnx(graph.bytes(), sample=x[..., :4])


def test_bi_real_net_18_equals_its_float_graph_in_every_layer() -> None:
    content = birealnet18(classes=10, size=64).SerializeToString()
    network, report = onebit.import_onnx(content)
    assert report.exact
    assert report.same_class
    binary = [layer for layer in network.layers if isinstance(layer, BitConv)]
    assert len(binary) == 16
    assert all(layer.padding == "zero" for layer in binary)


def two_inputs(g: Graph) -> Any:
    plain(g)
    model = g.model()
    model.graph.input.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1]))
    return model


def two_outputs(g: Graph) -> Any:
    plain(g)
    model = g.model()
    model.graph.output.append(model.graph.output[0])
    return model


def open_size(g: Graph) -> Any:
    plain(g)
    model = g.model()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    return model


def claims_more(g: Graph) -> Any:
    plain(g)
    model = g.model()
    model.graph.initializer[0].dims[0] = 1 << 40
    return model


def claims_less(g: Graph) -> Any:
    plain(g)
    model = g.model()
    model.graph.initializer[0].raw_data = b"\0" * 8
    return model


def negative(g: Graph) -> Any:
    plain(g)
    model = g.model()
    model.graph.initializer[0].dims[0] *= -1
    return model


def elsewhere(g: Graph) -> Any:
    plain(g)
    model = g.model()
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../secret")
    return model


def text(g: Graph) -> Any:
    plain(g)
    model = g.model()
    model.graph.initializer[0].data_type = TensorProto.STRING
    return model


def nan(g: Graph) -> Any:
    g.node("Conv", "x", g.const(np.full((4, 5, 3, 3), np.nan, np.float32)))
    return g.model()


def loop(g: Graph) -> Any:
    body = helper.make_graph([], "body", [], [])
    g.node("Loop", "", "", body=body)
    return g.model()


def circle(g: Graph) -> Any:
    g.nodes.append(helper.make_node("Relu", ["later"], ["early"], name="first"))
    g.nodes.append(helper.make_node("Relu", ["early"], ["later"], name="second"))
    return g.model()


def twice(g: Graph) -> Any:
    g.nodes += [helper.make_node("Relu", ["x"], ["y"], name=name) for name in ("a", "b")]
    return g.model()


def foreign(g: Graph) -> Any:
    g.nodes.append(helper.make_node("Quant", ["x"], ["y"], name="q", domain="com.other"))
    return g.model()


def node(op: str, *more: NDArray, **attributes: Any) -> Callable[[Graph], Any]:
    def build(g: Graph) -> Any:
        g.node(op, "x", *(g.const(array) for array in more), **attributes)
        return g.model()

    return build


THREE = np.ones((4, 5, 3, 3), np.float32)
UNSUPPORTED: tuple[tuple[str, Callable[[Graph], Any], str], ...] = (
    ("no nodes", lambda g: g_without_nodes(), "without nodes"),
    ("two inputs", two_inputs, "inputs 'x', 'y'"),
    ("two outputs", two_outputs, "outputs .*accepted are one"),
    ("open size", open_size, "fixed but for the batch"),
    ("huge claim", claims_more, "'constant0' claims"),
    ("small data", claims_less, "'constant0' claims"),
    ("negative claim", negative, "'constant0' claims"),
    ("other file", elsewhere, "'constant0' lies in another file"),
    ("text", text, "'constant0' is of type"),
    ("nan", nan, "'constant0' has NaN"),
    ("loop", loop, "not supported: node 'Loop0' .Loop.: has a graph"),
    ("circle", circle, "'first' .Relu.: input 'later'"),
    ("same name", twice, "'b' .Relu.: 'y' is there already"),
    ("other domain", foreign, "'q' .Quant.: domain"),
    ("softmax", node("Softmax"), "'Softmax0' .Softmax. is not supported"),
    ("transpose", node("Transpose", perm=[0, 2, 3, 1]), "'Transpose0' .Transpose. is not"),
    ("auto_pad", node("Conv", THREE, auto_pad="SAME"), "'Conv0' .Conv.*auto_pad='SAME'"),
    ("one dimension", node("Conv", THREE[..., 0]), "'Conv0'"),
    ("other channels", node("Conv", THREE[:, :3]), "'Conv0'.*5 channels"),
    ("too large", node("Conv", np.ones((4, 5, 9, 9), np.float32)), "'Conv0'.*windows that fit"),
    ("huge pads", node("Conv", THREE, pads=[1 << 40] * 4), "'Conv0'.*elements"),
    ("large pads", node("Conv", THREE, pads=[60000] * 4), "'Conv0'.*elements"),
    ("stride 0", node("Conv", THREE, strides=[0, 1]), "'Conv0'.*stride"),
    ("groups", node("Conv", THREE, group=0), "'Conv0'.*group"),
    ("axis", node("Flatten", axis=2), "'Flatten0'.*axis=2"),
    ("mean", node("ReduceMean", axes=[1]), "'ReduceMean0'.*axes"),
    ("reflect", node("Pad", np.zeros(8, np.int64), mode="reflect"), "'Pad0'.*mode"),
    ("shape", node("Reshape", np.array([5, 42])), "'Reshape0'.*shape"),
    ("not a channel", node("Add", np.ones((7, 6), np.float32)), "'Add0'.*one for each channel"),
    ("zero", node("Div", np.zeros(1, np.float32)), "'Div0'.*by 0"),
    ("cast", node("Cast", to=TensorProto.INT32), "'Cast0'"),
    ("bool", node("Greater", np.zeros(1, np.float32)), "does not depend"),
)  # fmt: skip


def g_without_nodes() -> Any:
    return onnx.ModelProto(ir_version=8)


@pytest.mark.parametrize(
    ("build", "said"), [u[1:] for u in UNSUPPORTED], ids=[u[0] for u in UNSUPPORTED]
)
def test_what_is_not_supported_is_named(
    build: Callable[[Graph], Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(build(Graph(5, 7, 6)).SerializeToString())
    with pytest.raises(FileError, match=said) as caught:
        onebit.import_onnx(path)
    assert str(path) in str(caught.value)


def test_a_product_of_two_values_is_named() -> None:
    graph = Graph(5, 7, 6)
    graph.node("Mul", graph.node("Sign", "x"), "x")
    with pytest.raises(FileError, match=r"'Mul1' \(Mul\) is not supported: of two values"):
        onebit.import_onnx(graph.bytes())


def test_a_damaged_file_is_one_clear_error(tmp_path: Path) -> None:
    graph = Graph(5, 7, 6)
    plain(graph)
    whole = graph.bytes()
    path = tmp_path / "model.onnx"
    for end in range(0, len(whole), max(1, len(whole) // 50)):
        path.write_bytes(whole[:end])
        with pytest.raises(FileError, match="model="):
            onebit.import_onnx(path)
    for content in (b"", b"hello", b"PK\3\4" + bytes(50)):
        path.write_bytes(content)
        with pytest.raises(FileError, match="model="):
            onebit.import_onnx(path)
    with pytest.raises(FileError, match="cannot be read"):
        onebit.import_onnx(tmp_path / "absent.onnx")


def test_flipped_bytes_raise_nothing_else(tmp_path: Path) -> None:
    graph = Graph(5, 7, 6)
    plain(graph)
    whole = graph.bytes()
    generator = np.random.default_rng(0)
    refused = 0
    for place in generator.integers(0, len(whole), 120):
        spoiled = bytearray(whole)
        spoiled[place] ^= int(generator.integers(1, 256))
        try:  # most bytes are weights, which may be anything
            onebit.import_onnx(bytes(spoiled))
        except FileError:
            refused += 1
    assert 0 < refused < 120
