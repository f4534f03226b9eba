"""Element types that a node does not take together are refused at import, all of a model's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import nn
from tilewright.errors import FileError
from tilewright.nn.graph import Tensor
from tilewright.nn.net import Network

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

SHAPE = (1, 3, 4, 4)
Node = tuple[str, list[str], dict[str, Any]]


def made(*nodes: Node, **constants: Any) -> bytes:
    """A model of nodes on the input x of float32 and the input h of float16."""
    kinds = {"x": onnx.TensorProto.FLOAT, "h": onnx.TensorProto.FLOAT16}
    graph = helper.make_graph(
        [helper.make_node(op, given, [f"y{at}"], **f) for at, (op, given, f) in enumerate(nodes)],
        "graph",
        [helper.make_tensor_value_info(name, kind, SHAPE) for name, kind in kinds.items()],
        [onnx.ValueInfoProto(name=f"y{at}") for at in range(len(nodes))],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    ops = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(graph, opset_imports=ops, ir_version=8).SerializeToString()
    return content


WIDE = np.ones(SHAPE)
WHOLE = np.ones(SHAPE, np.int64)
PAIRS = ("Add", "Sub", "Mul", "Div", "MatMul", "Max", "Equal", "Less", "PRelu")


@pytest.mark.parametrize("operator", PAIRS)
@pytest.mark.parametrize(("other", "named"), [(WIDE, "float64"), (WHOLE, "int64")])
def test_operands_are_of_one_type(operator: str, other: Any, named: str) -> None:
    said = rf"node 'y0' \({operator}\): input 1 \('z'\) is {named}; accepted (is float32, as|are)"
    with pytest.raises(FileError, match=said):
        nn.import_onnx(made((operator, ["x", "z"], {}), z=other))
    with pytest.raises(
        FileError, match=rf"input 1 \('h'\) is float16; accepted is {named}, as|are"
    ):
        nn.import_onnx(made((operator, ["z", "h"], {}), z=other))


@pytest.mark.parametrize(
    ("node", "constants", "said"),
    [
        (("Conv", ["x", "w"], {}), {"w": np.ones((4, 3, 1, 1), np.float16)}, "'w'.*float32, as"),
        (
            ("Conv", ["x", "w", "b"], {}),
            {"w": np.ones((4, 3, 1, 1), np.float32), "b": np.ones(4)},
            "'b'.*float32, as",
        ),
        (("Concat", ["x", "x", "z"], {"axis": 0}), {"z": WHOLE}, r"input 2 \('z'\) is int64"),
        (("Gather", ["x", "i"], {}), {"i": np.zeros(1, np.float32)}, "accepted are int32, int64"),
        (("GatherND", ["x", "i"], {}), {"i": np.zeros((1, 1), np.int32)}, "accepted are int64"),
        (("Reshape", ["x", "s"], {}), {"s": np.array([48.0])}, "'s'.*accepted are int64"),
        (("Where", ["x", "x", "x"], {}), {}, r"input 0 \('x'\) is float32; accepted are bool"),
        (("Gemm", ["m", "n"], {}), {"m": np.ones((2, 2)), "n": np.ones((2, 2), np.int32)}, "'n'"),
        (("Clip", ["x", "l"], {}), {"l": np.float64(0)}, "'l'.*float32, as"),
        (("Pad", ["x", "p", "v"], {}), {"p": np.zeros(8, np.int64), "v": np.int32(0)}, "'v'"),
    ],
)  # fmt: skip
def test_inputs_are_of_the_types_that_the_standard_names(
    node: Node, constants: dict[str, Any], said: str
) -> None:
    with pytest.raises(FileError, match=rf"node 'y0' \({node[0]}\): .*{said}"):
        nn.import_onnx(made(node, **constants))


def test_all_of_a_model_are_named_at_once() -> None:
    nodes: list[Node] = [("Add", ["x", "h"], {}), ("Neg", ["x"], {}), ("Mul", ["h", "y1"], {})]
    with pytest.raises(FileError, match=r"'y0' \(Add\).*; node 'y2' \(Mul\): input 1 \('y1'\) is"):
        nn.import_onnx(made(*nodes))


def test_types_that_may_differ_are_taken() -> None:
    nodes: list[Node] = [
        ("Gather", ["x", "i"], {"axis": 1}),
        ("Pow", ["x", "i"], {}),
        ("Where", ["c", "x", "x"], {}),
        ("Cast", ["h"], {"to": onnx.TensorProto.FLOAT}),
        ("Add", ["x", "y3"], {}),
    ]
    i, c = np.zeros(1, np.int32), np.ones(1, bool)
    assert nn.import_onnx(made(*nodes, i=i, c=c)).types["y4"] == "float32"


def test_a_file_of_ours_is_held_to_the_same(tmp_path: Path) -> None:
    graph = nn.import_onnx(made(("Add", ["x", "z"], {}), z=WIDE.astype(np.float32))).graph
    path = tmp_path / "net.npz"
    nn.save(Network(replace(graph, constants={"z": Tensor(SHAPE, "float64", WIDE)})), path)
    with pytest.raises(FileError, match=r"node 'y0' \(Add\): input 1 \('z'\) is float64"):
        nn.load(path)
