"""Batches made of the case list and of sizes at the edges of tiles, and how they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.cases import CASES, Case, Operands, operands
from tests.support.checks import assert_rest_untouched, assert_right

TILES = ((8, 48), (32, 96), (48, 96), (192, 288), (384, 576))


def edges() -> list[Case]:
    """Sizes one off, on, and one past every tile, alone and together, and off a panel's depth."""
    found = []
    for m, n in TILES:
        for off in (-1, 0, 1):
            found += [Case(m + off, n + off, 9), Case(m + off, 3, 5), Case(2, n + off, 5)]
            found += [Case(n + off, m + off, 3), Case(m + off, n - off, 2, b="F")]
    found += [Case(m, n, k) for k in (191, 192, 193) for m, n in ((13, 33), (45, 49))]
    found += [Case(385, 257, k, b=b) for k in (191, 385) for b in "CF"]
    return [*found, Case(3, 2, 9001), Case(1, 3001, 2), Case(3001, 1, 2)]


def batches() -> list[Any]:
    plain = [case for case in CASES if not (case.lead_a or case.lead_b or case.accumulate)]
    # Long doubles, the truth of doubles, are slow: their edges lie around the smaller tiles.
    small = [case for case in edges() if case.m * case.n * case.k < 10**6]
    plain += edges() + [replace(case, dtype="float64") for case in small]
    plain += [replace(case, dtype="float16") for case in small]
    kinds: dict[tuple[str, str | None], list[Case]] = {}
    for case in plain:
        kinds.setdefault((case.dtype, case.activation), []).append(case)
    return [pytest.param(cases, id=f"{d}-{act or 'plain'}") for (d, act), cases in kinds.items()]


def given_of(cases: Sequence[Case]) -> list[Operands]:
    return [operands(case, seed) for seed, case in enumerate(cases)]


def arguments(given: Sequence[Operands]) -> dict[str, Any]:
    return {
        "a": [one.a for one in given],
        "b": [one.b for one in given],
        "alpha": [one.case.alpha for one in given],
        "beta": [one.case.beta for one in given],
        "transpose_a": [one.case.transpose_a for one in given],
        "transpose_b": [one.case.transpose_b for one in given],
        "bias": [one.bias for one in given],
        "activation": given[0].case.activation,
    }


def check_all(results: Any, given: Sequence[Operands]) -> None:
    assert len(results) == len(given)
    for index, (result, one) in enumerate(zip(results, given, strict=True)):
        try:
            assert_right(result, one)
            assert_rest_untouched(one)
        except AssertionError as error:
            raise AssertionError(f"problem {index}, {one.case}: {error}") from error


def small(dtype: str = "float32", count: int = 40, seed: int = 0) -> list[Operands]:
    sizes = np.random.default_rng(seed).integers(0, 50, (count, 3)).tolist()
    return given_of([Case(m, n, k, dtype=dtype) for m, n, k in sizes])


def lists(given: Sequence[Operands]) -> tuple[list[Any], list[Any]]:
    return [one.a for one in given], [one.b for one in given]
