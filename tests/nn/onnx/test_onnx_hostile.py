"""ONNX files that lie: tensors and nodes that no exporter writes are one error with their name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilewright import onebit
from tilewright.errors import FileError

onnx = pytest.importorskip("onnx")


def model(nodes: Sequence[Any], tensors: Sequence[Any] = (), shape: Any = (1, 3, 6, 6)) -> bytes:
    """A model from "x" to "y"."""
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes)
        for name, sizes in (("x", shape), ("y", None))
    ]
    graph = onnx.helper.make_graph(nodes, "graph", values[:1], values[1:], tensors)
    content: bytes = onnx.helper.make_model(graph).SerializeToString()
    return content


def node(op: str, *inputs: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(op, inputs, ["y"], name="here", **attributes)


def tensor(dims: Sequence[int], kind: str = "FLOAT", **fields: Any) -> Any:
    """A TensorProto "w" whose fields need not agree."""
    made = onnx.TensorProto(name="w", data_type=getattr(onnx.TensorProto, kind), **fields)
    made.dims.extend(dims)
    return made


NODES = (
    ("no kernel_shape", node("MaxPool", "x"), "'kernel_shape' is missing"),
    ("no mean's kernel", node("AveragePool", "x"), "'kernel_shape' is missing"),
    ("stride 0", node("MaxPool", "x", kernel_shape=[2, 2], strides=[0, 1]), "strides="),
    ("absent input", node("Conv", "", "x"), "input 0 is absent"),
    ("no input", node("Relu"), "0 inputs; accepted are 1 to 1"),
    ("huge group", node("Conv", "x", "w", group=2**62), "group="),
    ("huge pad", node("Pad", "x", "p"), "pads="),
)


@pytest.mark.parametrize(("wrong", "said"), [n[1:] for n in NODES], ids=[n[0] for n in NODES])
def test_a_node_that_cannot_be_computed_is_named(wrong: Any, said: str) -> None:
    tensors = [
        onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w"),
        onnx.numpy_helper.from_array(np.array([0, 0, 2**40, 0, 0, 0, 0, 0]), "p"),
    ]
    with pytest.raises(FileError, match=f"node 'here' .*{said}"):
        onebit.import_onnx(model([wrong], tensors))


TENSORS = (
    ("segment", tensor([1], float_data=[1], segment={"begin": 0, "end": 1}), "segment"),
    ("nothing, hugely", tensor([0, 10**18, 10**18]), "too big"),
    ("two kinds of data", tensor([1], raw_data=b"", float_data=[1]), "reshape"),
    ("70 dimensions", tensor([1] * 70, float_data=[1]), "70"),
)


@pytest.mark.parametrize(("wrong", "said"), [t[1:] for t in TENSORS], ids=[t[0] for t in TENSORS])
def test_a_tensor_that_cannot_be_read_is_named(wrong: Any, said: str) -> None:
    with pytest.raises(FileError, match=f"initializer 'w' cannot be read .*{said}"):
        onebit.import_onnx(model([node("Add", "x", "w")], [wrong]))


def test_an_input_larger_than_any_is_refused_before_it_is_made() -> None:
    with pytest.raises(FileError, match=r"input .x. is .* up to 2\^28 elements"):
        onebit.import_onnx(model([node("Relu", "x")], shape=(1, 60_000, 60_000, 60_000)))


def test_random_bytes_raise_nothing_else() -> None:
    weights = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    parts = [
        onnx.helper.make_node("Sign", ["x"], ["s"]),
        onnx.helper.make_node("Conv", ["s", "w"], ["c"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    whole = model(parts, [weights])
    assert onebit.import_onnx(whole)[0].values["y"].channels == 4
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        spoiled = bytearray(whole)
        for place in generator.integers(0, 200, 2):  # names, types and attributes, not weights
            spoiled[place] = generator.integers(256)
        try:
            onebit.import_onnx(bytes(spoiled))
        except FileError:
            refused += 1
    assert refused > 75


def test_what_overflows_float32_is_no_import() -> None:
    """1e76 - 1e76 is NaN in float32: nothing can be compared."""
    big = onnx.numpy_helper.from_array(np.array(1e38, np.float32), "w")
    steps = (("Mul", "x", "a"), ("Relu", "a", "b"), ("Mul", "b", "c"), ("Relu", "c", "d"))
    parts = [
        onnx.helper.make_node(op, [source, "w"] if op == "Mul" else [source], [name])
        for op, source, name in steps
    ]
    minus = onnx.numpy_helper.from_array(np.array(-1, np.float32), "minus")
    parts.append(onnx.helper.make_node("Mul", ["d", "minus"], ["e"]))
    parts.append(onnx.helper.make_node("Add", ["d", "e"], ["y"]))
    with pytest.raises(FileError, match=r"Affine 'c' is not what the graph computes: 108 of 108"):
        onebit.import_onnx(model(parts, [big, minus]), np.ones((1, 6, 6, 3), np.float32))
