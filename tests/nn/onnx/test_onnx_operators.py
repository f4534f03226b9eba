"""Every operator of the importer's table, in every version, with every attribute it understands.

What a network gives is compared with onnxruntime, or with ONNX's own reference where onnxruntime
lacks the opset, on inputs that the import did not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import defs, numpy_helper

from tests.support.onnx_graphs import FLOAT, Graph, by_others
from tilewright import onebit
from tilewright.errors import FileError
from tilewright.nn import operators
from tilewright.nn.onnx.model import IR_VERSIONS, OPSETS
from tilewright.nn.onnx.operators import OPERATORS, documented
from tilewright.nn.onnx.windows import pads_of

DOCS = Path(__file__).parents[3] / "docs" / "onebit-networks.md"
OPSET_LIST = range(OPSETS[0], OPSETS[1] + 1)
Build = Callable[[Graph, int, dict[str, Any]], None]


def image(op: str) -> Build:
    """An operator of an image and nothing else."""

    def build(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
        g.node(op, "x", **attributes)

    return build


def with_constant(op: str) -> Build:
    def build(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
        g.node(op, "x", g.const(g.reals(5, 1, 1) + 3), **attributes)

    return build


def comparison(op: str) -> Build:
    def build(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
        condition = g.node(op, "x", g.const(g.reals(5, 1, 1)), **attributes)
        g.node("Where", condition, g.const(np.float32(1)), g.const(np.float32(-1)))

    return build


def conv(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    depth = 1 if attributes.get("group") == 5 else 5
    weights = g.reals(5, depth, *attributes.get("kernel_shape", (3, 2)))
    g.node("Conv", "x", g.const(weights), g.const(g.reals(5)), **attributes)


def norm(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    g.norm("x", 5, **attributes)


def cast(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    wide = g.node("Cast", "x", **{"to": FLOAT, **attributes})
    g.node("Relu", g.node("Cast", wide, to=FLOAT))


def clip(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    if opset < 11:
        g.node("Clip", "x", **{"min": -0.5, "max": 0.25, **attributes})
        return
    g.node("Clip", "x", g.const(np.float32(-0.5)), g.const(np.float32(0.25)), **attributes)


def constant(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    given = attributes or {"value": numpy_helper.from_array(np.float32([0.75]))}
    number = g.node("Constant", **given)
    number = number if "int" not in next(iter(given)) else g.node("Cast", number, to=FLOAT)
    g.node("Add", "x", number)


def dropout(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    more = [g.const(np.float32(0.9)), g.const(np.array(False))] if opset >= 12 else []
    g.node("Relu", g.node("Dropout", "x", *more, **attributes))


def flatten(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    rows = g.node("Flatten", "x", **attributes)
    sizes = (7 * 6, 3) if attributes.get("axis") == 2 else (5 * 7 * 6, 3)
    g.node("MatMul", rows, g.const(g.reals(*sizes)))


def gemm(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    sizes = (4, 5) if attributes.get("transB") else (5, 4)
    sizes = (1, 4) if attributes.get("transA") else sizes
    features = g.node("Flatten", g.node("GlobalAveragePool", "x"))
    g.node("Gemm", features, g.const(g.reals(*sizes)), g.const(g.reals(1, 4)), **attributes)


def matmul(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    features = g.node("Flatten", g.node("GlobalAveragePool", "x"))
    g.node("MatMul", features, g.const(g.reals(5, 4)), **attributes)


def pool(op: str) -> Build:
    def build(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
        g.node(op, "x", **{"kernel_shape": [3, 2], **attributes})

    return build


def pad(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    pads = attributes.pop("pads", [0, 0, 1, 2, 0, 0, 3, 0])
    if opset < 11:
        padded = g.node("Pad", "x", pads=pads, **attributes)
    else:
        padded = g.node("Pad", "x", g.const(np.array(pads, np.int64)), **attributes)
    g.node("Conv", padded, g.const(g.reals(4, 5 + pads[1], 3, 2)))


def mean(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    axes = attributes.pop("axes", [-1, 2])
    if opset < 18:
        g.node("ReduceMean", "x", axes=axes, **attributes)
    else:
        g.node("ReduceMean", "x", g.const(np.array(axes, np.int64)), **attributes)


def reshape(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    rows = g.node("Reshape", "x", g.const(np.array([1, -1], np.int64)), **attributes)
    g.node("MatMul", rows, g.const(g.reals(5 * 7 * 6, 3)))


def squeeze(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    axes = attributes.pop("axes", [2, 3])
    point = g.node("GlobalAveragePool", "x")
    if opset < 13:
        g.node("Squeeze", point, axes=axes)
    else:
        g.node("Squeeze", point, g.const(np.array(axes, np.int64)))
    g.node("Relu", g.nodes[-1].output[0])


def identity(g: Graph, opset: int, attributes: dict[str, Any]) -> None:
    g.node("Relu", g.node("Identity", "x", **attributes))


BUILD: dict[str, Build] = {
    "Add": with_constant("Add"),
    "AveragePool": pool("AveragePool"),
    "BatchNormalization": norm,
    "Cast": cast,
    "Clip": clip,
    "Constant": constant,
    "Conv": conv,
    "Div": with_constant("Div"),
    "Dropout": dropout,
    "Flatten": flatten,
    "Gemm": gemm,
    "GlobalAveragePool": image("GlobalAveragePool"),
    "Greater": comparison("Greater"),
    "GreaterOrEqual": comparison("GreaterOrEqual"),
    "Identity": identity,
    "Less": comparison("Less"),
    "LessOrEqual": comparison("LessOrEqual"),
    "MatMul": matmul,
    "MaxPool": pool("MaxPool"),
    "Mul": with_constant("Mul"),
    "Pad": pad,
    "ReduceMean": mean,
    "Relu": image("Relu"),
    "Reshape": reshape,
    "Sign": image("Sign"),
    "Squeeze": squeeze,
    "Sub": with_constant("Sub"),
    "Where": comparison("Greater"),
}


def content_of(op: str, opset: int, **attributes: Any) -> bytes:
    g = Graph(5, 7, 6)
    BUILD[op](g, opset, attributes)
    return g.bytes(opset)


def check(content: bytes) -> None:
    """The network gives what others give, for inputs that the import did not see."""
    network, report = onebit.import_onnx(content)
    assert report.exact
    x = np.random.default_rng(5).standard_normal((1, 7, 6, 5)).astype(np.float32)
    truth = by_others(content, x)
    got = network.run(x).reshape(truth.shape)
    assert np.allclose(got, truth, rtol=1e-5, atol=1e-5)


def in_force(op: str, opset: int) -> int:
    """The version of an operator; 0 where the opset has none."""
    try:
        return int(defs.get_schema(op, opset, "").since_version)
    except defs.SchemaError:
        return 0


def versions_of(op: str) -> list[int]:
    """Those that the opsets have."""
    return sorted({in_force(op, opset) for opset in OPSET_LIST} - {0})


def test_every_version_of_the_tables_operators_is_understood() -> None:
    for op in OPERATORS:
        for version in versions_of(op):
            assert operators.find(op, version) is not None, (op, version)


@pytest.mark.parametrize(("op", "version"), [(op, v) for op in BUILD for v in versions_of(op)])
def test_every_version_of_every_operator_gives_what_others_give(op: str, version: int) -> None:
    helpers = {"Where": 9, "Greater": 9, "GreaterOrEqual": 12, "Less": 9, "LessOrEqual": 12}
    first = max(version, helpers.get(op, OPSETS[0]))
    if in_force(op, first) != version:
        with pytest.raises(FileError, match="has no such operator"):
            onebit.import_onnx(content_of(op, OPSETS[0]))
        return
    check(content_of(op, first))


ACCEPTED: dict[str, dict[str, list[Any]]] = {
    "AveragePool": {
        "auto_pad": ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"],
        "kernel_shape": [[1, 1], [2, 3]],
        "pads": [[1, 0, 2, 1]],
        "strides": [[2, 3], [1, 2]],
        "ceil_mode": [0, 1],
        "dilations": [[1, 1]],
        "count_include_pad": [0, 1],
    },
    "BatchNormalization": {
        "epsilon": [1e-3, 0.5],
        "momentum": [0.1],
        "spatial": [],
        "training_mode": [0],
    },
    "Cast": {"to": [1, 11], "saturate": [1], "round_mode": ["up"]},
    "Clip": {"min": [-1.5], "max": [1.5]},
    "Constant": {
        "value": [numpy_helper.from_array(np.float32([[[1.5]], [[2]], [[3]], [[4]], [[5]]]))],
        "value_float": [1.5],
        "value_floats": [[2.5]],
        "value_int": [3],
        "value_ints": [[4]],
    },
    "Conv": {
        "auto_pad": ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"],
        "kernel_shape": [[2, 3], [1, 1]],
        "pads": [[0, 1, 2, 3]],
        "strides": [[3, 2]],
        "dilations": [[2, 3]],
        "group": [1, 5],
    },
    "Dropout": {"ratio": [0.9], "seed": [3]},
    "Flatten": {"axis": [1, -3]},
    "Gemm": {"alpha": [0.5, -2.0], "beta": [0.0, -0.5], "transA": [0], "transB": [0, 1]},
    "MaxPool": {
        "auto_pad": ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"],
        "kernel_shape": [[1, 1], [2, 3]],
        "pads": [[1, 0, 2, 1]],
        "strides": [[2, 3], [1, 2]],
        "ceil_mode": [0, 1],
        "dilations": [[1, 1]],
        "storage_order": [0, 1],
    },
    "Pad": {"mode": ["constant"], "pads": [[0, 0, 0, 1, 0, 0, 2, 3]], "value": [0.0]},
    "ReduceMean": {
        "axes": [[2, 3], [-2, -1]],
        "keepdims": [0, 1],
        "noop_with_empty_axes": [0, 1],
    },
    "Reshape": {"allowzero": [0, 1]},
    "Squeeze": {"axes": [[2, 3], [-1, -2]]},
}
OLD = {  # attributes that later versions have as inputs, or not at all
    ("Clip", "min"): 7,
    ("Clip", "max"): 7,
    ("BatchNormalization", "spatial"): 7,
    ("Dropout", "ratio"): 7,
    ("Pad", "value"): 7,
    ("Cast", "round_mode"): 24,
    ("Cast", "saturate"): 19,
    ("ReduceMean", "noop_with_empty_axes"): 18,
}
# Of training, of sparse weights, of text.
UNTRIED = {"is_test", "consumed_inputs", "sparse_value", "value_string", "value_strings"}
REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("AveragePool", {"auto_pad": "SAME"}, "auto_pad='SAME'"),
    ("AveragePool", {"dilations": [2, 1]}, "dilations="),
    ("AveragePool", {"ceil_mode": 2}, "ceil_mode=2"),
    ("AveragePool", {"count_include_pad": 3}, "count_include_pad=3"),
    ("AveragePool", {"count_include_pad": 1, "ceil_mode": 1}, "ceil_mode with count_include_pad"),
    ("AveragePool", {"auto_pad": "VALID", "ceil_mode": 1}, "ceil_mode with auto_pad"),
    ("AveragePool", {"auto_pad": "SAME_UPPER", "pads": [1, 1, 1, 1]}, "auto_pad=.* and pads="),
    ("AveragePool", {"kernel_shape": [2, 2, 2]}, r"kernel \[2, 2, 2\] on 2"),
    ("BatchNormalization", {"training_mode": 1}, "training_mode=1"),
    ("BatchNormalization", {"epsilon": float("nan")}, "epsilon=nan"),
    ("BatchNormalization", {"epsilon": -5.0}, "variance below 0"),
    ("Cast", {"to": 10}, "to=10, which rounds"),
    ("Cast", {"to": 6}, "to=6"),
    ("Conv", {"group": 0}, "group=0"),
    ("Conv", {"group": 1.0}, "'group' is of type 1; it must be INT"),
    ("Conv", {"pads": [0, 0, -1, 0]}, "pads="),
    ("Conv", {"dilations": [0, 1]}, "dilations="),
    ("Conv", {"strides": [1, 1, 1]}, "strides="),
    ("Conv", {"axis": 1}, "attribute 'axis'; version 11 has"),
    ("Dropout", {"is_test": 1}, "attribute 'is_test'"),
    ("Flatten", {"axis": 2}, "axis=2"),
    ("Gemm", {"transA": 1}, "transA=1"),
    ("Gemm", {"alpha": float("inf")}, "alpha=inf"),
    ("MaxPool", {"dilations": [1, 2]}, "dilations="),
    ("MaxPool", {"storage_order": 2}, "storage_order=2"),
    ("Pad", {"mode": "edge"}, "mode='edge'"),
    ("Pad", {"mode": "reflect"}, "mode='reflect'"),
    ("Pad", {"pads": [0, 1, 0, 0, 0, 0, 0, 0]}, "pads="),
    ("ReduceMean", {"axes": [1]}, "axes="),
    ("ReduceMean", {"axes": [2]}, "axes="),
    ("ReduceMean", {"keepdims": 2}, "keepdims=2"),
    ("Relu", {"nonsense": 3}, "attribute 'nonsense'; version 14 has none"),
    ("Mul", {"axis": 1, "broadcast": 1}, "attribute 'axis'"),
    ("Reshape", {"allowzero": 2}, "allowzero=2"),
    ("Squeeze", {"axes": [2]}, "axes="),
)


def test_every_attribute_of_the_table_is_tried() -> None:
    assert set(BUILD) == {*OPERATORS, "Constant", "Dropout", "Identity"}
    for op in BUILD:
        schemas = [defs.get_schema(op, version, "") for version in versions_of(op)]
        known = {name for schema in schemas for name in schema.attributes}
        assert known - UNTRIED == set(ACCEPTED.get(op, {})), op


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        pytest.param(op, name, value, id=f"{op}-{name}-{number}")
        for op, attributes in ACCEPTED.items()
        for name, values in attributes.items()
        for number, value in enumerate(values)
    ],
)
def test_every_attribute_means_what_it_means_to_others(op: str, name: str, value: Any) -> None:
    given = {"pads": [1, 0, 1, 1]} if name == "count_include_pad" else {}
    if name == "ceil_mode":
        given = {"strides": [2, 2], "pads": [1, 1, 0, 1]}
    check(content_of(op, OLD.get((op, name), 20), **{**given, name: value}))


@pytest.mark.parametrize(("op", "attributes", "said"), REFUSED)
def test_what_an_attribute_may_not_be_is_named(
    op: str, attributes: dict[str, Any], said: str
) -> None:
    with pytest.raises(FileError, match=rf"node '{op}\d+' \({op}\).*{said}"):
        onebit.import_onnx(content_of(op, 20, **attributes))


def test_a_batch_norm_over_all_of_an_image_is_refused() -> None:
    with pytest.raises(FileError, match="spatial=0: accepted is 1"):
        onebit.import_onnx(content_of("BatchNormalization", 7, spatial=0))


@pytest.mark.parametrize("opset", [1, 6, 29, 99])
def test_an_opset_that_nobody_tried_is_refused(opset: int) -> None:
    with pytest.raises(FileError, match=f"opset_import names opset {opset}; accepted is one from"):
        onebit.import_onnx(content_of("Relu", opset))


def test_a_file_names_one_opset_of_onnx_and_an_ir_version_that_is_known() -> None:
    g = Graph(5, 7, 6)
    g.node("Relu", "x")
    model = g.model()
    model.opset_import.add(domain="ai.onnx", version=17)
    with pytest.raises(FileError, match="names opset 17, 17"):
        onebit.import_onnx(model.SerializeToString())
    del model.opset_import[:]
    with pytest.raises(FileError, match="names opset none"):
        onebit.import_onnx(model.SerializeToString())
    model.opset_import.add(domain="com.other", version=1)  # imported and not used
    model.opset_import.add(domain="ai.onnx", version=17)
    assert onebit.import_onnx(model.SerializeToString())[1].exact
    for ir in (IR_VERSIONS[0] - 1, IR_VERSIONS[1] + 1, 99):
        with pytest.raises(FileError, match=f"ir_version={ir}; accepted are"):
            onebit.import_onnx(g.model(ir=ir).SerializeToString())


@pytest.mark.parametrize("training", [True, False])
def test_a_dropout_that_trains_is_refused(training: bool) -> None:
    g = Graph(5, 7, 6)
    dropped = g.node("Dropout", "x", g.const(np.float32(0.9)), g.const(np.array(training)))
    g.node("Relu", dropped)
    if not training:
        check(g.bytes())
        return
    with pytest.raises(FileError, match="training_mode is true"):
        onebit.import_onnx(g.bytes())


def test_signs_may_go_through_half_precision_and_reals_may_not() -> None:
    g = Graph(5, 7, 6)
    half = g.node("Cast", g.node("Sign", "x"), to=10)
    g.node("Conv", g.node("Cast", half, to=FLOAT), g.const(g.signs(4, 5, 3, 3)))
    check(g.bytes())


def test_the_docs_show_the_table() -> None:
    found = re.search(
        r"<!-- operators -->\n(.*?)\n<!-- end -->", DOCS.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None
    assert found.group(1) == documented()


def test_pads_are_those_of_rows_and_columns_and_any_other_is_refused() -> None:
    plain = np.array([0, 0, 1, 2, 0, 0, 3, 4])
    node: Any = SimpleNamespace(attributes={})
    assert pads_of(node, (plain, None, None)) == ((1, 2, 3, 4), 0.0)
    assert pads_of(node, (0 * plain, np.array(5.0), None)) == ((0, 0, 0, 0), 5.0)
    for place in (0, 1, 4, 5):
        with pytest.raises(FileError, match="accepted are rows and columns"):
            pads_of(node, (plain + (np.arange(8) == place), None, None))
    for bad in (plain[:6], -plain):
        with pytest.raises(FileError, match="accepted are rows and columns"):
            pads_of(node, (bad, None, None))
