"""Sizes on the device: right in Triton's interpreter, and compiled for every target."""

from __future__ import annotations

import re
from typing import Any

import pytest

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.backends.cuda.test_triton_code import LOCAL, MATRIX, TARGETS, by_turns, code  # noqa: E402
from tests.support.interpreter import interpreted  # noqa: E402
from tilewright import Device  # noqa: E402


def test_ragged_products_are_right_in_the_interpreter() -> None:
    printed = interpreted("ragged_proof")
    said = ("float64: right", "float32: right", "float16: right", "wrong offsets: named")
    said = (*said, "packed rows and gates: right")
    for line in (*said, "offsets with a step: right", "plan of depths: longest first"):
        assert line in printed


def constants(**more: Any) -> dict[str, Any]:
    sizes = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32}
    return {**sizes, "SUM": triton.language.float32, "PRECISION": "ieee", "EXACT": False, **more}


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_multiplied_by_matrix_instructions(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton.ragged import multiply_rows
    from tilewright.backends.cuda.ragged.tiles import tile_of
    from tilewright.backends.cuda.ragged.triton import options_of

    types = {
        **dict.fromkeys(("x", "w", "c", "bias"), "*bf16"),
        "table": "*i32",
        **dict.fromkeys(("n", "k"), "i32"),
        **dict.fromkeys(("x_row", "w_group", "w_row", "c_row", "bias_group"), "i32"),
    }
    ones = dict.fromkeys(("x_col", "w_col", "c_col", "bias_col"), 1)
    tile = tile_of(2, 1000, 1, LOCAL.get(target, 64) * 1024)
    sizes = {"TILE_M": tile.m, "TILE_N": tile.n, "TILE_K": tile.k, "BAND": 8, "BIAS": True}
    made = constants(**sizes, **ones)
    text = code(multiply_rows, target, types, made, kept=True, **options_of(tile))
    assert re.search(MATRIX[target], text)


@pytest.mark.parametrize("target", TARGETS)
def test_depths_are_multiplied_by_matrix_instructions(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton.ragged import multiply_depths

    types = {
        **dict.fromkeys(("x", "y", "c"), "*fp16"),
        "offsets": "*i64",
        "fault": "*i32",
        **dict.fromkeys(("depth_rows", "step", "m", "n"), "i32"),
        **dict.fromkeys(("x_col", "y_row", "c_group", "c_row"), "i32"),
    }
    ones = dict.fromkeys(("x_row", "y_col", "c_col"), 1)
    text = code(multiply_depths, target, types, constants(LEADING=0, **ones))
    assert re.search(MATRIX[target], text)


@pytest.mark.parametrize("target", TARGETS)
def test_depths_of_one_row_are_summed_without_them(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton.ragged import sum_depths

    types = {
        **dict.fromkeys(("x", "y", "c"), "*bf16"),
        "offsets": "*i32",
        "fault": "*i32",
        **dict.fromkeys(("depth_rows", "step", "n", "y_row", "c_group"), "i32"),
    }
    ones = dict.fromkeys(("x_col", "y_col", "c_col"), 1)
    sizes = {"SUM": triton.language.float32, "TILE_N": 64, "TILE_K": 64, "LEADING": 0}
    assert not re.search(MATRIX[target], code(sum_depths, target, types, {**sizes, **ones}))


ROWS = {"TILE_M": 64, "UNIT": 16, "TURNS": 4, "CLEARED": 64}
EITHER = {"OTHER_M": 160, "OTHER_UNIT": 16, "WEIGHTS": 128, "OTHER_WEIGHTS": 256}
EITHER |= {"LEAST": 152, "OWN": 12000, "UNITS": 132}
PLANS: tuple[tuple[str, dict[str, int]], ...] = (
    ("plan_rows", {**ROWS, "RESTS_LAST": 0, "LONG_FIRST": 1}),
    ("plan_rows", {**ROWS, "RESTS_LAST": 1, "LONG_FIRST": 0}),
    ("plan_either", {**ROWS, **EITHER, "RESTS_LAST": 1, "LONG_FIRST": 0}),
    ("plan_depths", {}),
    ("count_groups", {"TILE_M": 256}),
    ("place_groups", {"TILE_M": 256, "RESTS_LAST": 0}),
    ("fill_groups", {"TILE_M": 64, "RESTS_LAST": 0, "CLEARED": 64}),
    ("count_long", {}),
    ("place_long", {}),
)


@pytest.mark.parametrize(("target", "kind"), by_turns("*i32", "*i64"))
def test_planning_and_clearing_compile(target: str, kind: str) -> None:
    from tilewright.backends.cuda.kernels.triton import (
        ragged_blocks,
        ragged_either,
        ragged_plans,
    )

    types = {"offsets": kind, "c": "*bf16"}
    types |= dict.fromkeys(("table", "other", "fault", "places"), "*i32")
    types |= dict.fromkeys(("rows", "long", "fills", "groups", "step", "columns", "c_row"), "i32")
    for name, more in PLANS:
        kernel = next(
            getattr(place, name)
            for place in (ragged_plans, ragged_either, ragged_blocks)
            if hasattr(place, name)
        )
        given = {one.name: types[one.name] for one in kernel.params if one.name in types}
        constants = {"LEADING": 1, "BLOCK": 1024, **more}
        constants |= {"c_col": 1} if "c" in given else {}
        assert name in code(kernel, target, given, constants)


@pytest.mark.parametrize("target", ["sm_90", "gfx90a", "gfx1100"])
def test_tf32_is_ieee_float32_where_there_is_none(target: str) -> None:
    """What the host asks for compiles there; the compiler refuses tf32 for these GPUs of AMD."""
    import torch

    from tilewright.backends.cuda.kernels.triton.ragged import multiply_depths, multiply_rows
    from tilewright.backends.cuda.ragged.tiles import tile_of
    from tilewright.backends.cuda.ragged.triton import constants_of

    features = frozenset({"tf32"} if target == "sm_90" else ())
    device, tile = Device("cuda:0", "cuda", target, features=features), tile_of(4, 1000, 1, 2**16)
    asked = constants_of(torch.empty(0), tile, "tf32", device)
    assert asked["PRECISION"] == ("tf32" if target == "sm_90" else "ieee")
    pointers = dict.fromkeys(("x", "y", "w", "c", "bias"), "*fp32")
    numbers = dict.fromkeys(("n", "k", "m", "depth_rows", "step", "x_row", "w_group"), "i32")
    numbers |= dict.fromkeys(("w_row", "c_row", "c_group", "bias_group", "x_col", "y_row"), "i32")
    more = {"table": "*i32", "offsets": "*i32", "fault": "*i32"}
    for kernel, ones in (
        (multiply_rows, {"x_col": 1, "w_col": 1, "c_col": 1, "bias_col": 1, "BAND": 8, "BIAS": 1}),
        (multiply_depths, {"x_row": 1, "y_col": 1, "c_col": 1, "LEADING": 0}),
    ):
        every = {**pointers, **numbers, **more}
        given = {
            one.name: every[one.name]
            for one in kernel.params
            if one.name in every and one.name not in ones
        }
        assert kernel.__name__ in code(kernel, target, given, {**asked, **ones})
