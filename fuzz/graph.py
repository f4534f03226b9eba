"""ONNX models: whole graphs with an attribute, a size or an operator changed, and damaged bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from fuzz.harness import Target, main
from tilewright import nn, onebit
from tilewright.errors import TilewrightError

MEMORY = 16 << 20  # bytes that constants and the comparison may take
_OPERATORS = ("Relu", "Sign", "Conv", "Gemm", "MatMul", "Add", "MaxPool", "Reshape", "Cast", "No")
_NUMBERS = st.one_of(st.integers(-2, 9), st.sampled_from((2**20, 2**31, 2**40, 2**62)))


def _array(name: str, *shape: int) -> onnx.TensorProto:
    values = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def honest() -> onnx.ModelProto:
    """A convolution, its norm, a sign, a pool and a dense head."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"], axis=1),
        helper.make_node("Gemm", ["d", "v", "u"], ["y"], transB=1),
    ]
    values = [_array("w", 4, 3, 3, 3), _array("v", 5, 16), _array("u", 5)]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 4, 4])
    made = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 5])
    graph = helper.make_graph(nodes, "small", [given], [made], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@st.composite
def inputs(draw: st.DrawFn) -> bytes:
    """The model with up to three changes."""
    model = honest()
    for _ in range(draw(st.integers(0, 3))):
        node = draw(st.sampled_from(list(model.graph.node)))
        change = draw(st.integers(0, 5))
        if change == 0:
            node.op_type = draw(st.sampled_from(_OPERATORS))
        elif change == 1 and node.attribute:
            attribute = draw(st.sampled_from(list(node.attribute)))
            attribute.i = draw(_NUMBERS)
            attribute.ints[:] = draw(st.lists(_NUMBERS, max_size=4))
        elif change == 2:
            value = draw(st.sampled_from(list(model.graph.initializer)))
            value.dims[:] = draw(st.lists(_NUMBERS, max_size=4))
        elif change == 3:
            shape = model.graph.input[0].type.tensor_type.shape
            draw(st.sampled_from(list(shape.dim))).dim_value = draw(_NUMBERS)
        elif change == 4:
            node.input[0] = draw(st.sampled_from(("x", "a", "y", "w", "")))
        else:
            model.opset_import[0].version = draw(_NUMBERS)
    content: bytes = model.SerializeToString()
    return content


def read(path: Path) -> object:
    """What `tilewright onebit convert` does."""
    return onebit.import_onnx(path, memory=MEMORY)


def planned(path: Path) -> object:
    """What `Network.explain` does: read, sizes found, passes done, engines asked."""
    return nn.import_onnx(path).explain(device="host")


def ready() -> object:
    """The honest file, planned: operators and engines are loaded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "honest.onnx")
        path.write_bytes(honest().SerializeToString())
        return planned(path)


TARGET = Target("graph", ".onnx", inputs(), read, (TilewrightError,))
PLANNED = Target("planned", ".onnx", inputs(), planned, (TilewrightError,), ready)

if __name__ == "__main__":
    main(TARGET, PLANNED)
