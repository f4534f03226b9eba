"""Small ONNX models for tests: nodes as tuples, weights drawn, free sizes by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray

NodeText = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]


def model(
    nodes: Sequence[NodeText],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, NDArray] | None = None,
    outputs: Sequence[str] = ("y",),
    dtype: str = "FLOAT",
    opset: int = 17,
    check: bool = True,
) -> bytes:
    """A model's bytes. nodes: operator, inputs, outputs, attributes; `dtype` of every input."""
    import onnx
    from onnx import helper, numpy_helper

    kind = getattr(onnx.TensorProto, dtype)
    graph = helper.make_graph(
        [helper.make_node(op, source, made, **fields) for op, source, made, fields in nodes],
        "graph",
        [helper.make_tensor_value_info(name, kind, list(s)) for name, s in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if check:
        made = onnx.shape_inference.infer_shapes(made)
        onnx.checker.check_model(made)
    content: bytes = made.SerializeToString()
    return content


def weights_of(seed: int = 0, **sizes: Sequence[int]) -> dict[str, NDArray]:
    """Float32 weights by name, drawn so that layers keep about the size of what they are given."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(size) / np.sqrt(max(1, np.prod(size[1:])))).astype(np.float32)
        for name, size in sizes.items()
    }
