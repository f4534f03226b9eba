"""Sizes on the device: right in Triton's interpreter, and compiled for every target."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from test_triton_code import MATRIX, TARGETS, code  # noqa: E402

TESTS = Path(__file__).parent


def test_ragged_products_are_right_in_the_interpreter() -> None:
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}",
    }
    ran = subprocess.run(
        [sys.executable, str(TESTS / "ragged_proof.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = ("float64: right", "float32: right", "float16: right", "wrong offsets: named")
    for line in (*said, "plan of depths: longest first"):
        assert line in ran.stdout


def constants(**more: Any) -> dict[str, Any]:
    sizes = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32}
    return {**sizes, "SUM": triton.language.float32, "PRECISION": "ieee", **more}


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_multiplied_by_matrix_instructions(target: str) -> None:
    from tilewright.backends.cuda.kernels.ragged import multiply_rows

    types = {
        **dict.fromkeys(("x", "w", "c", "bias"), "*bf16"),
        "table": "*i32",
        **dict.fromkeys(("n", "k"), "i32"),
        **dict.fromkeys(("x_row", "w_group", "w_row", "c_row", "bias_group"), "i32"),
    }
    ones = dict.fromkeys(("x_col", "w_col", "c_col", "bias_col"), 1)
    text = code(multiply_rows, target, types, constants(BAND=8, BIAS=True, **ones))
    assert re.search(MATRIX[target], text)


@pytest.mark.parametrize("target", TARGETS)
def test_depths_are_multiplied_by_matrix_instructions(target: str) -> None:
    from tilewright.backends.cuda.kernels.ragged import multiply_depths

    types = {
        **dict.fromkeys(("x", "y", "c"), "*fp16"),
        "offsets": "*i64",
        "fault": "*i32",
        **dict.fromkeys(("depth_rows", "m", "n"), "i32"),
        **dict.fromkeys(("x_col", "y_row", "c_group", "c_row"), "i32"),
    }
    ones = dict.fromkeys(("x_row", "y_col", "c_col"), 1)
    text = code(multiply_depths, target, types, constants(LEADING=0, **ones))
    assert re.search(MATRIX[target], text)


@pytest.mark.parametrize("target", TARGETS)
def test_depths_of_one_row_are_summed_without_them(target: str) -> None:
    from tilewright.backends.cuda.kernels.ragged import sum_depths

    types = {
        **dict.fromkeys(("x", "y", "c"), "*bf16"),
        "offsets": "*i32",
        "fault": "*i32",
        **dict.fromkeys(("depth_rows", "n", "y_row", "c_group"), "i32"),
    }
    ones = dict.fromkeys(("x_col", "y_col", "c_col"), 1)
    sizes = {"SUM": triton.language.float32, "TILE_N": 64, "TILE_K": 64, "LEADING": 0}
    assert not re.search(MATRIX[target], code(sum_depths, target, types, {**sizes, **ones}))


@pytest.mark.parametrize("target", TARGETS)
def test_planning_and_clearing_compile(target: str) -> None:
    from tilewright.backends.cuda.kernels.ragged import plan_depths, plan_rows

    types = {"offsets": "*i32", "table": "*i32", "fault": "*i32"}
    types |= dict.fromkeys(("groups", "rows"), "i32")
    longs = types | {"offsets": "*i64"}
    assert "plan_depths" in code(plan_depths, target, longs, {"LEADING": 0, "BLOCK": 256})
    types |= {"c": "*bf16", "columns": "i32", "c_row": "i32"}
    table = {"LEADING": 1, "TILE_M": 64, "RESTS_LAST": 1, "BLOCK": 256, "CLEARED": 64, "c_col": 1}
    assert "plan_rows" in code(plan_rows, target, types, table)
