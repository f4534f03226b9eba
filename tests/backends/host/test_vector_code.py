"""Inner loops of batches as LLVM makes them for x86's processors, read without such a processor."""

from __future__ import annotations

import re

import pytest

from bench.arm_loops import assembly
from tests.support.processors import HASWELL

pytest.importorskip("numba")

WIDE = f"+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512cd,{HASWELL}"
PROCESSORS = {
    "haswell": HASWELL,
    "cascadelake": f"{WIDE},+avx512vnni",
    "cooperlake": f"{WIDE},+avx512vnni,+avx512bf16",
}
# Of a processor and a tile: the instruction that multiplies, how many of it a step or a word of k
# takes, one for each sum and each part of a word; loads that put an element into every lane, one a
# row; and steps that a turn of the loop does.
MULTIPLIED = [
    ("haswell", "grouped", "vfmadd231ps", 12, "vbroadcastss", 6, 8),
    ("haswell", "doubles", "vfmadd231pd", 12, "vbroadcastsd", 6, 4),
    ("haswell", "brains", "vfmadd231ps", 16, "vpbroadcastd", 4, 1),
    ("haswell", "bytes", "vpmaddwd", 16, "vpbroadcastd", 4, 1),
    ("cascadelake", "grouped", "vfmadd231ps", 16, "vbroadcastss", 8, 1),
    ("cascadelake", "doubles", "vfmadd231pd", 16, "vbroadcastsd", 8, 1),
    ("cascadelake", "brains", "vfmadd231ps", 32, "vpbroadcastd", 8, 1),
    ("cascadelake", "bytes", "vpdpbusd", 16, "vpbroadcastd", 8, 1),
    ("cooperlake", "brains", "vdpbf16ps", 16, "vbroadcastss", 8, 1),
    ("cooperlake", "bytes", "vpdpbusd", 16, "vpbroadcastd", 8, 1),
]


def longest(text: str, instruction: str) -> list[str]:
    """The loop within which there is no other and that has most of an instruction."""
    parts = re.split(r"^(\.L\w+):", text, flags=re.MULTILINE)
    loops = []
    for label, block in zip(parts[1::2], parts[2::2], strict=True):
        jump = re.search(rf"^\s+j\w+\s+{re.escape(label)}\b", block, re.MULTILINE)
        if jump:
            loops.append([line.strip() for line in block[: jump.end()].splitlines() if line])
    return max(loops, key=lambda loop: of(loop, instruction))


def of(loop: list[str], instruction: str) -> int:
    return sum(line.split()[:1] == [instruction] for line in loop)


@pytest.mark.parametrize(
    ("processor", "tile", "instruction", "most", "spread", "rows", "steps"), MULTIPLIED
)
def test_every_sum_keeps_its_register_and_takes_one_instruction(
    processor: str, tile: str, instruction: str, most: int, spread: str, rows: int, steps: int
) -> None:
    text = assembly(processor, PROCESSORS[processor], "x86_64-linux-gnu")[tile]
    loop = longest(text, instruction)
    assert of(loop, instruction) == most * steps, loop
    register = "ymm" if processor == "haswell" else "zmm"
    assert all(f"%{register}" in line for line in loop if line.startswith(instruction)), loop
    assert of(loop, spread) == rows * steps, loop
    assert not [line for line in loop if re.search(r"%[xyz]mm\d+.*\(%rsp\)|\(%rsp\).*mm\d", line)]


@pytest.mark.parametrize("tile", ["grouped", "doubles"])
def test_steps_of_avx2_take_little_but_loads_and_multiplications(tile: str) -> None:
    """A core whose other thread is at work begins three instructions in a cycle."""
    text = assembly("haswell", PROCESSORS["haswell"], "x86_64-linux-gnu")[tile]
    loop = longest(text, "vfmadd231ps" if tile == "grouped" else "vfmadd231pd")
    needed = sum(line.startswith(("vfmadd", "vbroadcast", "vmovup")) for line in loop)
    assert len(loop) - needed <= 6, loop


@pytest.mark.parametrize("tile", ["grouped", "doubles"])
@pytest.mark.parametrize("processor", ["haswell", "cascadelake"])
def test_of_reals_no_address_is_read_from_memory_in_a_step(processor: str, tile: str) -> None:
    text = assembly(processor, PROCESSORS[processor], "x86_64-linux-gnu")[tile]
    loop = longest(text, "vfmadd231ps" if tile == "grouped" else "vfmadd231pd")
    assert not [line for line in loop if "(%rsp)" in line], loop
