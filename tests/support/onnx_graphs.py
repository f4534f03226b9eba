"""Small ONNX models for tests, node by node, and what others' implementations make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

NDArray = npt.NDArray[Any]
FLOAT = TensorProto.FLOAT


class Graph:
    """A small model: nodes are added, the last one's value is the output."""

    def __init__(self, *shape: int, seed: int = 0) -> None:
        self.shape = shape
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.draw = np.random.default_rng(seed)

    def const(self, array: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def signs(self, *shape: int) -> NDArray:
        return self.draw.choice([-1.0, 1.0], shape).astype(np.float32)

    def reals(self, *shape: int) -> NDArray:
        """Exact in half precision."""
        return self.draw.standard_normal(shape).astype(np.float16).astype(np.float32)

    def norm(self, x: str, channels: int, **attributes: Any) -> str:
        """A batch norm, half of whose scales are negative."""
        scale = self.draw.uniform(0.5, 2, channels) * self.draw.choice([-1, 1], channels)
        parts = (
            scale,
            self.reals(channels),
            self.reals(channels),
            self.draw.uniform(1, 2, channels),
        )
        names = [self.const(np.asarray(part, np.float32)) for part in parts]
        return self.node("BatchNormalization", x, *names, **attributes)

    def model(self, opset: int = 17, batch: Any = 1, ir: int = 8) -> Any:
        graph = helper.make_graph(
            self.nodes,
            "small",
            [helper.make_tensor_value_info("x", FLOAT, [batch, *self.shape])],
            [helper.make_tensor_value_info(self.nodes[-1].output[0], FLOAT, None)],
            self.constants,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir
        )

    def bytes(self, opset: int = 17, batch: Any = 1) -> bytes:
        content: bytes = self.model(opset, batch).SerializeToString()
        return content


def channels_first(x: NDArray) -> NDArray:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if x.ndim == 4 else x


def channels_last(x: NDArray) -> NDArray:
    return x.transpose(0, 2, 3, 1) if x.ndim == 4 else x


def by_onnxruntime(content: bytes, x: NDArray) -> NDArray:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    result: NDArray = session.run(None, {"x": channels_first(x)})[0]
    return channels_last(result)


def by_others(content: bytes, x: NDArray) -> NDArray:
    """What onnxruntime gives, or ONNX's reference where onnxruntime has not this opset yet."""
    try:
        return by_onnxruntime(content, x)
    except Exception as error:
        if type(error).__name__ not in ("Fail", "NotImplemented"):
            raise
    result = ReferenceEvaluator(onnx.load_from_string(content)).run(None, {"x": channels_first(x)})
    return channels_last(np.asarray(result[0]))
