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
    for line in ("float64: right", "float32: right", "float16: right", "wrong offsets: named"):
        assert line in ran.stdout


def constants(**more: Any) -> dict[str, Any]:
    sizes = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32}
    return {**sizes, "SUM": triton.language.float32, "PRECISION": "ieee", **more}


@pytest.mark.parametrize("target", TARGETS)
def test_rows_are_multiplied_by_matrix_instructions(target: str) -> None:
    from tilewright.backends.cuda.kernels.ragged import multiply_rows

    types = {
        **dict.fromkeys(("x", "w", "c", "bias"), "*bf16"),
        **dict.fromkeys(("tiles", "total"), "*i32"),
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
def test_planning_and_clearing_compile(target: str) -> None:
    from tilewright.backends.cuda.kernels.ragged import clear_rows, plan_rows

    types = {"offsets": "*i32", "tiles": "*i32", "total": "*i32", "fault": "*i32"}
    sizes = {"groups": "i32", "rows": "i32"}
    table = {"LEADING": 1, "TILE_M": 64, "BLOCK": 256}
    assert "plan_rows" in code(plan_rows, target, types | sizes, table)
    types = {"offsets": "*i64", "c": "*fp32", **sizes}
    types |= dict.fromkeys(("columns", "c_row"), "i32")
    clear = {"LEADING": 0, "TILE_M": 64, "TILE_N": 64, "c_col": 1}
    assert "clear_rows" in code(clear_rows, target, types, clear)
