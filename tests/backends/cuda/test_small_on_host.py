"""Small tiles' own source, compiled for the host: right at every edge without a GPU.

Copies are there at once, so that nothing is said of waiting for them; all else is as on a GPU.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cases import CASES, Case, operands
from tests.support.checks import assert_rest_untouched, assert_right
from tests.support.triton_proof import CUDA_H200, work_of
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.machine.tables import records
from tilewright.backends.cuda.tiled import small
from tilewright.backends.cuda.tiled.small import SIDES, WARPS, CudaSmall, tile_entries
from tilewright.facts.measured import h200

COMPILER = shutil.which("c++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
HERE = Path(__file__).parent / "small_on_host"
LINED = ("C", "offset", "repeated")  # layouts whose rows lie element by element


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The kernel for an ending and a way to count strides, compiled when it is first asked for."""
    folder = tmp_path_factory.mktemp("small")
    kernel = (nvrtc.path_of(name) for name in ("grouped_small.cu", "activated.cuh"))
    for source in (*HERE.iterdir(), *kernel):
        shutil.copy(source, folder)

    @cache
    def made(activation: str | None, near: bool) -> ctypes.CDLL:
        words = [f"-D{x}={y}" for x, y in small.macros(near=near, activation=activation)]
        target = folder / f"{activation}-{near}.so"
        command = [str(COMPILER), "-std=c++17", "-O1", "-w", "-shared", "-fPIC", *words]
        subprocess.run([*command, str(folder / "small_on_host.cpp"), "-o", str(target)], check=True)
        return ctypes.CDLL(str(target))

    return made


def cases(activation: str | None) -> list[Case]:
    found = [c for c in CASES if c.dtype == "float32" and c.alpha and not c.accumulate]
    found = [c for c in found if not (c.lead_a or c.lead_b or c.transpose_a or c.transpose_b)]
    found = [c for c in found if c.a in LINED and c.b in LINED and c.out in LINED]
    found = [c for c in found if 0 < c.m * c.n <= 5000 and c.m * c.n * c.k < 200_000]
    found += [Case(m, n, k) for m in (15, 16, 33) for n in (17, 31, 32) for k in (0, 1, 15, 16, 65)]
    found += [Case(65, 63, 128), Case(35, 37, 257, out="offset", beta=0.5, bias=True)]
    if activation is None:
        found = [replace(case, alpha=1.0, beta=0.0, bias=False) for case in found]
    return [replace(case, activation=activation) for case in found]


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("activation", "near"), [(None, True), ("relu", False), ("gelu", True)])
def test_small_tiles_are_right_at_every_edge(
    activation: str | None,
    near: bool,
    shared: bool,
    sides: tuple[int, int],
    library: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With no other tile to choose from, of a warp or of a block, however long k is."""
    tiles = h200.TILES_SMALL_SINGLE
    dear = {x: y if x == sides else (1e3 * y[0], 1e3 * y[1]) for x, y in tiles.items()}
    monkeypatch.setattr(h200, "TILES_SMALL_SINGLE", dear)
    monkeypatch.setattr(small, "LONG", 0.0 if shared else np.inf)
    monkeypatch.setattr(small, "LEAST", 0)
    given = [operands(case, seed) for seed, case in enumerate(cases(activation))]
    work = work_of(given)
    plan = CudaSmall().propose(work, CUDA_H200).decisions
    entries, count = tile_entries(plan.layout, plan.shared)
    assert set(entries[:, 3].tolist()) == {SIDES.index(sides)}
    assert (count > 0) == shared
    table = records(work)
    blocks = count - (-(len(entries) - count) // WARPS)
    at = [ctypes.c_void_p(column.ctypes.data) for column in (table, entries)]
    assert library(activation, near).run(*at, len(entries), count, blocks) == 0
    for one in given:
        assert_right(one.out, one)
        assert_rest_untouched(one)
