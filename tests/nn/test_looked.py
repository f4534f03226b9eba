"""A run by the definitions refuses what `bind` refuses, in the same words, by the node's name."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.support.nets import NodeText, model, picture, plain_net, weights_of
from tilewright import nn
from tilewright.arrays.array import NDArray
from tilewright.errors import (
    ArgumentError,
    DeviceMemoryError,
    FileError,
    OperandError,
    ShapeError,
    TilewrightError,
)
from tilewright.nn.evaluate import computed
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.infer import operator_of
from tilewright.nn.net import Network

pytest.importorskip("onnx")
SHAPE = (1, 3, 8, 8)
X = picture(*SHAPE)
W = weights_of(w=(4, 3, 3, 3), b1=(1,), b3=(3,), b41=(4, 1), v=(4, 5, 3, 3))
FAR = 1 << 17


def net_of(node: NodeText, **constants: NDArray) -> Network:
    return nn.import_onnx(model([node], {"x": SHAPE}, {**W, **constants}, check=False))


@pytest.mark.parametrize(
    "node",
    [
        ("Conv", ["x", "w"], ["y"], {"kernel_shape": [2, 2]}),
        *(("Conv", ["x", "w", name], ["y"], {}) for name in ("b1", "b3", "b41")),
        ("Conv", ["x", "w"], ["y"], {"group": 0}),
        ("Conv", ["x", "v"], ["y"], {}),
        ("ConvTranspose", ["x", "v"], ["y"], {}),
        ("DepthToSpace", ["x"], ["y"], {"blocksize": 2}),
        ("Softmax", ["x"], ["y"], {"axis": 9}),
        *(("Resize", ["x", "", name], ["y"], {}) for name in ("s", "s2", "s3")),
        ("Concat", ["x", "w"], ["y"], {"axis": 0}),
        ("Reshape", ["x", "i"], ["y"], {}),
        ("MatMul", ["x", "w"], ["y"], {}),
        ("MaxPool", ["x"], ["y"], {"kernel_shape": [9, 9]}),
        ("ArgMax", ["e"], ["y"], {"axis": 0}),
    ],
    ids=lambda node: f"{node[0]} {node[1][1:]} {node[3]}",
)  # fmt: skip
@pytest.mark.parametrize("torch", [False, True])
def test_run_refuses_what_bind_refuses(node: NodeText, torch: bool) -> None:
    found = net_of(
        node, s=np.array([1, 1, np.nan, 2], np.float32),
        s2=np.array([1, 1, np.inf, 2], np.float32), s3=np.array([1, 1, 0, 2], np.float32),
        i=np.array([7, 5]), e=np.zeros((0, 2), np.float32),
    )  # fmt: skip
    x: Any = pytest.importorskip("torch").from_numpy(X) if torch else X
    with pytest.raises((ShapeError, ArgumentError), match=rf"node 'y' \({node[0]}\): ") as bound:
        found.bind(device="host")
    with pytest.raises((ShapeError, ArgumentError)) as run:
        found.run(x)
    assert str(run.value) == str(bound.value)


@pytest.mark.parametrize("torch", [False, True])
@pytest.mark.parametrize("operator", ["Gather", "GatherElements", "GatherND", "ScatterElements"])
@pytest.mark.parametrize("index", [8, -9, -12, 1 << 40])
def test_indices_of_no_element_are_refused_by_name(operator: str, index: int, torch: bool) -> None:
    """Those just below the first, too: counted from the end once more they would be the last."""
    indices = {
        "Gather": np.array([0, index]),
        "GatherElements": np.full(SHAPE, index),
        "GatherND": np.array([[0, 0, index, 1], [0, 1, 2, 3]]),
        "ScatterElements": np.full(SHAPE, index),
    }[operator]
    fields = {} if operator == "GatherND" else {"axis": 2}
    given = ["x", "i", *(["x"] if operator == "ScatterElements" else [])]
    found = net_of((operator, given, ["y"], fields), i=indices)
    x: Any = pytest.importorskip("torch").from_numpy(X) if torch else X
    for run in (found.run, found.bind(device="host")):
        with pytest.raises(ArgumentError, match=rf"node 'y' \({operator}\): index {index}: acc.*7"):
            run(x)


def test_indices_that_are_passed_are_looked_at_in_every_run() -> None:
    nodes: list[NodeText] = [("Cast", ["t"], ["i"], {"to": 7}), ("Gather", ["x", "i"], ["y"], {})]
    found = nn.import_onnx(model(nodes, {"x": (4, 2), "t": (1,)}, check=False))
    x = picture(4, 2)
    for run in (found.run, found.bind(device="host")):
        np.testing.assert_array_equal(run(x, np.array([-4], np.float32)), x[:1])
        with pytest.raises(ArgumentError, match=r"node 'y' \(Gather\): index 4: accepted are -4"):
            run(x, np.array([4], np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose", "MaxPool"])
def test_memory_beside_values_is_known_before_any_is_taken(operator: str, dtype: str) -> None:
    pads = {"pads": [FAR] * 4, "strides": [FAR] * 2}
    node: NodeText = {
        "Conv": ("Conv", ["x", "u"], ["y"], pads),
        "ConvTranspose": ("ConvTranspose", ["x", "u"], ["y"], {**pads, "pads": [3 * FAR] * 4}),
        "MaxPool": ("MaxPool", ["x"], ["y", "i"], {**pads, "kernel_shape": [FAR + 9] * 2}),
    }[operator]
    weights = {"u": picture(3, 3, 3, 3).astype(dtype)}
    kind = {"float32": "FLOAT", "float64": "DOUBLE"}[dtype]
    found = nn.import_onnx(model([node], {"x": SHAPE}, weights, dtype=kind, check=False))
    tracemalloc.start()
    try:
        with pytest.raises(DeviceMemoryError, match=r"'y'.* takes|takes \d+ bytes"):
            found.bind(device="host")
        with pytest.raises(DeviceMemoryError, match=rf"node 'y' \({operator}\): takes \d+ bytes"):
            found.run(X.astype(dtype))
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


SIDE = {"pads": (9, 8, 7, 6), "strides": (2, 1), "dilations": (1, 2), "auto_pad": "NOTSET"}
TAKERS = [
    ("Conv", 22, [(2, 8, 40, 40), (16, 8, 3, 3)], {**SIDE, "group": 1}, "float32", 1),
    ("Conv", 22, [(2, 8, 40, 40), (8, 1, 3, 3)], {**SIDE, "group": 8}, "float64", 1),
    ("ConvInteger", 10, [(2, 8, 40, 40), (16, 8, 3, 3)], {**SIDE, "group": 1}, "uint8", 1),
    ("ConvTranspose", 22, [(2, 8, 20, 20), (8, 4, 3, 3)], {**SIDE, "group": 1}, "float32", 1),
    ("MaxPool", 22, [(2, 8, 60, 60)],
     {**SIDE, "kernel_shape": (3, 3), "storage_order": 0, "pads": (1, 1, 1, 1)}, "float32", 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "version", "shapes", "fields", "dtype", "results"), TAKERS)
def test_what_definitions_take_besides_is_about_what_they_say(
    name: str, version: int, shapes: Any, fields: Any, dtype: str, results: int
) -> None:
    given = [(picture(*shape) * 9).astype(dtype) for shape in shapes]
    names = ("x", "w")[: len(given)]
    node = Node(name, version, names, ("y", "i")[:results], fields, "y")
    operator = operator_of(node)
    made = [np.zeros(1, dtype)]
    kinds = list(operator.types(node, [dtype] * len(given)))
    tracemalloc.start()
    try:
        made = computed(np, operator, node, given, kinds)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = operator.scratch(node, [Tensor(a.shape, dtype, a) for a in given])
    taken = most - sum(one.nbytes for one in made)
    assert 0.4 * taken < said < 2.5 * taken, (said, taken)


def test_arrays_of_two_libraries_are_refused() -> None:
    torch = pytest.importorskip("torch")
    found = plain_net([("Add", ["x", "z"], ["y"], {})], {"x": SHAPE, "z": SHAPE}, {})
    with pytest.raises(OperandError, match=r"input 'z' is of torch, input 'x' of numpy; accepted"):
        found.run(X, torch.from_numpy(X))


@pytest.mark.parametrize("empty", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "operator", ["Softmax", "LogSoftmax", "Hardmax", "Conv", "ConvTranspose", "chain", "GridSample"]
)
def test_values_without_elements_are_computed_as_elsewhere(operator: str, empty: int) -> None:
    ort = pytest.importorskip("onnxruntime")
    x = np.zeros([0 if at == empty else size for at, size in enumerate((2, 3, 4, 5))], np.float32)
    c = x.shape[1]
    constants = weights_of(w=(4, c, 2, 2), u=(c, 4, 2, 2), v=(2, 4, 3, 3), g=(len(x), 3, 3, 2))
    constants |= weights_of(b=(4,))
    nodes: list[NodeText] = {
        "Conv": [("Conv", ["x", "w", "b"], ["y"], ONE_MORE)],
        "ConvTranspose": [("ConvTranspose", ["x", "u", "b"], ["y"], {"strides": [2, 2]})],
        "chain": [("Conv", ["x", "w", "b"], ["c"], ONE_MORE), ("Relu", ["c"], ["r"], {}),
                  ("Conv", ["r", "v"], ["y"], ONE_MORE)],
        "GridSample": [("GridSample", ["x", "g"], ["y"], {})],
    }.get(operator, [(operator, ["x"], ["y"], {})])  # fmt: skip
    content = model(nodes, {"x": x.shape}, constants, check=False)
    if operator == "GridSample" and empty > 1:
        with pytest.raises(ShapeError, match=r"accepted are pictures that have pixels"):
            nn.import_onnx(content).run(x)
        return
    found = nn.import_onnx(content)
    made = [run(x) for run in (found.run, found.bind(device="host"))]
    np.testing.assert_array_equal(made[0].shape, made[1].shape)
    np.testing.assert_allclose(made[0], made[1], atol=1e-6)
    if operator == "Conv" and empty == 1:
        bias = np.broadcast_to(constants["b"][:, None, None], made[0].shape)
        np.testing.assert_array_equal(made[0], bias)
    if empty == 1 and tuple(map(int, ort.__version__.split(".")[:2])) < (1, 32):
        return  # it leaves sums over no channels as the memory was
    try:
        session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
        wanted = session.run(None, {"x": x})[0]
    except Exception:  # it has no one class for what it does not take
        return
    np.testing.assert_allclose(made[0], wanted, atol=1e-5)


ONE_MORE = {"pads": [1, 1, 1, 1]}


def test_an_average_over_no_channels_is_no_model() -> None:
    with pytest.raises(FileError, match=r"'y' \(LRN\): size=0: accepted are 1 and more"):
        net_of(("LRN", ["x"], ["y"], {"size": 0}))


def test_errors_of_one_run_leave_the_next_as_it_was() -> None:
    found = net_of(("Conv", ["x", "w"], ["y"], {}))
    with pytest.raises(TilewrightError):
        found.run(X[:, :2])
    assert found.run(X).shape == (1, 4, 6, 6)
