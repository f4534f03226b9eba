"""Every Triton kernel compiles, with no GPU, for every target; its machine code multiplies there.

What is looked for is the matrix instruction of the target: mma on Ampere, wgmma on Hopper, tcgen05
on Blackwell's large chips (its small ones, sm_120, have mma), mfma on CDNA, wmma on RDNA; for
float32 fused multiply-adds where a target has no exact matrix instruction. Whatever is compiled
must keep its registers. All but sm_90 were compiled for and never run: no speed is claimed.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.made_up import H200
from tests.support.spills import spilled
from tilewright.backends.cuda.tile_seconds import TileShape, shapes_of
from tilewright.facts.dtypes import PARTS, sums_of

triton: Any = pytest.importorskip("triton")
pytest.importorskip("torch")

CUDA = {"sm_80": 80, "sm_86": 86, "sm_90": 90, "sm_100": 100, "sm_103": 103, "sm_120": 120}
HIP = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32}
TARGETS = (*CUDA, *HIP)
LONG_SUMS = ("sm_80", "sm_90", "gfx942")
# Kilobytes of local memory that a work-group may have on the smallest chip of a family.
LOCAL = {"sm_80": 163, "sm_86": 99, "sm_90": 227, "sm_100": 227, "sm_103": 227, "sm_120": 99}
LOCAL["gfx950"] = 160
# Bytes that a thread may put away around its loop in the largest tiles; RDNA has few registers.
SPILLED = {"sm_80": 24, "sm_86": 24, "sm_100": 8, "sm_103": 8, "sm_120": 8, "gfx1100": 768}
CDNA = ("gfx90a", "gfx942", "gfx950")
FMA = r"fma\.rn\.f32|v_(pk_)?fma|v_fmac_f32|v_dual_fmac"
FMA64 = r"fma\.rn\.f64|v_fma_f64|v_fmac_f64"
MATRIX = {
    "sm_80": r"mma\.sync",
    "sm_86": r"mma\.sync",
    "sm_90": r"wgmma\.mma_async",
    "sm_100": r"tcgen05\.mma",
    "sm_103": r"tcgen05\.mma",
    "sm_120": r"mma\.sync",
    "gfx90a": r"v_mfma",
    "gfx942": r"v_mfma",
    "gfx950": r"v_mfma",
    "gfx1100": r"v_wmma",
}
DOUBLES = {**dict.fromkeys(("sm_80", "sm_90"), r"mma\.sync.*f64"), "gfx90a": "v_mfma_f64"}


def by_turns(*values: Any) -> list[tuple[str, Any]]:
    """Every target with one of these, neighbours with different ones, and sm_90 with each.

    Neighbours have much the same instructions, so what each value makes of them is seen; to compile
    all of it for all of them would take minutes.
    """
    turns = [(name, values[place % len(values)]) for place, name in enumerate(TARGETS)]
    return turns + [("sm_90", one) for one in values if ("sm_90", one) not in turns]


def target_of(name: str) -> Any:
    from triton.backends.compiler import GPUTarget

    if name in CUDA:
        return GPUTarget("cuda", CUDA[name], 32)
    return GPUTarget("hip", name, HIP[name])


def code(
    kernel: Any,
    target: str,
    types: dict[str, str],
    constants: dict[str, Any],
    *,
    kept: bool = False,
    **more: int,
) -> str:
    """The kernel's PTX or AMD assembly, all compile-time promises given.

    `kept`: its numbers are multiples of 16, as those of aligned matrices are, and it must keep its
    registers.
    """
    from triton.compiler import ASTSource

    names = [parameter.name for parameter in kernel.params]
    signature = {name: types.get(name, "constexpr") for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    aligned = {
        (names.index(name),): [["tt.divisibility", 16]]
        for name, kind in types.items()
        if kept or kind.startswith("*")
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=values, attrs=aligned)
    options = {"enable_fp_fusion": True, **more}
    compiled = triton.compile(source, target=target_of(target), options=options)
    if kept:
        assert spilled(compiled.asm) <= SPILLED.get(target, 0), f"{options} spill on {target}"
    text: str = compiled.asm.get("ptx") or compiled.asm["amdgcn"]
    return text


def multiply(
    target: str,
    dtype: str,
    shape: TileShape,
    precision: str = "ieee",
    wide: int = 1,
    **promises: Any,
) -> str:
    from tilewright.backends.cuda.kernels.triton.grouped import grouped_tiles

    tl: Any = triton.language
    constants = {
        "DTYPE": getattr(tl, dtype),
        "SUM": getattr(tl, sums_of(dtype)),
        "TILE_M": shape.m,
        "TILE_N": shape.n,
        "TILE_K": shape.k,
        "A_ALONG": 0,
        "B_ALONG": 1,
        "C_ALONG": 0,
        "WIDE": wide,
        "NEAR": True,
        "ALPHA": False,
        "BETA": False,
        "BIAS": False,
        "PARTS": False,
        "PRECISION": precision,
        "ACTIVATION": "none",
        **promises,
    }
    types = {"problems": "*i64", "tiles": "*i32", "last": "i32"}
    options = {"num_warps": shape.warps, "num_stages": shape.stages}
    kept = wide > 1 or dtype in ("float32", "float64")
    return code(grouped_tiles, target, types, constants, kept=kept, **options)


def shapes(
    target: str, dtype: str, precision: str = "ieee", *, wide: bool = False
) -> tuple[TileShape, ...]:
    device = replace(H200, local_memory=LOCAL.get(target, 64) * 1024)
    return shapes_of(dtype, device, precision, wide=wide)


@pytest.mark.parametrize(("target", "dtype"), by_turns("float16", "bfloat16"))
def test_halves_are_multiplied_by_matrix_instructions(target: str, dtype: str) -> None:
    """The largest tiles, and those of 64 rows, the fewest that every matrix instruction takes."""
    for wide, largest in ((8, dtype == "float16"), (1, dtype == "bfloat16")):
        found = shapes(target, dtype, wide=wide > 1)
        shape = found[0] if largest else [one for one in found if one.m == 64][-1]
        text = multiply(target, dtype, shape, wide=wide)
        assert re.search(MATRIX[target], text), f"{shape}: no {MATRIX[target]}"


@pytest.mark.parametrize("target", [*CUDA, "gfx942"])
def test_tf32_is_multiplied_by_matrix_instructions(target: str) -> None:
    text = multiply(target, "float32", shapes(target, "float32", "tf32")[0], "tf32")
    assert re.search(MATRIX[target], text)


@pytest.mark.parametrize("target", TARGETS)
def test_singles_are_multiplied_exactly(target: str) -> None:
    """CDNA has an exact float32 mfma; everywhere else fused multiply-adds do it.

    In the largest tiles where sums of a long k are looked at, in smaller ones elsewhere.
    """
    text = multiply(target, "float32", shapes(target, "float32")[target not in LONG_SUMS])
    exact = r"v_mfma_f32_\w+f32" if target in CDNA else FMA
    assert re.search(exact, text)
    assert not re.search(r"tf32|xf32", text)


@pytest.mark.parametrize("target", TARGETS)
def test_doubles_are_multiplied_in_double(target: str) -> None:
    text = multiply(target, "float64", shapes(target, "float64")[0])
    assert re.search(DOUBLES.get(target, rf"{FMA64}|v_mfma_f64|mma\.sync.*f64"), text)


@pytest.mark.parametrize(("target", "dtype"), by_turns("float16", "float32", "float64"))
def test_the_smallest_tiles_compile_with_every_epilogue(target: str, dtype: str) -> None:
    promises = {"ALPHA": True, "BETA": True, "BIAS": True, "ACTIVATION": "gelu", "NEAR": False}
    strides = {"A_ALONG": 2, "B_ALONG": 2, "C_ALONG": 2}
    text = multiply(target, dtype, shapes(target, dtype)[-1], **promises, **strides)
    assert "grouped_tiles" in text


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_tiles_multiply_their_planes_in_the_parts_own_arithmetic(
    target: str, dtype: str
) -> None:
    from tilewright.backends.cuda.kernels.triton.grouped_complex import complex_tiles

    tl: Any = triton.language
    shape = shapes(target, dtype)[0]
    tile = {"TILE_M": shape.m, "TILE_N": shape.n, "TILE_K": shape.k}
    along = {"A_ALONG": 0, "B_ALONG": 1, "C_ALONG": 0, "NEAR": True}
    options = {"num_warps": shape.warps, "num_stages": shape.stages}
    constants = {
        "PART": getattr(tl, PARTS[dtype]), **tile, **along, "SCALED": True, "BIAS": True
    }  # fmt: skip
    types = {"problems": "*i64", "tiles": "*i32", "last": "i32"}
    text = code(complex_tiles, target, types, constants, **options)
    exact = (
        rf"{FMA}|v_mfma_f32_\w+f32"
        if dtype == "complex64"
        else rf"{FMA64}|v_mfma_f64|mma\.sync.*f64"
    )
    assert re.search(exact, text)
    assert not re.search(r"tf32|xf32|(st|ld)\.local|scratch_store", text)


@pytest.mark.parametrize("target", TARGETS)
def test_the_second_phase_compiles(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton.sum_parts import sum_parts

    tl: Any = triton.language
    constants = {"DTYPE": tl.float16, "SUM": tl.float32, "CHUNK": 1024, "ACTIVATION": "relu"}
    types = {"problems": "*i64", "splits": "*i64", "pieces": "*i32", "scratch": "*fp32"}
    assert "sum_parts" in code(sum_parts, target, types, constants, num_warps=4)


@pytest.mark.parametrize("target", LONG_SUMS)
def test_sums_of_a_long_k_leave_their_chain_without_a_spill(target: str) -> None:
    """The sum of chains needs as many registers again; tiles are small enough to have them."""
    for shape in shapes(target, "float32"):
        multiply(target, "float32", shape)
