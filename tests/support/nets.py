"""Small ONNX models for tests: nodes as tuples, weights drawn, free sizes by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.nn.graph import Graph, Input, Node, Tensor
from tilewright.nn.net import Network
from tilewright.nn.operators import found

ONE = {"pads": [1, 1, 1, 1]}
NodeText = tuple[str, Sequence[str], Sequence[str], Mapping[str, Any]]

# Nodes, sizes of inputs, constants: what `model` and `plain_net` take.
ModelText = tuple[Sequence[NodeText], Mapping[str, Sequence[int | str]], Mapping[str, NDArray]]


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


def plain_net(
    nodes: Sequence[NodeText],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, NDArray],
    outputs: Sequence[str] = ("y",),
) -> Network:
    """The same as a network without the onnx package; of defaults only the group of Conv."""
    made = tuple(
        Node(
            op,
            max(v for one in found()[op] for v in one.versions),
            tuple(source),
            tuple(results),
            {"group": 1, **fields},
            results[0],
        )
        for op, source, results, fields in nodes
    )
    weights = {n: Tensor(a.shape, str(a.dtype), a) for n, a in constants.items()}
    sources = tuple(Input(name, tuple(sizes), "float32") for name, sizes in inputs.items())
    return Network(Graph(made, sources, tuple(outputs), weights))


def picture(*sizes: int) -> Any:
    """Normal numbers, seeded."""
    return np.random.default_rng(5).standard_normal(sizes).astype(np.float32)


def upscaler(first: int = 8, layers: int = 2, *, shuffle: bool = False) -> ModelText:
    """1 -> first -> ... -> 4 by 3x3, ReLU between; doubled or shuffled. Sizes are free."""
    widths = [1, *[first] * layers, 4]
    sizes = {f"w{i}": (b, a, 3, 3) for i, (a, b) in enumerate(pairwise(widths))}
    biases = {f"b{i}": (b,) for i, b in enumerate(widths[1:])}
    nodes: list[NodeText] = []
    name = "x"
    for i in range(len(widths) - 1):
        nodes.append(("Conv", [name, f"w{i}", f"b{i}"], [f"c{i}"], ONE))
        name = f"c{i}"
        if i < len(widths) - 2:
            nodes.append(("Relu", [name], [f"r{i}"], {}))
            name = f"r{i}"
    if shuffle:
        nodes.append(("DepthToSpace", [name], ["y"], {"blocksize": 2, "mode": "CRD"}))
    else:
        nodes.append(("Add", [name, name], ["y"], {}))
    return nodes, {"x": (1, 1, "h", "w")}, weights_of(**sizes, **biases)


def residual_blocks() -> ModelText:
    """x -> Conv -> (Conv, Relu, Conv, + the value before) twice."""
    w = weights_of(w=(6, 3, 3, 3), v=(6, 6, 3, 3))
    nodes: list[NodeText] = [("Conv", ["x", "w"], ["a0"], ONE)]
    for i in range(2):
        nodes += [
            ("Conv", [f"a{i}", "v"], [f"b{i}"], ONE),
            ("Relu", [f"b{i}"], [f"c{i}"], {}),
            ("Conv", [f"c{i}", "v"], [f"d{i}"], ONE),
            ("Add", [f"a{i}", f"d{i}"], [f"a{i + 1}"], {}),
        ]
    nodes.append(("Relu", ["a2"], ["y"], {}))
    return nodes, {"x": (2, 3, "h", "w")}, w


def attention(batch: int = 2, length: int = 19, width: int = 24, heads: int = 3) -> ModelText:
    """One block of a transformer: heads that look at each other, then two layers with a Gelu."""
    each = width // heads
    nodes: list[NodeText] = []
    for name in "qkv":
        turn = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            ("MatMul", ["x", f"w{name}"], [f"{name}0"], {}),
            ("Add", [f"{name}0", f"b{name}"], [f"{name}1"], {}),
            ("Reshape", [f"{name}1", "split"], [f"{name}2"], {"allowzero": 0}),
            ("Transpose", [f"{name}2"], [f"{name}3"], {"perm": turn}),
        ]
    nodes += [
        ("MatMul", ["q3", "k3"], ["scores"], {}),
        ("Softmax", ["scores"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "v3"], ["mixed"], {}),
        ("Transpose", ["mixed"], ["turned"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["turned", "joined"], ["z"], {"allowzero": 0}),
        ("LayerNormalization", ["z", "scale", "shift"], ["n"], {"axis": -1, "epsilon": 1e-5,
                                                               "stash_type": 1}),
        ("MatMul", ["n", "up"], ["u"], {}),
        ("Add", ["u", "bu"], ["u1"], {}),
        ("Gelu", ["u1"], ["g"], {"approximate": "none"}),
        ("MatMul", ["g", "down"], ["d"], {}),
        ("Add", ["d", "bd"], ["y"], {}),
    ]  # fmt: skip
    drawn = {f"w{name}": (width, width) for name in "qkv"} | {
        f"b{name}": (width,) for name in "qkv"
    }
    drawn |= {"up": (width, 2 * width), "bu": (2 * width,), "down": (2 * width, width)}
    drawn |= {"bd": (width,), "scale": (width,), "shift": (width,)}
    sizes = {"split": [batch, length, heads, each], "joined": [batch, length, width]}
    whole = {name: np.array(size, np.int64) for name, size in sizes.items()}
    return nodes, {"x": (batch, length, width)}, {**weights_of(**drawn), **whole}
