"""Tiles in CUDA C++ without a GPU: they compile for every target, and who they are for.

On a GPU they run in test_cuda.py.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.gpu_cases import skewed, uniform
from tests.backends.cuda.test_hopper_compile import needs_nvrtc
from tests.support.cases import Case, operands
from tests.support.dense_work import dense_work
from tests.support.machine_code import Compiled, together
from tests.support.spills import stacks
from tests.support.triton_proof import CUDA_H200, work_of
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.placing import Launch
from tilewright.backends.cuda.machine.streams import in_turn, side_by_side
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.backends.cuda.tile_seconds import shapes_of
from tilewright.backends.cuda.tiled import simt
from tilewright.backends.cuda.tiled.engine import CudaGrouped
from tilewright.backends.cuda.work import Work

SHAPE = next(shape for shape in shapes_of("float32", CUDA_H200, cuda=True) if shape.cuda)


def batch(*cases: Case) -> Work:
    return work_of([operands(case, seed) for seed, case in enumerate(cases)])


ARCHITECTURES = ("sm_80", "sm_86", "sm_90a", "sm_100a")
VARIANTS = tuple(itertools.product((0, 1), (None, *simt.ACTIVATIONS)))  # cut, what ends a product
SUMS_ASIDE = 528  # bytes of chains of k a thread (tiles.cuh); NVRTC 13.0 puts four numbers beside


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return together("grouped_single", {one: macros(*one) for one in VARIANTS}, tmp_path_factory)


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    (shape,) = (shape for shape in shapes_of("float64", CUDA_H200, cuda=True) if shape.cuda)
    given = {one: {**macros(*one), "STAGES": shape.stages} for one in VARIANTS}
    return together("grouped_double", given, tmp_path_factory)


def macros(parts: int, activation: str | None) -> dict[str, int]:
    return {
        "STAGES": SHAPE.stages,
        "PARTS": parts,
        "GENERAL": int(activation is not None),
        "ACTIVATION": simt.ACTIVATIONS.index(activation or "none"),
    }


@needs_nvrtc
@pytest.mark.parametrize(("parts", "activation"), VARIANTS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_tiles_compile_and_copy_while_they_multiply(
    arch: str, parts: int, activation: str | None, compiled: Compiled
) -> None:
    _, found = compiled(arch)[parts, activation]
    assert found.count("FFMA") >= 8 * 8 * (SHAPE.k + SHAPE.k // 4), "whole tiles, and halves"
    assert found.count("LDS.128") >= 4 * (SHAPE.k + SHAPE.k // 4)
    assert "LDGSTS" in found, "copies that hold no registers"
    assert ("ATOMG" in found) == bool(parts)


@needs_nvrtc
@pytest.mark.parametrize("activation", [None, "relu"])
def test_sums_leave_in_few_instructions(activation: str | None, compiled: Compiled) -> None:
    """A thread writes 64: with 17 instructions each tiles of k = 128 took a tenth longer."""
    _, found = compiled("sm_90a")[0, activation]
    last = found.split("BAR.SYNC")[-1]
    assert " ST.E" not in last, "stores that ask where an address lies"
    assert last.count("STG") == 16
    assert len(last.splitlines()) <= (300 if activation is None else 450)


@needs_nvrtc
@pytest.mark.parametrize("parts", [0, 1])
def test_registers_suffice(parts: int, compiled: Compiled) -> None:
    """Six blocks share a multiprocessor."""
    code, _ = compiled("sm_90a")[parts, None]
    assert max(stacks(code)) <= SUMS_ASIDE + 16


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "float16"}, "not float16 in ieee"),
        ({"dtype": "float64", "device": "sm_80"}, "capability 9.0"),
        ({"dtype": "float64", "device": "sm_100"}, "capability 9.0"),
        ({"dtype": "float64", "device": "gfx942"}, "capability 9.0"),
        ({"precision": "tf32"}, "not float32 in tf32"),
        ({"device": "sm_75"}, "capability 8.0"),
        ({"device": "gfx90a"}, "capability 8.0"),
    ],
)
def test_what_the_tiles_do_not_take_is_said(
    change: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    device = replace(CUDA_H200, version=change.pop("device", "sm_90"))
    answer = CudaGrouped().why_not(replace(batch(Case(200, 100, 50)), **change), device)
    assert why in str(answer)


@needs_nvrtc
@pytest.mark.parametrize(("parts", "activation"), VARIANTS)
def test_tiles_of_doubles_compile_to_the_large_products_of_tensor_cores(
    parts: int, activation: str | None, doubles: Compiled
) -> None:
    code, found = doubles("sm_90a")[parts, activation]
    assert found.count("DMMA.16x8x16") == 16, "all fragments of a warp, and those at an edge"
    assert "LDGSTS" in found, "copies that hold no registers"
    # The error function has its own frame. Of cut tiles NVRTC 13.0 puts five numbers of each thread
    # aside, 13.5 two.
    assert activation == "gelu" or max(stacks(code), default=0) <= (40 if parts else 16)


def test_doubles_are_for_tensor_cores_however_large_and_small_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    small, huge = Case(5, 3, 9, dtype="float64"), Case(1300, 1025, 120, dtype="float64")
    work = batch(*[Case(200, 170, 120, dtype="float64")] * 40, huge, small)
    assert CudaGrouped().why_not(work, CUDA_H200) is None
    assert CudaGrouped().propose(work, CUDA_H200).reason.endswith("tiles 64 x 64: 42")
    answer = CudaGrouped().why_not(batch(Case(47, 90, 40, dtype="float64")), CUDA_H200)
    assert "small" in str(answer)


# Sizes drawn, and ms of an H200 by Triton's tiles and by those in CUDA C++.
DRAWN = {
    "1..32": (uniform(1, 32, 1000), 0.0100, 0.0129),
    "1..128": (uniform(1, 128, 1000), 0.0594, 0.0503),
    "1..256": (uniform(1, 256, 1000), 0.2403, 0.2012),
    "1..512": (uniform(1, 512, 1000), 1.2729, 1.0929),
    "64..512": (uniform(64, 512, 200), 0.3662, 0.3188),
    "256..2048": (uniform(256, 2048, 200), 17.5083, 15.7705),
    "2..900, even in logarithms": (skewed("800 of 2..900, even in logarithms"), 0.2260, 0.1978),
}


@pytest.mark.parametrize("name", DRAWN)
def test_of_doubles_the_engine_that_was_faster_runs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    sizes, triton, cuda = DRAWN[name]
    best = choose.judge(dense_work(sizes, "float64"), CUDA_H200).best
    assert best.engine == ("triton_grouped" if triton < cuda else "cuda_grouped")
    if best.engine == "cuda_grouped":
        assert best.reason.endswith(f"tiles 64 x 64: {len(sizes)}")
    if cuda > 0.1:
        assert best.seconds == pytest.approx(1e-3 * cuda, rel=0.03)


@pytest.mark.parametrize(
    ("name", "ms"),
    [
        ("1..256", 0.1877),
        ("1..512", 1.0933),
        ("64..512", 0.3291),
        ("2..900, even in logarithms", 0.1799),
    ],
)
def test_of_singles_drawn_batches_are_one_shape_and_predicted_within_5_percent(
    name: str, ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milliseconds of an H200; with Triton's small tiles beside it the last took 0.244."""
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    sizes, *_ = DRAWN[name]
    best = choose.judge(dense_work(sizes, "float32"), CUDA_H200).best
    assert best.engine == "cuda_grouped"
    assert best.reason.endswith(f"tiles 64 x 64: {len(sizes)}")
    assert best.seconds == pytest.approx(1e-3 * ms, rel=0.05)


def test_transposes_and_small_products_are_left_to_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    large, turned = Case(3000, 700, 50), Case(200, 100, 50, a="F")
    assert CudaGrouped().why_not(batch(large), CUDA_H200) is None
    assert CudaGrouped().propose(batch(large), CUDA_H200).seconds
    assert "element by element" in str(CudaGrouped().why_not(batch(large, turned), CUDA_H200))
    few = [Case(20, 30, 40)] * 9
    assert "small products" in str(CudaGrouped().why_not(batch(*few), CUDA_H200))


def test_where_there_is_no_nvrtc_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: "NVRTC cannot be used")
    assert CudaGrouped().why_not(batch(Case(200, 100, 50)), CUDA_H200) == "NVRTC cannot be used"


def test_a_vectors_stray_step_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    work = batch(Case(200, 100, 50), Case(300, 1, 1, a="strided", b="strided", out="strided"))
    assert simt.why_not(work, CUDA_H200) is None
    assert np.any(work.a.col != 1)


def test_launches_in_turn_keep_their_order() -> None:
    seen: list[tuple[str, int, str]] = []

    def launch(name: str) -> Launch:
        return lambda stream, table, scratch: seen.append((name, stream, table + scratch))

    whole = in_turn([side_by_side([launch("a"), launch("b")], INTERPRETED), launch("c")])
    whole(7, "table", "scratch")
    assert seen == [(name, 7, "tablescratch") for name in "abc"]
