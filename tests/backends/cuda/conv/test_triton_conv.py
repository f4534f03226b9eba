"""Convolutions in Triton: right in its interpreter, compiled for every target with no GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.backends.cuda.test_triton_code import MATRIX, TARGETS, by_turns, code
from tests.support.interpreter import interpreted
from tests.support.triton_proof import CUDA_H200
from tilewright.backends.cuda.conv.triton import TritonConv
from tilewright.engines.conv import Conv, ConvWork

NAMES = ("activations", "channels_first", "channels_last", "chains", "shared", "wholes")

SIZES = dict.fromkeys(
    ("pixels", "columns", "rows", "height", "width", "channels", "outputs", "share"), "i32"
)
SHAPE = {
    **dict.fromkeys(("GROUPS", "STRIDE_Y", "STRIDE_X", "DILATION_Y", "DILATION_X"), 1),
    **{"CHANNELS": 0, "WHOLE": True, "KW": 3, "TAPS": 9, "TOP": 1, "LEFT": 1, "SHUFFLE": 1},
    **{"DEPTHWISE": False, "TILE_M": 128, "TILE_N": 64},
}
# Of eight bits; Blackwell's tensor cores multiply them by the instruction of Ampere's.
WHOLE = {
    **{"sm_80": r"mma\.sync.*s8", "sm_86": r"mma\.sync.*s8", "sm_90": r"wgmma.*s8"},
    **dict.fromkeys(("sm_100", "sm_103", "sm_120"), r"mma.*(s8|i8)"),
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), r"v_mfma_i32"),
    "gfx1100": r"v_wmma_i32",
}


@pytest.fixture(scope="module")
def report() -> str:
    return interpreted("conv_proof")


@pytest.mark.parametrize("name", NAMES)
def test_every_case_is_right_in_the_interpreter(name: str, report: str) -> None:
    assert re.search(rf"{name}: \d+ right", report)


@pytest.mark.parametrize(("target", "splits"), by_turns(1, 4))
def test_halves_are_multiplied_by_matrix_instructions(target: str, splits: int) -> None:
    from tilewright.backends.cuda.kernels.triton.conv import convolve

    tensors = ("x", "out", "weights", "added")
    types = {
        **dict.fromkeys(tensors, "*fp16"),
        **dict.fromkeys(("bias", "slopes", "parts"), "*fp32"),
    }
    types |= dict.fromkeys(("low", "high"), "fp32")
    types |= SIZES
    types |= {f"{of}_{way}": "i32" for of in ("x", "out", "add") for way in "nchw"}
    constants = {**SHAPE, "SPLITS": splits, "HOW": "relu", "ADDS": False, "BIASED": True}
    constants |= {"TILE_K": 32, "PRECISION": "ieee"}
    text = code(convolve, target, types, constants, num_warps=4, num_stages=3)
    assert re.search(MATRIX[target], text)


@pytest.mark.parametrize("target", TARGETS)
def test_a_mean_of_256_pixels_is_a_short_program(target: str) -> None:
    """With every tap written out it had 513 loads, and was compiled for minutes."""
    from tilewright.backends.cuda.kernels.triton.conv import convolve

    mean = Conv(np.full((96, 1, 16, 16), 1 / 256, np.float32), groups=96)
    work = ConvWork((mean,), 1, 16, 16, "float32")
    (tile,) = TritonConv().propose(work, CUDA_H200).decisions.tiles
    types = dict.fromkeys(("x", "out", "weights", "added", "bias", "slopes", "parts"), "*fp32")
    types |= {**dict.fromkeys(("low", "high"), "fp32"), **SIZES}
    types |= {f"{of}_{way}": "i32" for of in ("x", "out", "add") for way in "nchw"}
    constants = {**SHAPE, "SPLITS": 1, "HOW": "none", "ADDS": False, "BIASED": False}
    constants |= {"CHANNELS": 1, "WHOLE": False, "KW": 16, "TAPS": 256, "TOP": 0, "LEFT": 0}
    constants |= {"DEPTHWISE": True, "PRECISION": "ieee"}
    constants |= {"TILE_M": tile.m, "TILE_N": tile.n, "TILE_K": tile.k}
    text = code(convolve, target, types, constants, num_warps=tile.warps, num_stages=tile.stages)
    assert len(re.findall(r"ld\.global|(?:global|buffer)_load", text)) <= 160


@pytest.mark.parametrize(("target", "splits"), by_turns(4, 1))
def test_whole_numbers_are_multiplied_by_matrix_instructions(target: str, splits: int) -> None:
    from tilewright.backends.cuda.kernels.triton.conv_int8 import convolve_int8

    types = {"x": "*u8", "out": "*u8", "weights": "*i8", "bias": "*i32", "scale": "*fp32"}
    types |= {"parts": "*i32", **dict.fromkeys(("low", "high", "step", "shift"), "fp32")}
    types |= {"zero": "i32", "step_taken": "fp32", **SIZES}
    types |= {f"{of}_{way}": "i32" for of in ("x", "out") for way in "nchw"}
    constants = {**SHAPE, "SPLITS": splits, "LOWEST": 0, "HIGHEST": 255, "TILE_K": 64}
    text = code(convolve_int8, target, types, constants, num_warps=4, num_stages=3)
    assert re.search(WHOLE[target], text)
