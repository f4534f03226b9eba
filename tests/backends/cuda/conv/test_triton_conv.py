"""Convolutions in Triton: right in its interpreter, compiled for every target with no GPU."""

from __future__ import annotations

import re

import pytest

from tests.backends.cuda.test_triton_code import MATRIX, TARGETS, code
from tests.backends.cuda.test_triton_interpreter import interpreted

NAMES = ("activations", "channels_first", "channels_last", "chains", "shared")


@pytest.fixture(scope="module")
def report() -> str:
    return interpreted("conv_proof")


@pytest.mark.parametrize("name", NAMES)
def test_every_case_is_right_in_the_interpreter(name: str, report: str) -> None:
    assert re.search(rf"{name}: \d+ right", report)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("splits", [1, 4])
def test_halves_are_multiplied_by_matrix_instructions(target: str, splits: int) -> None:
    from tilewright.backends.cuda.kernels.triton.conv import convolve

    tensors = ("x", "out", "weights", "added")
    types = {
        **dict.fromkeys(tensors, "*fp16"),
        **dict.fromkeys(("bias", "slopes", "parts"), "*fp32"),
    }
    types |= dict.fromkeys(("low", "high"), "fp32")
    sizes = ("pixels", "columns", "rows", "height", "width", "channels", "outputs", "share")
    types |= dict.fromkeys(sizes, "i32")
    types |= {f"{of}_{way}": "i32" for of in ("x", "out", "add") for way in "nchw"}
    constants = {
        **{"CHANNELS": 0, "WHOLE": True, "SPLITS": splits},
        **dict.fromkeys(("GROUPS", "STRIDE_Y", "STRIDE_X", "DILATION_Y", "DILATION_X"), 1),
        **{"KW": 3, "TAPS": 9, "TOP": 1, "LEFT": 1, "SHUFFLE": 1, "HOW": "relu"},
        **{"ADDS": False, "BIASED": True, "DEPTHWISE": False},
        **{"TILE_M": 128, "TILE_N": 64, "TILE_K": 32},
    }
    text = code(convolve, target, types, constants, num_warps=4, num_stages=3)
    assert re.search(MATRIX[target], text)
