"""The Hopper kernels become machine code with no GPU, wgmma and the copy engine in it."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tilewright.backends.cuda import nvrtc
from tilewright.backends.cuda.hopper.bind import defines
from tilewright.backends.cuda.hopper.shapes import SHAPES, SPLIT, Shape

needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not True, reason=str(nvrtc.available()))


def instructions(code: bytes, folder: Path) -> str:
    """Disassembled by the tool that Triton's package carries."""
    triton = find_spec("triton")
    if triton is None or triton.origin is None:
        pytest.skip("no Triton, whose package carries cuobjdump")
    tool = Path(triton.origin).parent / "backends/nvidia/bin/cuobjdump"
    file = folder / "kernel.cubin"
    file.write_bytes(code)
    return subprocess.run([tool, "-sass", file], capture_output=True, text=True, check=True).stdout


@needs_nvrtc
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_configuration_multiplies_with_wgmma(shape: Shape, tmp_path: Path) -> None:
    macros = defines(
        "bfloat16", shape, left_mn=False, right_mn=True, transposed=False, epilogue=None
    )
    found = instructions(nvrtc.compiled("hopper_multiply", dict(macros), "sm_90a"), tmp_path)
    for width in range(32, shape.width + 1, 32):
        assert f"HGMMA.64x{width}x16.F32.BF16" in found
    assert "UTMALDG.2D" in found
    assert "UTMASTG.2D" in found
    assert "STL" not in found, "registers are spilled"


@needs_nvrtc
@pytest.mark.parametrize("ragged", [False, True])
def test_the_other_variants_compile(ragged: bool, tmp_path: Path) -> None:
    macros = defines(
        "float16",
        SHAPES[0],
        left_mn=True,
        right_mn=False,
        transposed=True,
        epilogue=None if ragged else "relu",
        ragged=ragged,
    )
    found = instructions(nvrtc.compiled("hopper_multiply", dict(macros), "sm_90a"), tmp_path)
    assert "HGMMA.64x256x16.F32 " in found
    assert "STSM.16.MT88" in found, "a turned tile is stored transposed"


@needs_nvrtc
def test_split_products_compile_without_spills(tmp_path: Path) -> None:
    macros = defines(
        "float32", SPLIT, left_mn=False, right_mn=True, transposed=False, epilogue=None
    )
    found = instructions(nvrtc.compiled("hopper_split", dict(macros), "sm_90a"), tmp_path)
    assert found.count("HGMMA.64x128x16.F32.BF16") >= 24  # six products of four slices
    assert "STL" not in found, "registers are spilled"
    packed = instructions(nvrtc.compiled("hopper_pack", {"PLANES": 3}, "sm_90a"), tmp_path)
    assert "ST.E.128" in packed


@needs_nvrtc
def test_packing_moves_sixteen_bytes_at_once(tmp_path: Path) -> None:
    found = instructions(nvrtc.compiled("hopper_pack", {}, "sm_90a"), tmp_path)
    assert "LDG.E.128" in found
    assert "ST.E.128" in found
