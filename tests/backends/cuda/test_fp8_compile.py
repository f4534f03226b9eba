"""Kernels of 8-bit floats, with no GPU: machine code read, and run in Triton's interpreter."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from tests.backends.cuda.test_hopper_compile import needs_nvrtc
from tests.support import machine_code

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.backends.cuda.test_triton_code import MATRIX, TARGETS, by_turns, code  # noqa: E402
from tests.support.interpreter import interpreted  # noqa: E402
from tests.support.spills import stacks  # noqa: E402

REGISTERS = 65536 // (3 * 128) // 8 * 8  # a thread's, of three warpgroups, as a launch has them


def of_floats(scales: int, floats: int) -> dict[str, int]:
    macros = {"SCALES": scales, "DEPTHS": int(scales == 2), "OUT_FLOAT": floats, "OUT_INT": 0}
    return macros | {"A_E5M2": floats, "B_E5M2": 0, "SKEW": int(scales > 0), "INT8": 0}


def of_bytes(wide: int, whole: int, skew: int) -> dict[str, int]:
    macros = {"SCALES": 0, "DEPTHS": 0, "INT8": 1, "OUT_FLOAT": wide, "OUT_INT": whole}
    return macros | {"A_E5M2": 0, "B_E5M2": 0, "SKEW": skew}


FLOATS = tuple(itertools.product((0, 1, 2), (0, 1)))  # scales, results of fp32
BYTES = ((0, 0, 0), (1, 0, 1), (1, 1, 2))  # wide results, whole ones, skew
Compiled = dict[tuple[int, ...], tuple[bytes, str]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Both kinds' machine code and instructions, by FLOATS and BYTES."""
    macros = [*(of_floats(*one) for one in FLOATS), *(of_bytes(*one) for one in BYTES)]
    codes = [machine_code.compiled("hopper_fp8", one, "sm_90a") for one in macros]
    found = machine_code.instructions(codes, "sm_90a", tmp_path_factory.mktemp("fp8"))
    return dict(zip((*FLOATS, *BYTES), zip(codes, found, strict=True), strict=True))


@needs_nvrtc
@pytest.mark.parametrize(("scales", "floats"), FLOATS)
def test_hopper_multiplies_8_bits_and_its_loops_spill_nothing(
    scales: int, floats: int, compiled: Compiled
) -> None:
    _, found = compiled[scales, floats]
    left = "E5M2" if floats else "E4M3"
    # Four of 32 k a block of 64 rows: one block of a tile, two of another, half of a third.
    assert found.count(f"QGMMA.64x128x32.F32.{left}.E4M3") == 12
    assert found.count(f"QGMMA.64x64x32.F32.{left}.E4M3") == 4
    assert found.count("WARPGROUP.DEPBAR") == 4, "wgmma waits for wgmma"
    assert "UTMALDG.2D" in found
    assert ("UBLKCP" in found) == (scales == 2), "scales of columns come by the copy engine"
    # With scales of rows and fp32 results four registers wait out a tile's end, outside its loop.
    assert "STL" not in found[: found.rindex("QGMMA.64x128")], "registers are spilled"
    assert found.count("STL") <= (4 if floats and not scales else 0), "registers are spilled"
    up, down = (
        int(re.search(rf"USETMAXREG\.{what}\D*CTAPOOL (?:UP0, )?(0x\w+)", found)[1], 16)  # type: ignore[index]
        for what in ("TRY_ALLOC", "DEALLOC")
    )
    assert 2 * up + down <= 3 * REGISTERS, "a block has no more than it was launched with"


@needs_nvrtc
@pytest.mark.parametrize(("wide", "whole", "skew"), BYTES)
def test_hopper_sums_int8_in_registers_and_spills_nothing(
    wide: int, whole: int, skew: int, compiled: Compiled
) -> None:
    """Bits of int32 are stored as those of float32 are."""
    code, found = compiled[wide, whole, skew]
    assert found.count("IGMMA.64x128x32.S8.S8") == 12
    assert found.count("IGMMA.64x64x32.S8.S8") == 4
    assert found.count("WARPGROUP.DEPBAR") == 6, "wgmma waits for wgmma"
    assert not any(stacks(code)), "registers are spilled"
    assert ("I2FP" in found or found.count("I2F") > 100) == (not whole)


def test_8_bit_products_are_right_in_the_interpreter() -> None:
    printed = interpreted("fp8_proof")
    said = ("rows: right", "depths: right", "quantised: the same bits", "wrong offsets: named")
    said += ("int8: equal",)
    for line in said:
        assert line in printed


NUMBERS = ("n", "k", "m", "depth_rows", "step", "a_row", "a_col", "b_group", "b_row", "b_col")
NUMBERS += ("a_scale_row", "a_scale_k", "b_scale_group", "b_scale_k", "b_scale_col", "c_group")
NUMBERS += ("c_row", "c_col")


NATIVE = ("sm_90", "sm_100", "sm_103", "sm_120")
BY_TARGET = [(*one, 0) for one in by_turns("multiply_fp8_rows", "multiply_fp8_depths")]
BY_TARGET += [
    *(("sm_90", kernel, 1) for kernel in ("multiply_fp8_rows", "multiply_fp8_depths")),
    *(("sm_100", "multiply_fp8_rows", 1), ("sm_103", "multiply_fp8_depths", 1)),
    ("sm_120", "multiply_fp8_rows", 1),
]


@pytest.mark.parametrize(("target", "name", "native"), BY_TARGET)
def test_every_target_multiplies_by_matrix_instructions(
    target: str, name: str, native: int
) -> None:
    """`native`: its tensor cores take these two types."""
    from tilewright.backends.cuda.kernels.triton import fp8

    types = {
        **dict.fromkeys(("a", "b"), "*u8"),
        **dict.fromkeys(("of_a", "of_b"), "*fp32"),
        "c": "*bf16",
        **dict.fromkeys(("table", "offsets", "fault"), "*i32"),
        **dict.fromkeys(NUMBERS, "i32"),
    }
    ones = dict.fromkeys(("a_col", "b_row", "c_col"), 1)
    tile = {"TILE_M": 64, "TILE_N": 128, "TILE_K": 64, "SHARED": 128, "A_E5M2": 0, "B_E5M2": 0}
    more = {"BAND": 8, "ROWS": 0, "INT8": 0} if "rows" in name else {"LEADING": 0}
    kernel = getattr(fp8, name)
    names = {one.name for one in kernel.params}
    given = {name: kind for name, kind in types.items() if name in names and name not in ones}
    text = code(kernel, target, given, {**tile, **ones, **more, "NATIVE": native})
    assert re.search(MATRIX[target], text)
    assert not native or re.search("e4m3|f8f6f4", text)


@pytest.mark.parametrize("target", [one[0] for one in by_turns("multiply_fp8_rows")])
def test_every_target_multiplies_int8_by_matrix_instructions(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton import fp8

    types = {
        **dict.fromkeys(("a", "b"), "*u8"),
        **dict.fromkeys(("of_a", "of_b"), "*fp32"),
        **dict.fromkeys(("c", "table"), "*i32"),
        **dict.fromkeys(NUMBERS, "i32"),
    }
    ones = dict.fromkeys(("a_col", "b_row", "c_col"), 1)
    tile = {"TILE_M": 64, "TILE_N": 128, "TILE_K": 64, "SHARED": 1, "A_E5M2": 0, "B_E5M2": 0}
    more = {"BAND": 8, "ROWS": 1, "INT8": 1, "NATIVE": 0}
    names = {one.name for one in fp8.multiply_fp8_rows.params}
    given = {name: kind for name, kind in types.items() if name in names and name not in ones}
    text = code(fp8.multiply_fp8_rows, target, given, {**tile, **ones, **more})
    # On Blackwell's Triton makes tcgen05 of int8 or not, by its version; else what came before.
    before = r"|mma\.sync\S+s32\.s8\.s8" if target in ("sm_100", "sm_103") else ""
    assert re.search(MATRIX[target] + before, text)
    assert re.search("s8|i8|iu8", text)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_quantises(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton import fp8_quantise as kernels

    types = {
        **dict.fromkeys(("x",), "*bf16"),
        "values": "*u8",
        "scales": "*fp32",
        **dict.fromkeys(("ends", "padded"), "*i64"),
        "fault": "*i32",
        **dict.fromkeys(("rows", "k", "written", "blocks", "groups", "step"), "i32"),
        **dict.fromkeys(("x_batch", "x_row", "v_batch", "v_row"), "i32"),
        **dict.fromkeys(("s_batch", "s_row", "s_block"), "i32"),
    }
    native = int(target in NATIVE)
    common = {"E5M2": 0, "NATIVE": native, "x_col": 1}
    for name, more in (
        ("quantise_rows", {**common, "INT8": 0, "TILE_R": 4, "TILE_K": 1024}),
        ("quantise_blocks", {**common, "SCALE": 1, "PADDED": 1, "TILE_R": 32, "WIDE": 0}),
        ("pad_groups", {"BLOCK": 1024}),
    ):
        kernel = getattr(kernels, name)
        names = {one.name for one in kernel.params}
        given = {one: kind for one, kind in types.items() if one in names}
        text = code(kernel, target, given, more)
        assert name in text
        assert not native or name == "pad_groups" or "e4m3x2" in text
