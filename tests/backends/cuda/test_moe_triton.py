"""Layers of experts: right in Triton's interpreter, and compiled for every target."""

from __future__ import annotations

import re
from typing import Any

import pytest

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.backends.cuda.test_triton_code import MATRIX, TARGETS, code  # noqa: E402
from tests.support.interpreter import interpreted  # noqa: E402


def test_layers_and_routes_are_right_in_the_interpreter() -> None:
    printed = interpreted("moe_proof")
    assert "routes: right" in printed
    assert "layers: right" in printed


TILE = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32, "PRECISION": "ieee", "EXACT": False}


def compiled(kernel: Any, target: str, types: dict[str, str], constants: dict[str, Any]) -> str:
    """Machine code where what is neither a type nor constant is an integer."""
    given = {
        one.name: types.get(one.name, "i32")
        for one in kernel.params
        if one.name not in constants and not one.name.isupper()
    }
    return code(kernel, target, given, constants)


FEW = ("sm_90", "gfx942")


@pytest.mark.parametrize("target", TARGETS)
def test_rows_by_index_are_multiplied_by_matrix_instructions(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton.moe import multiply_chosen

    types = {**dict.fromkeys(("x", "w", "h", "c"), "*bf16"), "index": "*i32", "table": "*i32"}
    more = {"x_col": 1, "w_col": 1, "FORM": 2, "KIND": 0, "KEEP": True, "BAND": 8}
    constants = {**TILE, **more, "SUM": triton.language.float32}
    assert re.search(MATRIX[target], compiled(multiply_chosen, target, types, constants))


@pytest.mark.parametrize("side", [1, 2])
@pytest.mark.parametrize("target", FEW)
def test_gradients_of_matrices_are_multiplied_by_matrix_instructions(
    target: str, side: int
) -> None:
    from tilewright.backends.cuda.kernels.triton.moe_depths import multiply_chosen_depths

    types = {**dict.fromkeys(("x", "y", "c"), "*fp16")}
    types |= dict.fromkeys(("index", "offsets", "fault"), "*i32")
    constants = {**TILE, "x_col": 1, "y_col": 1, "SIDE": side, "SUM": triton.language.float32}
    assert re.search(MATRIX[target], compiled(multiply_chosen_depths, target, types, constants))


@pytest.mark.parametrize("kind", ["bf16", "fp64"])
@pytest.mark.parametrize("target", FEW)
def test_what_lies_between_compiles(target: str, kind: str) -> None:
    from tilewright.backends.cuda.kernels.triton import moe as kernels

    types = dict.fromkeys(("h", "c", "of_h", "y", "out"), f"*{kind}")
    types |= dict.fromkeys(("weights", "of_weights"), "*fp32" if kind == "bf16" else "*fp64")
    types |= dict.fromkeys(("last", "order", "places"), "*i32")
    total = {"SUM": triton.language.float32 if kind == "bf16" else triton.language.float64}
    for number in range(4):
        between = {**total, "FORM": 2 - number % 2, "KIND": number, "HIGH": 8, "WIDE": 64}
        assert "differentiate" in compiled(kernels.differentiate, target, types, between)
    whole = {**total, "TOP": 3, "WEIGHTED": True, "WIDE": 64}
    assert "combine" in compiled(kernels.combine, target, types, whole)


@pytest.mark.parametrize("kind", ["*i32", "*i64"])
@pytest.mark.parametrize("target", FEW)
def test_routing_compiles(target: str, kind: str) -> None:
    from tilewright.backends.cuda.kernels.triton import moe_routes as kernels

    names = ("counts", "totals", "fault", "offsets", "tokens", "order", "places")
    types = {"experts": kind, **dict.fromkeys(names, "*i32")}
    constants: dict[str, dict[str, Any]] = {
        "count_slots": {"BLOCK": 128, "GROUPS": 32},
        "add_counts": {"BLOCKS": 256, "GROUPS": 4},
        "end_groups": {"GROUPS": 1024},
        "place_slots": {"BLOCK": 128, "TOGETHER": 32},
    }
    for name, sizes in constants.items():
        assert name in compiled(getattr(kernels, name), target, types, sizes)
