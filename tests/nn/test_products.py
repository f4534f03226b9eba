"""Products inside networks are this library's: planned by its engines, ended in one step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import NodeText, attention, picture, plain_net, weights_of
from tilewright.backends.host import products
from tilewright.facts.device import Device
from tilewright.nn.graph import Node, Tensor
from tilewright.nn.net import Network
from tilewright.nn.passes.products import with_products

pytest.importorskip("numba")
HALVES = frozenset({"fp16", "bf16", "fp64", "tf32", "wgmma"})
H200 = Device("cuda:0", "cuda", "NVIDIA H200", kind="gpu", memory=141 << 30, features=HALVES)
PLAIN = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}


def exact(net: Network, *given: Any) -> Any:
    """By the definitions in float64."""
    graph = net.graph
    wide = {n: Tensor(t.shape, "float64", t.value.astype("f8")) for n, t in graph.constants.items()}
    inputs = tuple(type(i)(i.name, i.shape, "float64") for i in graph.inputs)
    doubled = Network(type(graph)(graph.nodes, inputs, graph.outputs, wide))
    return doubled.run(*(x.astype("f8") for x in given))


def agrees(net: Network, *given: Any, most: float = 2e-6) -> Any:
    """Bound on the host it gives what exact sums are, to so much of the largest."""
    shapes = {i.name: x.shape for i, x in zip(net.inputs, given, strict=True)}
    bound = net.bind(shapes, "host")
    made, wanted = bound(*given), exact(net, *given)
    assert made.shape == wanted.shape
    assert np.abs(made - wanted).max() <= most * np.abs(wanted).max(), bound.explain()
    return bound


def test_attention_is_products_of_this_library() -> None:
    net = plain_net(*attention())
    bound = agrees(net, picture(2, 19, 24))
    steps = [step for step in bound.steps if step.node.operator == "Product"]
    known = [0, 1, 2, 5, 6]  # B is; whose two others are faster depends on the processor
    assert [steps[at].engine for at in known] == ["tiles"] * 5
    assert {step.engine for step in steps} <= {"tiles", "blas"}
    assert [step.node.attributes["ends"].activation for step in steps][-2:] == ["gelu", "none"]
    assert all(step.seconds for step in steps)
    assert "MatMul 6 times 19x8 by 8x19" in bound.explain()
    rows = [row for row in bound.rows if row.operator == "MatMul"]
    assert all(row.predicted and row.reason and row.engine in ("tiles", "blas") for row in rows)


@pytest.mark.parametrize("columns", [1, 8, 15, 16, 17, 31, 32, 33, 48, 65])
def test_unknown_panels_of_any_columns_are_right(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B is packed in each run as wide as registers are: on AVX2 half as wide as on AVX-512."""
    net = plain_net(
        [("MatMul", ["a", "b"], ["y"], {})], {"a": (2, 19, 8), "b": (2, 8, columns)}, {}
    )
    monkeypatch.setattr(products.Blas, "why_not", lambda *given: "left out here")
    (step,) = agrees(net, picture(2, 19, 8), picture(2, 8, columns)).steps
    assert step.engine == "tiles"


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16"])
def test_attention_is_planned_for_a_gpu_without_one(dtype: str | None) -> None:
    told = plain_net(*attention()).explain((2, 19, 24), H200, dtype)
    products = told.split("MatMul ")[1:]
    assert len(products) == 7
    for text in products:
        assert "by definition" not in text.split("Softmax")[0].splitlines()[0]
        assert any(f"      {name}" in text for name in ("vendor", "hopper", "triton"))


SHAPES = {
    "a row by a column": ((7,), (7,)),
    "a row by matrices": ((7,), (3, 7, 5)),
    "matrices by a column": ((2, 3, 4, 7), (7,)),
    "leading dimensions of either": ((3, 1, 4, 7), (1, 5, 7, 6)),
    "fewer leading dimensions": ((4, 7), (2, 3, 7, 6)),
    "one row by many": ((2, 1, 7), (7, 33)),
    "five dimensions": ((2, 1, 2, 4, 7), (3, 1, 7, 6)),
    "many rows by stacks": ((3, 1, 20, 7), (1, 5, 7, 40)),
    "stacks of many rows by one": ((2, 3, 20, 7), (7, 50)),
    "one of many rows by stacks": ((15, 70), (4, 70, 97)),
    "five dimensions of many rows": ((2, 1, 2, 33, 7), (3, 1, 7, 6)),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_any_rank_and_broadcast(name: str, known: bool) -> None:
    left, right = SHAPES[name]
    b = picture(*right)
    nodes: list[NodeText] = [("MatMul", ["x", "b"], ["m"], {}), ("Relu", ["m"], ["y"], {})]
    if known:
        bound = agrees(plain_net(nodes, {"x": left}, {"b": b}), picture(*left))
    else:
        bound = agrees(plain_net(nodes, {"x": left, "b": right}, {}), picture(*left), b)
    (step,) = (one for one in bound.steps if one.node.operator == "Product")
    assert step.engine in ("blas", "tiles")


@pytest.mark.parametrize(
    ("changed", "sizes"),
    [
        ({}, [(5, 6), (6, 7), (7,)]),
        ({"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, [(6, 5), (7, 6), (1, 7)]),
        ({"alpha": -1.5}, [(20, 6), (6, 7), (20, 7)]),
        ({"beta": 3.0}, [(20, 6), (6, 7), (20, 1)]),
        ({"beta": 3.0}, [(20, 6), (6, 7), (1,)]),
        ({"beta": 0.0}, [(20, 6), (6, 7), (7,)]),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_gemm_with_all_that_it_has(changed: Any, sizes: Any, known: bool) -> None:
    nodes: list[NodeText] = [("Gemm", ["x", "b", "c"], ["y"], {**PLAIN, **changed})]
    a, b, c = (picture(*size) for size in sizes)
    if known:
        agrees(plain_net(nodes, {"x": sizes[0]}, {"b": b, "c": c}), a)
    else:
        inputs = dict(zip("xbc", sizes, strict=True))
        agrees(plain_net(nodes, inputs, {}), a, b, c)


def test_what_is_not_finite_stays_in_its_row() -> None:
    nodes: list[NodeText] = [("MatMul", ["x", "b"], ["m"], {}), ("Relu", ["m"], ["y"], {})]
    x = picture(31, 9)
    x[4, 2], x[17, 0] = np.nan, np.inf
    net = plain_net(nodes, {"x": (31, 9)}, {"b": picture(9, 40)})
    made, wanted = net.bind(None, "host")(x), net.run(x)
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(wanted))
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def test_doubles_are_numpys_and_whole_numbers_the_definitions() -> None:
    nodes: list[NodeText] = [("MatMul", ["x", "x"], ["y"], {})]
    net = plain_net(nodes, {"x": (5, 5)}, {})
    for dtype, engine in (("float64", "blas"), ("int32", "definition")):
        inputs = tuple(type(i)(i.name, i.shape, dtype) for i in net.inputs)
        graph = type(net.graph)(net.graph.nodes, inputs, net.outputs, {})
        bound = Network(graph).bind(None, "host")
        x = np.arange(25).reshape(5, 5).astype(dtype)
        np.testing.assert_array_equal(bound(x), x @ x)
        assert [step.engine for step in bound.steps] == [engine]


def test_a_transpose_that_others_read_stays_and_one_without_a_dense_axis_too() -> None:
    nodes: list[NodeText] = [
        ("Transpose", ["x"], ["t"], {"perm": [0, 2, 1]}),
        ("MatMul", ["x", "t"], ["p"], {}),
        ("MatMul", ["t", "x"], ["q"], {}),
        ("Transpose", ["z"], ["far"], {"perm": [2, 0, 1]}),
        ("MatMul", ["far", "q"], ["r"], {}),
        ("Neg", ["t"], ["n"], {}),
    ]
    inputs = {"x": (3, 6, 5), "z": (5, 5, 1)}
    net = plain_net(nodes, inputs, {}, ("p", "q", "r", "n"))
    given = {name: picture(*size) for name, size in inputs.items()}
    bound = net.bind(dict(inputs.items()), "host")
    for made, wanted in zip(bound(*given.values()), net.run(*given.values()), strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    assert sum(node.operator == "Transpose" for node in bound.graph.nodes) == 2


def test_an_add_of_anything_but_a_vector_a_column_is_left() -> None:
    for size, left in (((7,), 1), ((1, 7), 1), ((6, 1), 2), ((6, 7), 2), ((2, 6, 7), 2)):
        nodes: list[NodeText] = [("MatMul", ["x", "b"], ["m"], {}), ("Add", ["c", "m"], ["y"], {})]
        net = plain_net(nodes, {"x": (6, 5)}, weights_of(b=(5, 7), c=size))
        shapes = {"x": (6, 5), "b": (5, 7), "c": size, "m": (6, 7)}
        shapes["y"] = np.broadcast_shapes(size, (6, 7))
        tensors = {name: Tensor(tuple(shape), "float32") for name, shape in shapes.items()}
        assert len(with_products(net.graph, tensors).nodes) == left, size


def test_a_product_keeps_the_names_of_the_nodes_that_it_does() -> None:
    net = plain_net(*attention())
    covers = [name for step in net.bind((2, 19, 24), "host").steps for name in step.covers]
    assert sorted(covers) == sorted({node.name for node in net.graph.nodes})
    alone = net.bind((2, 19, 24), "host", fuse=False)
    assert [s.covers for s in alone.steps if s.covers] == [(n.name,) for n in net.graph.nodes]
    assert isinstance(net.graph.nodes[0], Node)


def gelu_of_five(order: str) -> list[NodeText]:
    """As torch writes it before opset 20, factors in one of the orders; m to g."""
    by = order == "by Mul"
    head: list[NodeText] = [
        ("Mul", ["turn", "m"], ["d"], {}) if by else ("Div", ["m", "root"], ["d"], {}),
        ("Erf", ["d"], ["e"], {}),
        ("Add", ["one", "e"] if by else ["e", "one"], ["a"], {}),
    ]
    if order == "half first":
        return [*head, ("Mul", ["half", "m"], ["h"], {}), ("Mul", ["a", "h"], ["g"], {})]
    return [*head, ("Mul", ["m", "a"], ["h"], {}), ("Mul", ["h", "half"], ["g"], {})]


@pytest.mark.parametrize("order", ["half last", "half first", "by Mul"])
@pytest.mark.parametrize("half", [0.5, 0.25])
def test_gelu_as_exporters_write_it_ends_a_product(order: str, half: float) -> None:
    nodes: list[NodeText] = [
        ("MatMul", ["x", "w"], ["m"], {}),
        *gelu_of_five(order),
        ("MatMul", ["g", "v"], ["y"], {}),
    ]
    drawn = weights_of(w=(24, 48), v=(48, 24))
    numbers = {"root": 2**0.5, "turn": 0.5**0.5, "one": 1.0, "half": half}
    held = {name: np.array(value, np.float32) for name, value in numbers.items()}
    bound = agrees(plain_net(nodes, {"x": (3, 17, 24)}, {**drawn, **held}), picture(3, 17, 24))
    left = [node.operator for node in bound.graph.nodes]
    assert (left == ["Product", "Product"]) == (half == 0.5)


def test_one_slice_is_a_step_of_the_program() -> None:
    nodes: list[NodeText] = [("Gather", ["x", "last"], ["y"], {"axis": 1})]
    net = plain_net(nodes, {"x": (3, 4, 5)}, {"last": np.array(-1)})
    bound, x = net.bind(None, "host"), picture(3, 4, 5)
    np.testing.assert_array_equal(bound(x), x[:, -1])
    assert [step.engine for step in bound.steps] == ["elements"]
