"""What an ONNX file may have, at both sides of every limit: versions, sizes, types, places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tests.support.onnx_graphs import Graph  # noqa: E402
from tilewright.errors import FileError  # noqa: E402
from tilewright.nn.graph import Tensor  # noqa: E402
from tilewright.nn.layers.maps import Affine  # noqa: E402
from tilewright.nn.onnx.compare import Limits, compare  # noqa: E402
from tilewright.nn.onnx.file import parsed_file  # noqa: E402
from tilewright.nn.onnx.general import parsed_graph  # noqa: E402
from tilewright.nn.onnx.load import import_onnx  # noqa: E402
from tilewright.nn.onnx.model import content_of, opset_of  # noqa: E402
from tilewright.nn.onnx.quantised import expanded  # noqa: E402
from tilewright.nn.onnx.tensors import TYPES, array_of, tensor_of  # noqa: E402
from tilewright.nn.value import Value  # noqa: E402


def relu(*shape: int, opset: int = 17, ir: int = 8, batch: Any = 1) -> Any:
    graph = Graph(*shape)
    graph.node("Relu", "x")
    return graph.model(opset, batch, ir)


@pytest.mark.parametrize(("opset", "fine"), [(6, False), (7, True), (28, True), (29, False)])
def test_opsets_from_7_to_28_are_taken(opset: int, fine: bool) -> None:
    made = relu(3, opset=opset)
    if fine:
        assert opset_of(made, "m") == opset
        made.opset_import.append(helper.make_opsetid("others.own", 99))
        assert opset_of(made, "m") == opset
        made.opset_import.append(helper.make_opsetid("ai.onnx", opset))
        with pytest.raises(FileError, match=f"names opset {opset}, {opset}; accepted is one"):
            opset_of(made, "m")
        return
    with pytest.raises(FileError, match=f"opset {opset}; accepted is one from 7 to 28"):
        opset_of(made, "m")


@pytest.mark.parametrize(("ir", "fine"), [(2, False), (3, True), (14, True), (15, False)])
def test_versions_of_the_format_from_3_to_14_are_taken(ir: int, fine: bool) -> None:
    if fine:
        assert opset_of(relu(3, ir=ir), "m") == 17
        return
    with pytest.raises(FileError, match=f"ir_version={ir}; accepted are 3 to 14"):
        opset_of(relu(3, ir=ir), "m")


def test_a_file_beyond_2_gib_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate((1 << 31) + 1)  # takes no room on the disk
    with pytest.raises(FileError, match="2147483649 bytes; accepted are files up to 2 GiB"):
        content_of(path, "m")
    path.write_bytes(b"short")
    assert content_of(path, "m") == b"short"


@pytest.mark.parametrize(("count", "said"), [(1, None), (20, None), (21, "1"), (25, "5")])
def test_twenty_problems_are_listed_and_the_rest_counted(count: int, said: str | None) -> None:
    graph = Graph(3)
    for _ in range(count):
        graph.node("NoSuchThing", "x")
    with pytest.raises(FileError, match="not supported: ") as raised:
        parsed_graph(graph.bytes(), "m", None)
    text = str(raised.value)
    assert text.count("no such operator here") == min(count, 20)
    assert text.endswith(f"; and {said} more") is (said is not None)
    assert ("more" in text) is (said is not None)


def test_a_size_of_nothing_is_a_size_and_one_below_or_unnamed_is_any() -> None:
    made = relu(0, 4, -1, batch="n")
    made.graph.input[0].type.tensor_type.shape.dim.add()
    (source,) = parsed_graph(made.SerializeToString(), "m", None).inputs
    assert source.shape == ("n", 0, 4, "x.3", "x.4")


def test_a_constant_node_has_one_output() -> None:
    graph = Graph(3)
    graph.node("Constant", value_float=1.0)
    graph.nodes[-1].output.append("more")
    with pytest.raises(FileError, match="2 outputs; accepted is one"):
        parsed_graph(graph.bytes(), "m", None)


# Constants, as they lie in a file or in one beside it.

WIDTHS = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4}
WIDTHS |= {"float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1}


@pytest.mark.parametrize("kind", TYPES)
def test_a_tensor_has_as_many_elements_as_its_sizes_say(kind: str) -> None:
    number = getattr(TensorProto, kind)
    name = TYPES[kind][0]
    values = [1, 0, 1, 1, 0, 1]
    for raw in (True, False):
        given = np.array(values).astype(helper.tensor_dtype_to_np_dtype(number))
        data = given.tobytes() if raw else values
        made = helper.make_tensor("t", number, [2, 3], data, raw=raw)
        found = tensor_of(made, "m", "it", None)
        assert (found.dtype, found.shape) == (name, (2, 3))
        np.testing.assert_array_equal(found.value, np.reshape(values, (2, 3)))
        for dims in ([2, 2], [7], [2, 3, 2], [-2, -3]):
            made.dims[:] = dims
            with pytest.raises(FileError, match="it claims"):
                array_of(made, "m", "it")
    assert TYPES[kind][1] == WIDTHS[name]


def beside(name: str, shape: list[int], **places: Any) -> Any:
    """A tensor whose numbers lie in the file data.bin."""
    made = TensorProto(name="t", data_type=getattr(TensorProto, name), dims=shape)
    made.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data.bin", **places}.items():
        made.external_data.add(key=key, value=str(value))
    return made


@pytest.mark.parametrize(
    ("places", "fine"),
    [
        ({}, True),
        ({"offset": 8}, True),
        ({"offset": 9}, False),
        ({"length": 24}, True),
        ({"length": 23}, False),
        ({"length": 25}, False),
        ({"offset": 8, "length": 24}, True),
        ({"offset": 9, "length": 24}, False),
        ({"offset": 40}, False),
        ({"offset": "9" * 19}, False),
        ({"offset": -1}, False),
        ({"offset": "1e0"}, False),
        ({"length": "9" * 20}, False),
        ({"location": ""}, False),
        ({"location": "nowhere.bin"}, False),
        ({"location": "../data.bin"}, False),
    ],
)
def test_numbers_of_another_file_are_all_there_where_it_says(
    places: dict[str, Any], fine: bool, tmp_path: Path
) -> None:
    numbers = np.arange(8, dtype=np.float32)
    numbers.tofile(tmp_path / "data.bin")
    made = beside("FLOAT", [2, 3], **places)
    if not fine:
        with pytest.raises(FileError, match=r"it[: ]"):
            tensor_of(made, "m", "it", tmp_path)
        return
    first = places.get("offset", 0) // 4
    found = tensor_of(made, "m", "it", tmp_path).value
    np.testing.assert_array_equal(found, numbers[first : first + 6].reshape(2, 3))
    with pytest.raises(FileError, match="accepted are bytes of models in one file"):
        tensor_of(made, "m", "it", None)
    with pytest.raises(FileError, match="accepted are models in one file"):
        array_of(made, "m", "it")


@pytest.mark.parametrize("kind", ["FLOAT16", "BFLOAT16", "DOUBLE", "INT8"])
def test_numbers_of_another_file_are_read_little_end_first(kind: str, tmp_path: Path) -> None:
    number = getattr(TensorProto, kind)
    plain = helper.make_tensor("t", number, [3], [1, 2, -3])
    raw = numpy_helper.to_array(plain)
    raw.astype(raw.dtype).tofile(tmp_path / "data.bin")
    found = tensor_of(beside(kind, [3]), "m", "it", tmp_path)
    assert found.dtype == TYPES[kind][0]
    np.testing.assert_array_equal(found.value, [1, 2, -3])
    for wrong in ([4], [-3], [-1, -3]):
        with pytest.raises(FileError, match="it claims"):
            tensor_of(beside(kind, wrong), "m", "it", tmp_path)


# Whole numbers, as onnxruntime's quantiser writes them.


def constant(array: Any) -> Tensor:
    held = np.asarray(array)
    return Tensor(held.shape, str(held.dtype), held)


def whole_conv(opset: int, channels: int, **other: Any) -> list[Any]:
    given = {
        "s": np.float32(0.5), "z": np.uint8(1), "w": np.ones((channels, 1, 1, 1), np.int8),
        "ws": np.ones(channels, np.float32), "wz": np.zeros(channels, np.int8),
        "os": np.float32(1), "oz": np.uint8(0), **other,
    }  # fmt: skip
    constants = {name: constant(one) for name, one in given.items() if one is not None}
    node = helper.make_node("QLinearConv", ["x", *given], ["y"])
    made: list[Any] = expanded(node, constants, opset)
    return made


@pytest.mark.parametrize(
    ("opset", "channels", "other", "apart"),
    [
        (12, 1, {}, True),
        (12, 2, {}, False),  # DequantizeLinear has an axis from 13 on
        (13, 2, {}, True),
        (13, 2, {"wz": np.array([0, 1], np.int8)}, False),
        (13, 1, {"wz": np.int8(1)}, False),
        (13, 2, {"w": np.ones((2, 1, 1, 1), np.uint8)}, False),
        *((13, 1, {name: None}, False) for name in ("s", "z", "w", "ws", "wz", "os", "oz")),
    ],
)
def test_a_whole_convolution_is_taken_apart_where_scales_and_weights_are_constants(
    opset: int, channels: int, other: dict[str, Any], apart: bool
) -> None:
    made = whole_conv(opset, channels, **other)
    parts = ["DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"]
    assert [one.op_type for one in made] == (parts if apart else ["QLinearConv"])
    if not apart:
        return
    x, w, conv, result = made
    assert [*x.input, w.input[0]] == ["x", "s", "z", "w"]
    assert [a.i for a in w.attribute] == ([0] if channels > 1 else [])
    assert list(w.input)[1:] == (["ws", "wz"] if channels > 1 else ["ws, alone", "wz, alone"])
    assert list(conv.input) == [*x.output, *w.output]
    assert (list(result.input), list(result.output)) == ([*conv.output, "os", "oz"], ["y"])
    assert (x.name, conv.name, result.name) == ("y, DequantizeLinear", "y, Conv", "y")


def names(text: str) -> list[str]:
    return text.split()


def theirs(kind: str, inputs: list[str], of_file: int = 17, **attributes: Any) -> list[Any]:
    node = helper.make_node(kind, inputs, ["y"], domain="com.microsoft", **attributes)
    constants = {name: constant(np.ones(2, np.float32)) for name in inputs if name == "many"}
    made: list[Any] = expanded(node, constants, of_file)
    return made


def test_each_operand_has_its_scale_and_zero_behind_it() -> None:
    *parts, last = theirs("QLinearConcat", names("os oz a as az b bs bz"), axis=1)
    assert [list(one.input) for one in parts[:2]] == [["a", "as", "az"], ["b", "bs", "bz"]]
    assert [one.op_type for one in parts] == ["DequantizeLinear"] * 2 + ["Concat"]
    assert [(a.name, a.i) for a in parts[2].attribute] == [("axis", 1)]
    assert list(last.input)[1:] == ["os", "oz"]
    *parts, last = theirs("QLinearMul", names("a as az b bs bz os oz"))
    assert [list(one.input) for one in parts[:2]] == [["a", "as", "az"], ["b", "bs", "bz"]]
    assert (parts[2].op_type, list(last.input)[1:]) == ("Mul", ["os", "oz"])
    *parts, last = theirs("QLinearSigmoid", names("a as az os oz"))
    assert (parts[1].op_type, list(last.input)[1:]) == ("Sigmoid", ["os", "oz"])


@pytest.mark.parametrize(("turned", "axis"), [(0, 1), (1, 0)])
def test_a_whole_product_has_a_scale_a_column_and_may_stay_float32(turned: int, axis: int) -> None:
    *parts, gemm = theirs("QGemm", names("a as az b many bz"), transB=turned)
    assert [a.i for a in parts[1].attribute] == [axis]
    found = {a.name: a.i or a.f for a in gemm.attribute}
    assert found == {"beta": 1.0, "transB": turned}
    assert (gemm.op_type, list(gemm.output)) == ("Gemm", ["y"])
    single = theirs("QGemm", names("a as az b bs bz"), transB=turned)
    assert not single[1].attribute


@pytest.mark.parametrize(
    ("own", "opset", "fine"), [(13, 13, True), (12, 13, False), (13, 12, False), (14, 17, True)]
)
def test_a_whole_softmax_is_that_of_version_13(own: int, opset: int, fine: bool) -> None:
    given = names("a as az os oz")
    if fine:
        made = theirs("QLinearSoftmax", given, opset, opset=own, axis=1)
        assert [a.name for a in made[1].attribute] == ["axis"]
        return
    with pytest.raises(FileError, match="accepted is 13 and more"):
        theirs("QLinearSoftmax", given, opset, opset=own)


def test_channels_come_first_in_whole_pools() -> None:
    given = names("a as az os oz")
    made = theirs("QLinearAveragePool", given, channels_last=0, kernel_shape=[2, 2])
    assert [a.name for a in made[1].attribute] == ["kernel_shape"]
    with pytest.raises(FileError, match="channels_last=1; accepted is 0"):
        theirs("QLinearAveragePool", given, channels_last=1, kernel_shape=[2, 2])


# What is compared, and with what.


@pytest.mark.parametrize("of", [(3, 2, 4), (1, 2, 3), (4,), (1,)])
@pytest.mark.parametrize(
    "shape",
    [(), (1,), (2,), (3,), (4,), (1, 1), (1, 4), (4, 1), (2, 1), (3, 1, 1), (2, 1, 1), (1, 2, 1),
     (1, 1, 4), (1, 3, 1, 1), (1, 4, 1, 1), (3, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1, 1)],
)  # fmt: skip
def test_a_constant_is_one_number_or_one_for_each_channel(
    of: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    graph = Graph(*of)
    graph.node(
        "Mul", "x", graph.const(np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape))
    )
    value = (1, *of)
    wide = (1,) * (len(value) - len(shape)) + shape
    fine = len(wide) == len(value) and all(
        size == 1 or (axis == 1 and size == value[1]) for axis, size in enumerate(wide)
    )
    if fine:
        network, report = import_onnx(graph.bytes())
        assert report.exact
        numbers = np.broadcast_to(np.arange(1, 1 + np.prod(shape)), value[1])
        np.testing.assert_array_equal(network.layers[0].arrays()["scale"], numbers)
        return
    with pytest.raises(FileError, match=r"constant of|Mul0"):
        import_onnx(graph.bytes())


def test_constants_that_nodes_compute_take_eight_bytes_an_element_and_no_more() -> None:
    graph = Graph(3)
    column, row = (graph.const(np.ones(shape, np.float32)) for shape in ((20, 1), (1, 30)))
    graph.node("Relu", graph.node("Mul", column, row))
    graph.node("Relu", "x")
    for memory, fine in ((2 * 8 * 600, True), (2 * 8 * 600 - 1, False), (8 * 600, False)):
        if fine:
            assert parsed_file(graph.bytes(), memory).output == "Relu2"
            continue
        said = rf"Relu1.*a constant of \[20, 30\] brings the graph's to 9600 bytes; memory={memory}"
        with pytest.raises(FileError, match=said):
            parsed_file(graph.bytes(), memory)


@pytest.mark.parametrize("at", [0, 1, (1 << 18) - 1, 1 << 18, (1 << 18) + 1])
@pytest.mark.parametrize("kind", ["real", "bits"])
def test_a_difference_is_found_wherever_it_lies(at: int, kind: str) -> None:
    size = (1 << 18) + 2
    layer = Affine(
        name="a", inputs=("x",), scale=np.ones(1, np.float32), shift=np.zeros(1, np.float32)
    )
    truth = np.ones(size, np.float32)
    made = truth.copy()
    made[at] = -1
    found = compare(layer, Value(kind, 1, 1, size), made, truth, Limits(1e-3, np.zeros(())))
    assert (found.elements, found.differing, found.wrong) == (size, 1, 1)
    assert (found.zeros, found.largest, found.scale) == (0, 2.0, 1.0)


def test_images_are_as_high_and_as_wide_as_they_are() -> None:
    """Windows, pads and strides of rows are none of columns, in every operator that has them."""
    for operator, facts in (
        ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
        ("AveragePool", {"kernel_shape": [2, 3], "strides": [3, 1], "pads": [0, 1, 1, 0]}),
        ("MaxPool", {"kernel_shape": [4, 2], "strides": [3, 2], "auto_pad": "SAME_UPPER"}),
        ("GlobalAveragePool", {}),
    ):
        graph = Graph(2, 9, 5)
        graph.node(operator, "x", **facts)
        assert import_onnx(graph.bytes())[1].exact  # beside somebody else's implementation


@pytest.mark.parametrize("c", ["c", ""])
@pytest.mark.parametrize("scale", ["os", ""])
def test_a_whole_product_adds_c_where_there_is_one_and_is_whole_where_it_has_a_scale(
    c: str, scale: str
) -> None:
    given = {"a": np.ones((2, 2), np.uint8), "as": np.float32(0.5), "az": np.uint8(0)}
    given |= {"b": np.ones((2, 2), np.int8), "bs": np.float32(0.25), "bz": np.int8(0)}
    given |= {"c": np.ones(2, np.int32)}
    constants = {name: constant(one) for name, one in given.items()}
    inputs = [*names("a as az b bs bz"), c, *([scale, "oz"] if scale else [])]
    node = helper.make_node("QGemm", inputs, ["y"], domain="com.microsoft")
    made = expanded(node, constants, 17)
    kinds = ["DequantizeLinear"] * (3 if c else 2) + ["Gemm"] + ["QuantizeLinear"] * bool(scale)
    assert [one.op_type for one in made] == kinds
    gemm = made[2 + bool(c)]
    assert len(gemm.input) == 2 + bool(c)
    assert made[-1].output[0] == "y"
    if c:
        assert list(made[2].input) == ["c", "y, scale of the bias"]
        assert constants["y, scale of the bias"].value == 0.125
    if scale:
        assert list(made[-1].input)[1:] == ["os", "oz"]
