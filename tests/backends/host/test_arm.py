"""Inner loops as LLVM makes them for ARM's cores, read and played by llvm-mca, without a core."""

from __future__ import annotations

import json
import re

import pytest

from bench import arm
from bench.arm_loops import (
    CORES,
    Code,
    Core,
    assembly,
    code_of,
    count,
    cycles,
    each,
    levels_of,
    of_vectors,
    tool,
)
from bench.environment import RESULTS

pytest.importorskip("numba")

NAMED = {core.name: core for core in CORES}
SIDES = [
    *((core.name, core.features, "udot") for core in CORES),
    ("cortex-a55", "+neon", "uadalp"),
    ("cortex-a76", "+neon", "uadalp"),
]
STORED = json.loads((RESULTS / "arm-modelled.json").read_text(encoding="utf-8"))


def code(core: str, features: str, tile: str) -> Code:
    return code_of(assembly(core, features)[tile])


def of_elements(loop: tuple[str, ...], instruction: str) -> int:
    """How many of an instruction multiply by an element of a register."""
    found = rf"{instruction}\s+v.*\.(s|d|4b)\[\d\]$"
    return sum(re.match(found, one) is not None for one in loop)


def spilled(loop: tuple[str, ...]) -> list[str]:
    return [one for one in loop if "[sp" in one]


@pytest.mark.parametrize(("core", "features", "adds"), SIDES)
@pytest.mark.parametrize("tile", ["products", "windows"])
def test_bits_are_counted_by_bytes_and_widened_without_spilling(
    core: str, features: str, adds: str, tile: str
) -> None:
    loop = code(core, features, tile).longest("cnt")
    assert count(loop, adds), loop
    assert not spilled(loop), loop
    # One exclusive or for every count, no other logic.
    assert count(loop, "cnt") == count(loop, "eor"), loop


@pytest.mark.parametrize("core", NAMED)
@pytest.mark.parametrize("tile", ["sums", "grouped", "doubles"])
def test_reals_are_multiplied_by_an_element_and_no_sum_is_spilled(core: str, tile: str) -> None:
    loop = code(core, NAMED[core].features, tile).longest("fmla")
    assert of_elements(loop, "fmla") == count(loop, "fmla"), loop
    assert not spilled(loop), loop


@pytest.mark.parametrize("core", NAMED)
def test_bytes_are_multiplied_by_an_element_six_rows_at_once_and_nothing_else_is_done(
    core: str,
) -> None:
    loop = code(core, NAMED[core].features, "bytes").longest("sdot")
    assert of_elements(loop, "sdot") == count(loop, "sdot") == of_vectors(loop) == 24, loop
    assert not spilled(loop), loop


@pytest.mark.parametrize("core", NAMED)
def test_bytes_of_convolutions_are_made_signed_once_a_pixel_and_multiplied_by_an_element(
    core: str,
) -> None:
    loop = code(core, NAMED[core].features, "whole").longest("sdot")
    assert of_elements(loop, "sdot") == count(loop, "sdot") == 24, loop
    assert of_vectors(loop) == 24 + 6, loop
    assert not spilled(loop), loop


@pytest.mark.parametrize("core", NAMED)
def test_halves_of_bfloat16_are_multiplied_by_an_element_without_spilling(core: str) -> None:
    loop = code(core, "+neon,+dotprod", "brains").longest("fmla")
    assert of_elements(loop, "fmla") == count(loop, "fmla"), loop
    assert not spilled(loop), loop


@pytest.mark.parametrize("core", ["cortex-x2", "neoverse-v1"])
def test_pairs_of_bfloat16_are_multiplied_at_once_where_a_core_does(core: str) -> None:
    loop = code(core, NAMED[core].features, "brains").longest("bfdot")
    assert count(loop, "bfdot") == 24, loop
    assert not spilled(loop), loop


@pytest.mark.parametrize("core", NAMED)
def test_halves_of_ragged_products_are_converted_four_at_once_and_by_no_library(core: str) -> None:
    for tile, by in (
        ("widen bfloat16", "shll"),
        ("widen float16", "fcvtl"),
        ("narrow bfloat16", "xtn"),
        ("narrow float16", "fcvtn"),
    ):
        made = code(core, NAMED[core].features, tile)
        assert count(made.longest(by), by), tile
        every = [one for loop in made.loops for one in loop] + list(made.rest)
        assert not [one for one in every if one.startswith("bl\t")], tile
        assert not spilled(tuple(every)), tile


@pytest.mark.parametrize("core", NAMED)
def test_what_threads_tell_each_other_is_read_and_written_in_order(core: str) -> None:
    """ARM's memory is weakly ordered: QEMU on x86 is not, and would show nothing."""
    made = {
        name: {line.split()[0] for line in code(core, NAMED[core].features, name).rest}
        for name in ("take", "seen", "tell", "turn")
    }
    assert "ldar" in made["seen"], made
    assert "stlr" in made["tell"], made
    for name, at_once in (("take", "ldaddal"), ("turn", "casal")):
        assert at_once in made[name] or {"ldaxr", "stlxr"} <= made[name], made


def test_a_loop_ends_where_it_jumps_to_its_beginning() -> None:
    text = "f: // f\n\tmov x0, xzr\n.LBB0_1:\n\tcnt v0.16b, v1.16b\n\tb.lt\t.LBB0_1\n\tret\n.size f"
    made = code_of(text)
    assert made.loops == (("cnt v0.16b, v1.16b", "b.lt\t.LBB0_1"),)
    assert made.rest == ("mov x0, xzr", "ret")
    with pytest.raises(LookupError, match="fmla"):
        made.longest("fmla")


def test_what_loops_around_a_loop_have_beside_it_is_told_from_inside_to_outside() -> None:
    lines = ["mov x0, xzr", "1:", "add x1, x1, #1", "2:", "cnt v0.16b, v1.16b", "b.lt 2", "nop"]
    text = (
        "\n".join(["f:", *lines, "cbnz x1, 1", "ret"]).replace("1:", ".L1:").replace("2:", ".L2:")
    )
    text = text.replace("b.lt 2", "b.lt .L2").replace("x1, 1", "x1, .L1")
    assert levels_of(text, "cnt") == [
        ("cnt v0.16b, v1.16b", "b.lt .L2"),
        ("add x1, x1, #1", "nop", "cbnz x1, .L1"),
        ("mov x0, xzr", "ret"),
    ]


@pytest.mark.skipif(tool() is None, reason="llvm-mca of LLVM 20 or newer is not installed")
@pytest.mark.parametrize("core", STORED["cores"], ids=lambda core: str(core["name"]))
def test_llvm_mca_finds_the_shares_of_the_peak_that_the_page_tells(core: dict[str, object]) -> None:
    shares, one = core["shares"], NAMED[str(core["name"])]
    assert isinstance(shares, dict)
    for tile, instruction in arm.tiles_of(one).items():
        share = arm.LEAST[instruction] / one.units / each(one, tile, instruction)
        assert 0.9 * shares[tile] < share <= 1, (tile, share)


@pytest.mark.skipif(tool() is None, reason="llvm-mca of LLVM 20 or newer is not installed")
def test_no_loop_is_faster_than_the_vector_units_of_its_core() -> None:
    narrow = Core("cortex-a55", "cortex-a55", 1)
    fast = [f"fmla v{one}.4s, v30.4s, v31.s[0]" for one in range(24)]
    assert cycles(fast, narrow) >= 24


def test_the_modelled_network_has_the_layers_of_the_measured_one() -> None:
    """Multiplications of Bi-Real-Net-18 at 224 x 224, the dense layer's channels by 32."""
    bits = sum(64 * conv.taps * conv.pixels * conv.channels for conv in arm.of_bits())
    reals = sum(conv.taps * conv.pixels * conv.channels for conv in arm.of_reals())
    assert (bits, reals) == (1_676_279_808, 137_805_824)
