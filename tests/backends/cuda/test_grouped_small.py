"""Small tiles in CUDA C++ without a GPU: they compile for every target, and who they are for.

On the host they run in test_small_on_host.py, on a GPU in test_small_gpu.py.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.gpu_cases import skewed, uniform
from tests.backends.cuda.test_hopper_compile import needs_nvrtc
from tests.support.cases import Case
from tests.support.dense_work import dense_work
from tests.support.machine_code import Compiled, together
from tests.support.spills import stacks
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.tiled import small
from tilewright.backends.cuda.tiled.small import SIDES, CudaSmall, tile_entries
from tilewright.backends.cuda.work import Work
from tilewright.facts.problem import ACTIVATIONS
from tilewright.planning.grouped import GroupedLayout

from .test_grouped_single import batch

ARCHITECTURES = ("sm_80", "sm_86", "sm_90a", "sm_100a")
SUMS = max(m * n // 32 for m, n in SIDES)


@pytest.fixture(autouse=True)
def _compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are made as where NVRTC is."""
    if "arch" not in request.fixturenames:
        monkeypatch.setattr(nvrtc, "missing", lambda: None)


VARIANTS = tuple(itertools.product((False, True), (None, *ACTIVATIONS)))  # near, what ends it


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    macros = {one: dict(small.macros(near=one[0], activation=one[1])) for one in VARIANTS}
    return together("grouped_small", macros, tmp_path_factory)


@needs_nvrtc
@pytest.mark.parametrize(("near", "activation"), VARIANTS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_tiles_compile_and_copy_while_they_multiply(
    arch: str, near: bool, activation: str | None, compiled: Compiled
) -> None:
    code, found = compiled(arch)[near, activation]
    assert found.count("FFMA") >= sum(5 * m * n // 32 for m, n in SIDES), "of four k, and of one"
    assert "LDGSTS" in found, "copies that hold no registers"
    # Chains of sums lie there, and what the error function puts aside.
    assert activation == "gelu" or max(stacks(code)) <= 2 * 4 * SUMS + 48


def work_of(sizes: tuple[tuple[int, int, int], ...]) -> Work:
    """Matrices one behind another, at addresses that nobody reads."""
    return dense_work(sizes, apart=4)


def planned(work: Work) -> tuple[GroupedLayout, Any]:
    plan = CudaSmall().propose(work, CUDA_H200).decisions
    return plan.layout, plan.shared


def test_every_tile_is_listed_once_and_those_of_whole_blocks_first() -> None:
    work = work_of((*uniform(1, 60, 50), (40, 50, 3000), *uniform(1, 60, 50)))
    layout, shared = planned(work)
    assert shared.tolist() == [index == 50 for index in range(101)]
    entries, count = tile_entries(layout, shared)
    assert np.all((entries[:, 0] == 50) == (np.arange(len(entries)) < count))
    covered = [np.zeros((m, n), int) for m, n in zip(work.m, work.n, strict=True)]
    for problem, row, column, shape in entries.tolist():
        height, width = SIDES[shape]
        covered[problem][row : row + height, column : column + width] += 1
    assert all(np.all(one == 1) for one in covered)


def test_a_k_of_few_steps_is_not_shared_however_few_the_tiles_are() -> None:
    for k, is_shared in ((small.LEAST, False), (small.LEAST + 1, True)):
        layout, shared = planned(work_of(((40, 50, k),)))
        assert shared.tolist() == [is_shared]
        assert tile_entries(layout, shared)[1] == is_shared * len(layout.queue)


def test_all_shapes_are_one_launch() -> None:
    layout, _ = planned(work_of(uniform(1, 64, 500)))
    assert set(layout.tile.tolist()) == set(range(len(SIDES)))
    assert layout.predicted["longest-first"] < 2 * small.h200.TILE_LAUNCH + 2e-5


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "float16"}, "not float16 in ieee"),
        ({"dtype": "float64"}, "not float64 in ieee"),
        ({"precision": "tf32"}, "not float32 in tf32"),
        ({"device": "sm_75"}, "capability 8.0"),
        ({"device": "gfx90a"}, "capability 8.0"),
    ],
)
def test_what_the_tiles_do_not_take_is_said(change: dict[str, Any], why: str) -> None:
    device = replace(CUDA_H200, version=change.pop("device", "sm_90"))
    work = replace(batch(Case(20, 10, 50)), **change)
    assert why in str(CudaSmall().why_not(work, device))


def test_products_that_are_not_small_on_average_are_left_to_large_tiles() -> None:
    few, many = uniform(1, 500, 20), uniform(1, 40, 2000)
    assert "a product on average" in str(CudaSmall().why_not(work_of(few), CUDA_H200))
    assert CudaSmall().why_not(work_of((*few, *many)), CUDA_H200) is None


def test_transposes_are_left_to_triton() -> None:
    lined, turned = Case(20, 30, 40), Case(20, 30, 40, b="F")
    assert CudaSmall().why_not(batch(lined), CUDA_H200) is None
    assert "element by element" in str(CudaSmall().why_not(batch(lined, turned), CUDA_H200))


def test_no_layout_undercuts_the_least_that_is_said_of_it() -> None:
    for most, count in ((8, 3), (40, 200), (400, 60), (900, 4)):
        work = work_of(uniform(1, most, count))
        found = CudaSmall().propose(work, CUDA_H200).seconds
        assert found is not None
        assert CudaSmall().least(work, CUDA_H200) <= found


# Sizes drawn, the engine that was fastest without these tiles, its ms of an H200, and theirs.
DRAWN = {
    "2000 by a power law": (skewed, "cuda_grouped", 0.0540, 0.0409),
    "300 of 1..2000 x 1..24 x 8..128": (skewed, "triton_grouped", 0.0755, 0.0584),
    "1..64": (uniform, "triton_grouped", 0.0152, 0.0123),
    "1..128": (uniform, "cuda_grouped", 0.0419, 0.0424),
    "1..256": (uniform, "cuda_grouped", 0.1871, 0.2011),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_engine_that_was_faster_runs(name: str) -> None:
    draw, other, before, by_warps = DRAWN[name]
    sizes = skewed(name) if draw is skewed else uniform(1, int(name[3:]), 1000)
    best = choose.judge(work_of(sizes), CUDA_H200).best
    assert best.engine == ("cuda_small" if by_warps < before else other)
    if best.engine == "cuda_small" and by_warps > 0.03:
        assert best.seconds == pytest.approx(1e-3 * by_warps, rel=0.1)
