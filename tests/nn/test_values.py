"""Operators beside convolutions on the host's kernels give what their definitions give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")
onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from tests.support import standard  # noqa: E402
from tilewright import nn  # noqa: E402
from tilewright.arrays.array import NDArray  # noqa: E402

TAKEN = (
    *("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "Resize", "Concat", "Split"),
    *("Slice", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "DepthToSpace"),
    *("SpaceToDepth", "Add", "Sub", "Mul", "Div", "Max", "Min", "Relu", "LeakyRelu", "Clip"),
    *("Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Gelu", "MatMul", "Gemm"),
    *("Softmax", "LayerNormalization", "InstanceNormalization"),
)
ENGINES = {"pool", "blend", "elements"}


def bound_run(net: nn.Network, inputs: Sequence[NDArray]) -> list[NDArray]:
    """Bound on the host."""
    shapes = {source.name: a.shape for source, a in zip(net.inputs, inputs, strict=True)}
    made = net.bind(shapes or None, device="host")(*inputs)
    return list(made) if isinstance(made, tuple) else [made]


@pytest.mark.parametrize("name", TAKEN)
def test_bound_nodes_pass_the_node_tests_of_the_standard(name: str) -> None:
    for case in standard.cases()[name]:
        if standard.listed(case.name) is None:
            assert standard.refusal(case, bound_run) is None, case.name


def network(nodes: Sequence[Any], shape: Sequence[int], **constants: NDArray) -> nn.Network:
    """From x to y."""
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", list(shape)), ("y", None))]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "values", ends[:1], ends[1:], held)
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    return nn.import_onnx(model.SerializeToString())


def conv(source: str, result: str, weights: str) -> Any:
    """3x3, of the same size."""
    return helper.make_node("Conv", [source, weights], [result], pads=[1, 1, 1, 1])


SIZES = np.array([1, 1, 2, 2], np.float32)
ODD = np.array([1, 1, 1.7, 0.6], np.float32)
BETWEEN = {
    "pools": [
        helper.make_node(
            "MaxPool", ["a"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
        ),
        helper.make_node("AveragePool", ["p"], ["b"], kernel_shape=[2, 3], pads=[1, 1, 0, 1]),
    ],
    "means of two numbers by many": [
        helper.make_node("AveragePool", ["a"], ["p"], kernel_shape=[2, 5], pads=[0, 2, 1, 2]),
        helper.make_node("Mul", ["p", "two"], ["b"]),
    ],
    "a window that sticks out": [
        helper.make_node(
            "MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1,
        )
    ],
    "means that count pads": [
        helper.make_node(
            "AveragePool", ["a"], ["b"], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
        )
    ],
    "a gate": [
        helper.make_node("GlobalAveragePool", ["a"], ["m"]),
        helper.make_node("Sigmoid", ["m"], ["g"]),
        helper.make_node("Mul", ["g", "a"], ["b"]),
    ],
    "halves, one of them turned": [
        helper.make_node("Split", ["a"], ["c", "d"], axis=1, num_outputs=2),
        helper.make_node("HardSwish", ["d"], ["e"]),
        helper.make_node("Concat", ["e", "c"], ["b"], axis=1),
    ],
    "channels shuffled": [
        helper.make_node("Reshape", ["a", "five"], ["c"]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["d", "four"], ["b"]),
    ],
    "channels in turns": [
        helper.make_node("Split", ["a"], ["c", "d"], axis=1, num_outputs=2),
        helper.make_node("Concat", ["d", "c"], ["e"], axis=1),
        helper.make_node("Reshape", ["e", "pair"], ["f"]),
        helper.make_node("Transpose", ["f"], ["g"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["g", "four"], ["b"]),
    ],
    "linear, twice as large": [
        helper.make_node("Resize", ["a", "", "sizes"], ["b"], mode="linear")
    ],
    "cubic, by odd factors": [helper.make_node("Resize", ["a", "", "odd"], ["b"], mode="cubic")],
    "nearest": [helper.make_node("Resize", ["a", "", "odd"], ["b"], mode="nearest")],
    "pixels": [
        helper.make_node("DepthToSpace", ["a"], ["c"], blocksize=2, mode="DCR"),
        helper.make_node("SpaceToDepth", ["c"], ["b"], blocksize=2),
    ],
    "a part and arithmetic": [
        helper.make_node("Slice", ["a", "starts", "ends", "axes", "steps"], ["c"]),
        helper.make_node("Sub", ["one", "c"], ["d"]),
        helper.make_node("Div", ["d", "two"], ["e"]),
        helper.make_node("Max", ["e", "c"], ["b"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("images", [1, 2])
def test_between_convolutions_they_give_what_definitions_give(name: str, images: int) -> None:
    rng = np.random.default_rng(7)
    first, second = (
        (rng.standard_normal(size) * 0.2).astype(np.float32)
        for size in ((20, 3, 3, 3), (17, 20, 3, 3))
    )
    net = network(
        [conv("x", "a", "first"), *BETWEEN[name], conv("b", "y", "second")],
        (images, 3, 14, 18),
        first=first,
        second=second,
        sizes=SIZES,
        odd=ODD,
        one=np.ones(1, np.float32),
        two=np.full((20, 1, 1), 2, np.float32),
        five=np.array([images, 4, 5, 14, 18]),
        four=np.array([images, 20, 14, 18]),
        pair=np.array([images, 2, 10, 14, 18]),
        starts=np.array([2, -1]),
        ends=np.array([12, -20]),
        axes=np.array([2, 3]),
        steps=np.array([3, -2]),
    )
    x = rng.standard_normal((images, 3, 14, 18)).astype(np.float32)
    bound = net.bind(x.shape, device="host")
    assert "definition" not in {step.engine for step in bound.steps}
    assert ENGINES & {step.engine for step in bound.steps}
    right = net.run(x)
    for _ in range(2):
        np.testing.assert_allclose(bound(x), right, rtol=0, atol=2e-6 * np.abs(right).max())
    rows = bound.profile(x, repeats=1)
    covered = [name for row in rows for name in row.covers]
    assert len(covered) == len(set(covered))


def test_nan_passes_pools_and_functions() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    x = np.zeros((1, 20, 9, 9), np.float32)
    x[0, 3, 4, 4], x[0, 18, 0, 0], x[0, 5] = np.nan, np.inf, -np.inf
    net = network(nodes, x.shape)
    np.testing.assert_array_equal(net.bind(x.shape, device="host")(x), net.run(x))


def test_results_do_not_depend_on_how_much_is_done_at_once() -> None:
    """Large enough for many tasks; a number of channels that no vector divides."""
    nodes = [
        helper.make_node("Resize", ["x", "", "sizes"], ["r"], mode="linear"),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Mul", ["p", "x"], ["y"]),
    ]
    x = np.random.default_rng(3).standard_normal((2, 3, 120, 90)).astype(np.float32)
    net = network(nodes, x.shape, sizes=SIZES)
    np.testing.assert_allclose(net.bind(x.shape, device="host")(x), net.run(x), rtol=0, atol=1e-5)


def test_other_types_and_ranks_stay_definitions() -> None:
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3])]
    x = np.random.default_rng(3).standard_normal((2, 3, 12)).astype(np.float32)
    bound = network(nodes, x.shape).bind(x.shape, device="host")
    assert [step.engine for step in bound.steps] == ["definition"]
    assert "definition" in bound.explain()
