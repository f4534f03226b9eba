"""Inner loops of the host's kernels on cores of ARM's: LLVM's assembly, and llvm-mca's cycles.

Nothing is run: llvm-mca plays a loop through LLVM's own model of a core's schedule, all that it
reads being in the first cache. A loop never counts as fewer cycles than its vector instructions
take in the core's vector units of 128 bits, of which LLVM's model of Cortex-A55 has one too many
for `fmla`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIPLE = "aarch64-linux-gnu"
OLDEST = 20  # of LLVM; figures were made by 22. Its older models of these cores are Cortex-A57's
_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Core:
    """A core as LLVM calls it, the one whose schedule LLVM knows best, and its vector units."""

    name: str
    model: str
    units: int
    in_order: bool = False
    dispatch: int = 0  # operations that it takes in a cycle, where LLVM's model has fewer
    features: str = "+neon,+dotprod"


_BRAINS = "+neon,+dotprod,+bf16"
# LLVM gives Cortex-A76 the schedule of Cortex-A57; Neoverse N1 is the same design for servers,
# and both decode four instructions in a cycle, where LLVM's model takes three operations.
CORES = (
    Core("cortex-a55", "cortex-a55", 1, in_order=True),
    Core("cortex-a76", "neoverse-n1", 2, dispatch=4),
    Core("cortex-x2", "cortex-x2", 4, features=_BRAINS),
    Core("neoverse-v1", "neoverse-v1", 4, features=_BRAINS),
)


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions: loops that jump to their own beginning, and all that is outside of them."""

    loops: tuple[tuple[str, ...], ...]
    rest: tuple[str, ...]

    def longest(self, instruction: str) -> tuple[str, ...]:
        """The loop that has most of an instruction; LookupError where none has any."""
        found = max(self.loops, key=lambda loop: count(loop, instruction), default=())
        if not count(found, instruction):
            raise LookupError(f"instruction={instruction!r}: no loop has one")
        return found


@cache
def assembly(core: str, features: str, triple: str = TRIPLE) -> dict[str, str]:
    """Of every tile by name: `products` and `windows` of bits, `sums` of windows, small products:
    `grouped` of float32, `doubles`, `bytes`, `brains` of bfloat16, `whole` of windows of int8; of
    what threads share, and of halves made wider and narrower."""
    told = {"NUMBA_CPU_NAME": core, "NUMBA_CPU_FEATURES": features}
    run = subprocess.run(
        [sys.executable, "-m", "bench.arm_emit", triple, core, features],
        env={**os.environ, **told},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    made: dict[str, str] = json.loads(run.stdout)
    return made


def code_of(text: str) -> Code:
    """The instructions of assembly, without directives and comments."""
    loops: list[tuple[str, ...]] = []
    rest: list[str] = []
    label, block = "", list[str]()
    for line in text.splitlines():
        said = line.partition("//")[0].strip()
        if found := re.fullmatch(r"([.\w]+):", said):
            rest += block
            label, block = found[1], []
        elif said and not said.startswith("."):
            block.append(said)
            if label and re.match(rf"(b|b\.\w+|cbn?z|tbn?z)\s.*{re.escape(label)}$", said):
                loops.append(tuple(block))
                label, block = "", []
    return Code(tuple(loops), tuple(rest + block))


def levels_of(text: str, instruction: str) -> list[tuple[str, ...]]:
    """From inside to outside: the loop that has most of an instruction, what the loop around it has
    beside it, and so on; last what is in no loop around it.

    A loop is what lies between a label and the last jump back to it. Other loops within are taken
    as run once. Raises LookupError where no loop has the instruction.
    """
    code: list[str] = []
    places: dict[str, int] = {}
    for line in text.splitlines():
        said = line.partition("//")[0].strip()
        if found := re.fullmatch(r"([.\w]+):", said):
            places[found[1]] = len(code)
        elif said and not said.startswith("."):
            code.append(said)
    ends: dict[int, int] = {}
    for at, said in enumerate(code):
        jump = re.match(r"(?:b|b\.\w+|cbn?z|tbn?z)\s.*?([.\w]+)$", said)
        begin = places.get(jump[1], at + 1) if jump else at + 1
        if begin <= at:
            ends[begin] = max(at + 1, ends.get(begin, 0))
    inner = code_of(text).longest(instruction)
    last = next(at for at in range(len(code)) if tuple(code[at - len(inner) : at]) == inner)
    around = sorted((end - begin, begin, end) for begin, end in ends.items() if begin < last <= end)
    cuts = [(begin, end) for _, begin, end in around] + [(0, len(code))]
    found_levels, (low, high) = [inner], (last - len(inner), last)
    for begin, end in cuts:
        if begin <= low and high <= end and (begin, end) != (low, high):
            found_levels.append(tuple(code[begin:low] + code[high:end]))
            low, high = begin, end
    return found_levels


def count(code: Sequence[str], instruction: str) -> int:
    """How many of an instruction on vectors."""
    return sum(re.match(rf"{instruction}\s+v", one) is not None for one in code)


def of_vectors(code: Sequence[str]) -> int:
    """Instructions that take a vector unit: neither loads nor stores."""
    return sum(re.match(r"(?!ld|st)\w+\s.*\bv\d+\.", one) is not None for one in code)


@cache
def tool() -> tuple[int, str] | None:
    """Version and path of the newest llvm-mca, None where none knows these cores."""
    found = [(0, "")]
    for name in ("llvm-mca", *(f"llvm-mca-{version}" for version in range(OLDEST, 40))):
        if path := shutil.which(name):
            run = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
            version = re.search(r"LLVM version (\d+)", run.stdout)
            found.append((int(version[1]) if version else 0, path))
    return max(found) if max(found)[0] >= OLDEST else None


def cycles(code: Sequence[str], core: Core) -> float:
    """Cycles of one round, many following each other; RuntimeError without llvm-mca."""
    there = tool()
    if there is None:
        raise RuntimeError(f"llvm-mca of LLVM {OLDEST} or newer is not installed")
    options = [f"-mtriple={TRIPLE}", f"-mcpu={core.model}", f"-mattr={core.features}"]
    if core.dispatch:
        options.append(f"-dispatch={core.dispatch}")
    run = subprocess.run(
        [there[1], *options, f"-iterations={_ROUNDS}"],
        input="\n".join(code) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    if found is None:
        raise RuntimeError(run.stderr[-2000:])
    return max(int(found[1]) / _ROUNDS, of_vectors(code) / core.units)


def each(core: Core, tile: str, instruction: str) -> float:
    """Cycles of a tile's inner loop for each of an instruction that it is made of."""
    loop = code_of(assembly(core.name, core.features)[tile]).longest(instruction)
    return cycles(loop, core) / count(loop, instruction)
