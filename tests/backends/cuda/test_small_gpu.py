"""Small fp32 tiles, a warp or a block each, on a GPU. Needs a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.backends.cuda.test_cuda import LINED, arguments, check, edges, send_all
from tests.support.cases import CASES, Case
from tests.support.gpu_arrays import why_no_gpu
from tilewright import grouped_matmul
from tilewright.backends.cuda.tiled import small
from tilewright.facts.measured import h200

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"no GPU: {why_no_gpu()}"),
]
torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("sides", small.SIDES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_small_tiles_of_singles_are_right_at_every_edge(
    activation: str | None,
    near: bool,
    shared: bool,
    sides: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With no other tile to choose from, of a warp or of a block, however long k is."""
    tiles = h200.TILES_SMALL_SINGLE
    dear = {x: y if x == sides else (1e3 * y[0], 1e3 * y[1]) for x, y in tiles.items()}
    monkeypatch.setattr(h200, "TILES_SMALL_SINGLE", dear)
    monkeypatch.setattr(small, "is_near", lambda work: near)
    monkeypatch.setattr(small, "LONG", 0.0 if shared else np.inf)
    monkeypatch.setattr(small, "LEAST", 0)
    monkeypatch.setattr(small, "MOST", np.inf)
    tilewright.forget()  # plans made without these
    found = [case for case in (*CASES, *edges("float32")) if case.dtype == "float32"]
    found = [c for c in found if not (c.lead_a or c.lead_b or c.transpose_a or c.transpose_b)]
    found = [c for c in found if c.a in LINED and c.b in LINED and c.out in LINED]
    found += [Case(m, n, k) for m in (15, 33) for n in (17, 31) for k in (0, 1, 15, 17, 63, 65)]
    found += [Case(35, 37, k, out="offset", beta=0.5, bias=True) for k in (255, 257, 1025, 20000)]
    if activation is None:
        found = [replace(case, alpha=1.0, beta=0.0, bias=False) for case in found]
    sent = send_all([replace(case, activation=activation) for case in found])
    grouped_matmul(**arguments(sent), out=[one.out for one in sent], kernel="cuda_small")
    check(sent)
