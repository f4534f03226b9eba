"""Tiles cut along k within one launch: what their pieces, places and counters say, without a GPU.

On a GPU they run in test_joined_gpu.py.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from bench.gpu_cases import skewed
from tests.support.dense_work import dense_work
from tests.support.triton_proof import CUDA_H200
from tilewright import suites
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.tile_seconds import shapes_of, slots_of
from tilewright.backends.cuda.tiled import engine, simt
from tilewright.backends.cuda.tiled.engine import CudaGrouped
from tilewright.backends.cuda.tiled.joined import SUMS, WORDS, joined, places_of
from tilewright.backends.cuda.work import Work
from tilewright.planning.grouped import GroupedLayout, lay_out

DEEP = ((300, 200, 9000), (64, 64, 5000), (40, 30, 20), (1, 65, 7000), (64, 64, 0))


def layout_of(sizes: Any, dtype: str = "float32") -> GroupedLayout:
    shapes = shapes_of(dtype, CUDA_H200, cuda=True)
    slots = slots_of(CUDA_H200, adds=False, resident=shapes[0].resident)
    m, n, k = np.array(sizes, np.int64).T
    return lay_out(m, n, k, tuple(shape.tile() for shape in shapes), slots)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The groups of tiles that are launched in CUDA C++, and whether each is only a product."""
    seen: list[Any] = []

    def product(work: Work, shape: Any, group: Any, *where: Any, plain: bool) -> Any:
        seen.append((group, where, plain))
        return lambda *given: None

    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    monkeypatch.setattr(simt, "product", product)
    monkeypatch.setattr(engine, "_multiply", lambda *given: None)
    monkeypatch.setattr(engine, "placed", lambda *given: None)
    monkeypatch.setattr(engine, "side_by_side", lambda *given: None)
    return seen


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_pieces_of_every_tile_cover_its_k_once_and_have_places_of_their_own(dtype: str) -> None:
    layout = layout_of(DEEP, dtype)
    made, queue = joined(layout), layout.queue
    assert (layout.parts > 1).any()
    assert not (layout.parts > 1).all()
    of_tile = defaultdict(list)
    for at in np.flatnonzero(made.piece):
        tile = (int(queue.problem[at]), int(queue.row[at]), int(queue.col[at]))
        of_tile[tile].append(made.pieces[made.piece[at] - 1])
    places = []
    for (problem, _, _), pieces in of_tile.items():
        pieces.sort(key=lambda piece: int(piece[3]))
        begin, depth, first, part, parts = np.array(pieces)[:, :5].T
        assert begin[0] == 0
        assert (begin[1:] == (begin + depth)[:-1]).all()
        assert begin[-1] + depth[-1] == layout.k[problem]
        assert (depth > 0).all()
        assert part.tolist() == list(range(parts[0]))
        assert len(set(first)) == len(set(parts)) == 1
        places += [int(first[0]) + each for each in part]
    assert sorted(places) == list(range(made.places))
    assert made.places == places_of(layout)
    whole = np.flatnonzero(made.piece == 0)
    assert (layout.parts[queue.problem[whole]] == 1).all()


def test_parts_added_by_twos_in_any_order_of_arrival_are_the_same_bits() -> None:
    """As joined.cuh adds them: who comes second of two goes on with the sum of both."""

    def added(parts: list[np.float32], order: list[int]) -> np.float32:
        waiting: dict[int, tuple[int, np.float32]] = {}
        for part in order:
            total, span, done = parts[part], 1, False
            while span < len(parts) and not done:
                mine = part // span * span
                other = mine ^ span
                span *= 2
                if other >= len(parts):
                    continue
                pair = max(mine, other)
                if pair not in waiting:
                    waiting[pair], done = (mine, total), True
                else:
                    at, theirs = waiting.pop(pair)
                    assert at == other
                    total = theirs + total
            if not done:
                last = total
        assert not waiting, "every counter is zero again"
        return last

    random = np.random.default_rng(5)
    for count in (2, 3, 5, 8, 14, 31):
        parts = list((1e4 * random.standard_normal(count)).astype(np.float32))
        found = {added(parts, random.permutation(count).tolist()).tobytes() for _ in range(50)}
        assert len(found) == 1


def test_nothing_cut_needs_no_scratch_and_no_pieces() -> None:
    layout = layout_of([(64, 64, 64)] * 2000)
    made = joined(layout)
    assert (made.places, made.pieces.shape) == (0, (0, WORDS))
    assert not made.piece.any()


def test_tritons_small_tiles_beside_them_are_never_cut() -> None:
    shapes = shapes_of("float32", CUDA_H200, cuda=True)
    assert [shape.whole for shape in shapes] == [not shape.cuda for shape in shapes]
    layout = layout_of(skewed("300 x 700 x 5000 among 800 of 4..48"))
    cuda = np.array([shape.cuda for shape in shapes])
    assert cuda[layout.tile[layout.parts > 1]].all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_need_no_second_launch_and_their_counters_lie_in_the_table_as_zeros(
    dtype: str, launched: list[Any]
) -> None:
    work = dense_work(DEEP, dtype, activation="relu")
    proposal = CudaGrouped().propose(work, CUDA_H200)
    made = CudaGrouped()._kernels(proposal, work)
    layout = proposal.decisions.plan
    assert made.count == len(launched) == 1
    ((group, (_, _, (pieces_at, counters_at)), plain),) = launched
    assert group.parts
    assert not plain, "who adds the parts up ends the product"
    words = made.template.words
    counters = words.view(np.int32)[counters_at // 4 :][: places_of(layout)]
    assert len(counters)
    assert not counters.any()
    pieces = words.view(np.int32)[pieces_at // 4 :][: WORDS * places_of(layout)]
    assert (pieces.reshape(-1, WORDS) == joined(layout).pieces).all()
    item = 4 if dtype == "float32" else 8
    assert made.template.scratch == proposal.scratch == places_of(layout) * SUMS * item


def test_however_matrices_lie_their_tiles_are_one_launch(launched: list[Any]) -> None:
    """Of two launches the one that the chip takes later begins its deep tiles late."""
    suite = suites.load("conv-resnet50")
    work = dense_work(np.stack((suite.m, suite.n, suite.k), 1))
    proposal = CudaGrouped().propose(work, CUDA_H200)
    made = CudaGrouped()._kernels(proposal, work)
    assert len({*(work.n % 4 == 0)}) == 2, "rows of B at multiples of 16 bytes, and others"
    assert made.count == 1
    assert launched[0][0].count == len(proposal.decisions.plan.queue)


def test_few_products_are_one_launch_too(launched: list[Any]) -> None:
    """Planned in one pass (little.py)."""
    work = dense_work([(300, 256, 200), (300, 257, 200)] * 30, enough=1.0, order="given")
    proposal = CudaGrouped().propose(work, CUDA_H200)
    assert "none better is sought" in proposal.reason
    assert CudaGrouped()._kernels(proposal, work).count == len(launched) == 1
