"""The shape suites: what is published comes out, what is drawn repeats, what is derived is true."""

from __future__ import annotations

import doctest
import sys

import numpy as np
import pytest

from tilewright import suites
from tilewright.errors import ArgumentError
from tilewright.suites import conv, fronts, graph, moe, uniform, zipf


def test_worked_example() -> None:
    assert doctest.testmod(suites).failed == 0


@pytest.mark.parametrize("name", suites.names())
def test_every_suite(name: str) -> None:
    batch = suites.load(name)
    assert batch.name == name
    assert len(batch.source) > 20
    assert len(batch) == len(batch.m) == len(batch.n) == len(batch.k) > 0
    for column in (batch.m, batch.n, batch.k):
        assert column.dtype == np.int64
        assert column.min() >= 0
    assert np.any(batch.m * batch.n * batch.k > 0)


@pytest.mark.parametrize("name", suites.names())
def test_same_seed_same_batch(name: str) -> None:
    def sizes(seed: int) -> bytes:
        batch = suites.load(name, seed)
        return np.stack((batch.m, batch.n, batch.k)).tobytes()

    assert sizes(0) == sizes(0)
    assert sizes(3) == sizes(3)
    assert len({sizes(seed) for seed in range(5)}) > 1


def test_names_are_unique_and_listed_by_family() -> None:
    assert len(set(suites.names())) == len(suites.names())
    assert set(suites.families()) == {"conv", "fronts", "graph", "moe", "uniform", "zipf"}


def test_bad_requests() -> None:
    with pytest.raises(ArgumentError, match="suite='nonsense': known are"):
        suites.load("nonsense")
    with pytest.raises(ArgumentError, match="seed=-1"):
        suites.load("zipf-512", -1)


def test_scipy_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    with pytest.raises(ModuleNotFoundError, match=r"tilewright\[files\]"):
        suites.load("fronts-mesh-2d")
    assert len(suites.load("fronts-grid-2d")) > 0


def test_uniform_reaches_its_limits() -> None:
    m, n, k = uniform.between(3, 5, 500, seed=1)
    for column in (m, n, k):
        assert sorted(set(column.tolist())) == [3, 4, 5]


def test_zipf_follows_its_law() -> None:
    m, _, _ = zipf.up_to(64, 1.0, 100_000, seed=0)
    counts = np.bincount(m, minlength=65)
    assert counts[1] / counts[2] == pytest.approx(2, rel=0.1)
    assert counts[1] / counts[8] == pytest.approx(8, rel=0.1)


def test_resnet_has_the_published_size() -> None:
    out, pixels, depth = conv.draw("conv-resnet50", 0)
    # 25,557,032 parameters of the network, less 2,049,000 of its classifier and 53,120 of its
    # batch norms; 3.8 billion multiply-adds in table 1.
    assert (out * depth).sum() == 25_557_032 - 2_049_000 - 53_120
    assert (out * pixels * depth).sum() == pytest.approx(3.8e9, rel=0.02)
    gradients = conv.draw("conv-resnet50-weight-gradients", 0)
    assert (gradients[0] * gradients[1]).sum() == (out * depth).sum()


@pytest.mark.parametrize("name", moe.NAMES)
def test_every_token_goes_to_its_experts(name: str) -> None:
    layer = moe.LAYERS[name]
    tokens = moe.routed(layer, seed=5)
    assert len(tokens) == layer.experts
    assert tokens.sum() == layer.tokens * layer.top
    assert tokens.max() <= layer.tokens
    assert len(suites.load(name)) == layer.experts // layer.expert_parallel


def test_mixtral_has_the_published_weights() -> None:
    _, n, k = moe.draw("moe-mixtral-8x7b", 0)
    # Gate, up and down of 8 experts in 32 layers: 45.1 of the 46.7 billion parameters.
    assert 1.5 * (n * k).sum() * 32 == pytest.approx(45.1e9, rel=0.001)


def test_relations_keep_their_edges() -> None:
    m, _, _ = graph.draw("graph-rgcn-am", 0)
    assert len(m) == 2 * 133 + 1
    assert np.array_equal(m[:133], m[133:266])
    assert m[:133].sum() == 59_883
    m, n, k = graph.draw("graph-dblp-inputs", 0)
    assert (m[1], n[1], k[1]) == (14_328, 64, 4_231)
    assert k[3] == 0


def fill(count: int, edges: np.ndarray, order: list[int]) -> list[set[int]]:
    """Symbolic elimination: the later neighbours of every vertex, fill included."""
    near: list[set[int]] = [set() for _ in range(count)]
    for a, b in edges.tolist():
        near[a].add(b)
        near[b].add(a)
    structure: list[set[int]] = [set() for _ in range(count)]
    for vertex in order:
        later = near[vertex]
        structure[vertex] = set(later)
        for other in later:
            near[other] |= later
            near[other] -= {other, vertex}
    return structure


@pytest.mark.parametrize("shape", [(13, 13), (20, 9), (6, 5, 7), (40, 1)])
def test_fronts_are_those_of_symbolic_elimination(shape: tuple[int, ...]) -> None:
    points, edges = fronts.grid(shape)
    found = fronts.dissect(points, edges)
    order = [int(vertex) for pivots, _, _ in reversed(found) for vertex in pivots]
    assert sorted(order) == list(range(len(points)))
    structure = fill(len(points), edges, order)
    for pivots, border, _ in found:
        inside = set(pivots.tolist())
        assert set().union(*(structure[vertex] for vertex in inside)) - inside == set(
            border.tolist()
        )


def test_fronts_of_a_mesh_hold_at_least_the_fill() -> None:
    pytest.importorskip("scipy")
    points = np.random.default_rng(0).random((400, 2))
    edges = fronts.mesh_edges(points)
    found = fronts.dissect(points, edges)
    order = [int(vertex) for pivots, _, _ in reversed(found) for vertex in pivots]
    assert sorted(order) == list(range(400))
    structure = fill(400, edges, order)
    slack = 0
    for pivots, border, _ in found:
        inside = set(pivots.tolist())
        needed = set().union(*(structure[vertex] for vertex in inside)) - inside
        assert needed <= set(border.tolist())
        slack += len(border) - len(needed)
    assert slack <= 0.02 * sum(len(border) for _, border, _ in found)


def test_levels_are_the_tree_from_its_leaves() -> None:
    per_level = fronts.levels("fronts-grid-2d", 0)
    assert sum(int(pivots.sum()) for pivots, _ in per_level) == 128 * 128
    pivots, border = per_level[-1]
    assert (pivots.tolist(), border.tolist()) == ([128], [0])
    m, n, k = fronts.draw("fronts-grid-2d", 0)
    assert np.array_equal(m, n)
    assert k.sum() == 128 * 128
    assert (m[-1], k[-1]) == (0, 128)
