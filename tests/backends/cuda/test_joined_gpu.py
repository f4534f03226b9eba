"""Tiles cut along k, whose parts the block that comes second adds, on a GPU. Needs a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.backends.cuda.test_cuda import arguments, check, send_all
from tests.support.cases import Case
from tests.support.gpu_arrays import why_no_gpu
from tilewright import grouped_matmul, plan_grouped
from tilewright.backends.cuda import tile_seconds
from tilewright.backends.cuda.tiled import engine, simt
from tilewright.backends.cuda.tiled.joined import Joined, joined
from tilewright.planning.grouped import GroupedLayout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"no GPU: {why_no_gpu()}"),
]
torch: Any = pytest.importorskip("torch")

DTYPES = ["float32", "float64"]
EDGES = [
    *(Case(64, 64, k) for k in (2047, 2048, 5003, 20_001)),
    *(Case(m, 64, 3000 + m) for m in (1, 15, 16, 31, 32, 33, 63, 65, 130)),
    *(Case(64, n, 4000 + n) for n in (1, 8, 31, 32, 33, 60, 65, 136)),
    *(Case(m, n, 2500) for m in (20, 32, 50) for n in (20, 32, 50)),
    Case(300, 200, 3001, alpha=-0.5, beta=2.0, bias=True),
    Case(70, 72, 9000, bias=True, beta=1.0),
    Case(70, 72, 9000, alpha=0.0, beta=1.0),
    Case(5, 9, 7, bias=True),
    Case(64, 64, 0, beta=0.5, bias=True),
    Case(33, 40, 6100, a="offset", out="offset"),
]


@pytest.fixture(autouse=True)
def large_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tile but those in CUDA C++, however small the products."""
    monkeypatch.setattr(simt, "_LARGE", 0)
    for name in ("_CUDA_SINGLE", "_CUDA_WIDE_SINGLE"):
        shapes = [shape for shape in getattr(tile_seconds, name) if shape.cuda]
        monkeypatch.setattr(tile_seconds, name, tuple(shapes))


def deep(dtype: str, count: int = 3) -> tuple[list[Any], list[Any]]:
    """Of one size, the first of which decides how finely all are cut."""
    a = [
        torch.randn(100, 9001 + i, device="cuda", dtype=getattr(torch, dtype)) for i in range(count)
    ]
    return a, [torch.randn(x.shape[1], 90, device="cuda", dtype=x.dtype) for x in a]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_cut_tiles_are_right_at_every_edge(
    activation: str | None, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []

    def seen(layout: GroupedLayout) -> Joined:
        made = joined(layout)
        places.append(made.places)
        return made

    monkeypatch.setattr(engine, "joined", seen)
    sent = send_all([replace(case, dtype=dtype, activation=activation) for case in EDGES])
    grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="cuda_grouped")
    check(sent)
    assert places[0] > len(EDGES), "most of them are cut"


@pytest.mark.parametrize("dtype", DTYPES)
def test_single_products_in_many_parts_are_right(dtype: str) -> None:
    for k in (1000, 3001, 20_000, 100_003):
        sent = send_all([Case(70, 60, k, dtype=dtype, bias=True)])
        for _ in range(4):  # a single product that comes again is a graph with a table of its own
            grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="cuda_grouped")
        check(sent)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_same_inputs_give_the_same_bits_run_after_run(dtype: str) -> None:
    """Whoever comes first; and counters are zero again after each run, bound or not."""
    a, b = deep(dtype)
    first = grouped_matmul(a, b, kernel="cuda_grouped")
    columns = [x.shape[0] for x in a], [y.shape[1] for y in b], [x.shape[1] for x in a]
    out = [torch.empty_like(x) for x in first]
    bound = plan_grouped(*columns, dtype=a[0].dtype, device="cuda:0").bind(
        a, b, out, kernel="cuda_grouped"
    )
    for _ in range(20):
        for x in out:
            x.fill_(float("nan"))
        bound()
        again = grouped_matmul(a, b, kernel="cuda_grouped")
        for x, y, z in zip(first, out, again, strict=True):
            assert torch.equal(x, y)
            assert torch.equal(x, z)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plan_bound_twice_has_counters_and_scratch_of_its_own_each(dtype: str) -> None:
    a, b = deep(dtype)
    columns = [x.shape[0] for x in a], [y.shape[1] for y in b], [x.shape[1] for x in a]
    plan = plan_grouped(*columns, dtype=a[0].dtype, device="cuda:0")
    outs = [[torch.empty(100, 90, device="cuda", dtype=a[0].dtype) for _ in a] for _ in range(2)]
    calls = [plan.bind(a, b, out, kernel="cuda_grouped") for out in outs]
    streams = [torch.cuda.Stream() for _ in calls]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, call in zip(streams, calls, strict=True):
            with torch.cuda.stream(stream):
                call()
    torch.cuda.synchronize()
    for x, y, left, right in zip(*outs, a, b, strict=True):
        assert torch.equal(x, y)
        truth = left.double() @ right.double()
        assert float((x.double() - truth).norm() / truth.norm()) < 2e-6


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graph_replays_cut_tiles(dtype: str) -> None:
    a, b = deep(dtype)
    columns = [x.shape[0] for x in a], [y.shape[1] for y in b], [x.shape[1] for x in a]
    out = [torch.empty(100, 90, device="cuda", dtype=a[0].dtype) for _ in a]
    call = plan_grouped(*columns, dtype=a[0].dtype, device="cuda:0").bind(
        a, b, out, kernel="cuda_grouped"
    )
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for turn in range(3):
        a[0].fill_(float(turn))
        for x in out:
            x.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for x, left, right in zip(out, a, b, strict=True):
            truth = left.double() @ right.double()
            assert float((x.double() - truth).norm()) <= 2e-6 * float(truth.norm())


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_products_into_one_result_are_added_whole(dtype: str) -> None:
    a, b = deep(dtype)
    (into,) = grouped_matmul(a, b, into=[0] * 3, kernel="cuda_grouped")
    truth = sum(x.double() @ y.double() for x, y in zip(a, b, strict=True))
    assert float((into.double() - truth).norm() / truth.norm()) < 2e-6


def test_what_lies_beside_the_operands_does_not_matter() -> None:
    """NaN before and behind rows of A, and in columns of B that are another's."""
    for m, n in ((64, 64), (30, 64), (64, 30), (20, 20), (100, 100)):
        a = torch.full((m, 3010), torch.nan, device="cuda")
        b = torch.full((3010, n + 16), torch.nan, device="cuda")
        a[:, 3:3004] = torch.randn(m, 3001, device="cuda")
        b[3:3004, 8 : 8 + n] = torch.randn(3001, n, device="cuda")
        x, y = a[:, 3:3004], b[3:3004, 8 : 8 + n]
        (found,) = grouped_matmul([x], [y], kernel="cuda_grouped")
        truth = x.double() @ y.double()
        assert float((found.double() - truth).norm() / truth.norm()) < 2e-6
