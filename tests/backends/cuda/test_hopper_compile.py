"""The Hopper kernels become machine code with no GPU, wgmma and the copy engine in it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.support import machine_code
from tilewright.backends.cuda.hopper.bind import defines
from tilewright.backends.cuda.hopper.blocks import SHAPES, SPLIT, STAGED, TALL, WIDE, HopperTile
from tilewright.backends.cuda.machine import nvrtc
from tilewright.backends.cuda.ragged import hopper_cuts

needs_nvrtc = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))


def instructions(code: bytes, folder: Path) -> str:
    """Those of kernels for Hopper."""
    return machine_code.instructions([code], "sm_90a", folder)[0]


@pytest.fixture(scope="module")
def of_shapes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Instructions of every configuration, by name."""
    # Of two strips the right operand has k contiguous (engine.py), and experts' rows are turned.
    lies = {TALL: (True, False, True)}
    macros = [
        dict(defines("bfloat16", shape, lies.get(shape, (False, True, False)))) for shape in SHAPES
    ]
    codes = [machine_code.compiled("hopper_multiply", one, "sm_90a") for one in macros]
    found = machine_code.instructions(codes, "sm_90a", tmp_path_factory.mktemp("shapes"))
    return dict(zip((shape.name for shape in SHAPES), found, strict=True))


@needs_nvrtc
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_configuration_multiplies_with_wgmma(
    shape: HopperTile, of_shapes: dict[str, str]
) -> None:
    found = of_shapes[shape.name]
    widths = set(shape.padded(np.arange(1, shape.width + 1)).tolist())
    assert {width % 16 for width in widths} == {0}
    assert len(widths) == found.count("WARPGROUP.DEPBAR.LE gsb0, 0x1"), "wgmma waits for wgmma"
    for width in range(16, shape.width + 1, 16):
        # Four slices of a step, and one of the last: for each strip. No loop is there twice.
        many = 5 * shape.strips * (width in widths)
        assert found.count(f"HGMMA.64x{width}x16.F32.BF16") == many
    assert "UTMALDG.2D" in found
    assert "UTMASTG.2D" in found
    assert "STL" not in found, "registers are spilled"
    assert "UTMACCTL.IV" in found, "maps of another batch at the same place are not read"


@needs_nvrtc
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_halves_are_written_while_the_next_tile_is_multiplied_where_places_are_few(
    shape: HopperTile, of_shapes: dict[str, str]
) -> None:
    """Between what a step asks of tensor cores and the wait for the step before."""
    steps = of_shapes[shape.name].split("WARPGROUP.DEPBAR.LE gsb0, 0x1")[:-1]
    writing = ["STSM" in step[step.rindex("HGMMA") :] for step in steps]
    widths = sorted(set(shape.padded(np.arange(1, shape.width + 1)).tolist()))
    kept = 112 if shape.strips > 1 else 192
    few = 64 * shape.slots < shape.width
    assert sum(writing) == (sum(width >= kept for width in widths) if few else 0)


@needs_nvrtc
def test_an_epilogue_compiles(tmp_path: Path) -> None:
    """In a small tile, as the largest takes 15 s for it."""
    macros = defines("float16", SHAPES[-1], (True, False, True), "relu")
    found = instructions(machine_code.compiled("hopper_multiply", dict(macros), "sm_90a"), tmp_path)
    assert f"HGMMA.64x{SHAPES[-1].width}x16.F32 " in found
    assert "STSM.16.MT88" in found, "a turned tile is stored transposed"


@needs_nvrtc
@pytest.mark.parametrize("epilogue", [None, "none"])
@pytest.mark.parametrize("cut", [hopper_cuts.WHOLE, hopper_cuts.EVENLY], ids=["whole", "evenly"])
def test_ragged_rows_are_multiplied_in_registers(
    cut: hopper_cuts.Cut, epilogue: str | None, tmp_path: Path
) -> None:
    """Of each way that groups are cut, with a bias and without; a sum is one chain of all its k.

    So a row has the same bits however its group is cut.
    """
    shape = cut.shape
    macros = defines("float16", shape, (True, False, True), epilogue, ragged=1)
    found = instructions(machine_code.compiled("hopper_multiply", dict(macros), "sm_90a"), tmp_path)
    widths = set(shape.padded(np.arange(1, shape.width + 1)).tolist())
    for width in widths:
        chains = re.findall(rf"HGMMA\.64x{width}x16\.F32 (R\d+), [^,]+, (R\d+)[, ]", found)
        assert len(chains) == 5 * shape.strips
        assert len(set(chains)) == shape.strips
        assert all(before == after for after, before in chains)
    assert len(widths) == found.count("WARPGROUP.DEPBAR.LE gsb0, 0x1"), "wgmma waits for wgmma"
    assert "STSM.16.MT88" in found, "a turned tile is stored transposed"
    assert "STL" not in found, "registers are spilled"


@needs_nvrtc
def test_ragged_depths_multiply_with_wgmma_and_clear_what_is_not_theirs(tmp_path: Path) -> None:
    macros = defines("float16", STAGED, (True, True, False), ragged=2)
    found = instructions(machine_code.compiled("hopper_multiply", dict(macros), "sm_90a"), tmp_path)
    assert "HGMMA.64x256x16.F32 " in found
    assert "STS.128" in found, "zeros for the rows of another group"
    assert "STL" not in found, "registers are spilled"


@needs_nvrtc
@pytest.mark.parametrize("kind", [0, 1])
def test_rows_by_index_are_gathered_and_gated_in_registers(kind: int, tmp_path: Path) -> None:
    macros = dict(defines("bfloat16", WIDE, (False, True, False), ragged=1, chosen=1))
    macros |= {"FORM": 2, "KIND": kind, "KEEP": 1}
    found = instructions(machine_code.compiled("hopper_chosen", macros, "sm_90a"), tmp_path)
    assert "HGMMA.64x256x16.F32.BF16" in found
    assert "LDGSTS.E.BYPASS" in found
    assert "MUFU.EX2" in found, "exponentials are the hardware's"
    assert "UTMALDG.2D" in found, "the weights come by the copy engine"
    assert "STL" not in found, "registers are spilled"


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("chosen", [1, 2])
def test_depths_by_index_are_gathered(chosen: int, tmp_path: Path) -> None:
    macros = defines("float16", STAGED, (True, True, False), ragged=2, chosen=chosen)
    found = instructions(machine_code.compiled("hopper_multiply", dict(macros), "sm_90a"), tmp_path)
    assert "HGMMA.64x256x16.F32 " in found
    assert "LDGSTS.E.BYPASS" in found
    assert "STL" not in found, "registers are spilled"


@needs_nvrtc
@pytest.mark.parametrize("epilogue", [None, "gelu"])
def test_split_products_add_to_fp32_while_wgmma_is_at_work(
    epilogue: str | None, tmp_path: Path
) -> None:
    macros = defines("float32", SPLIT, (False, True, False), epilogue=epilogue)
    found = instructions(machine_code.compiled("hopper_split", dict(macros), "sm_90a"), tmp_path)
    widths = range(32, SPLIT.width + 1, 32)
    for width in widths:
        # Three products of two slices, the copy that ends a loop included.
        assert found.count(f"HGMMA.64x{width}x16.F32 ") % 6 == 0
        assert f"HGMMA.64x{width}x16.F32 " in found
    assert "UTMACCTL.IV" in found, "maps of another batch at the same place are not read"
    waits = [line for line in found.splitlines() if "WARPGROUP.DEPBAR" in line]
    assert sum("gsb0, 0x1" in line for line in waits) * 2 == len(waits), "wgmma waits for wgmma"
    chains = sum(width // 8 for width in widths)  # of W / 2 sums, four a store
    assert found.count("STL") == chains, "registers are spilled, beside sums of the chains before"


@needs_nvrtc
def test_what_does_not_split_is_multiplied_without_tensor_cores(tmp_path: Path) -> None:
    macros = defines("float32", SPLIT, (False, True, False), epilogue="gelu")
    found = instructions(machine_code.compiled("hopper_exact", dict(macros), "sm_90a"), tmp_path)
    assert "HGMMA" not in found
    assert found.count("FFMA") > 4 * SPLIT.width / 2
    assert "STL" not in found, "registers are spilled"


@needs_nvrtc
def test_splitting_rounds_two_numbers_at_once_and_counts_in_one_instruction(tmp_path: Path) -> None:
    found = instructions(machine_code.compiled("hopper_pack", {"PLANES": 2}, "sm_90a"), tmp_path)
    assert "F2FP.F16.F32.PACK_AB" in found
    assert "REDUX" in found
    assert "ST.E.128" in found


@needs_nvrtc
def test_packing_moves_sixteen_bytes_at_once(tmp_path: Path) -> None:
    found = instructions(machine_code.compiled("hopper_pack", {}, "sm_90a"), tmp_path)
    assert "LDG.E.128" in found
    assert "ST.E.128" in found
