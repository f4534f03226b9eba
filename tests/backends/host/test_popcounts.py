"""How bits are counted on ARM: inner loops as LLVM makes them, read without such a core."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

# Prints the assembly of both tiles: of products, and of convolutions.
_CODE = """
import sys
from llvmlite import binding, ir
from tilewright.backends.host.kernels import tiles, vectors

binding.initialize_all_targets()
binding.initialize_all_asmprinters()
machine = binding.Target.from_triple("aarch64-linux-gnu").create_target_machine(
    cpu=sys.argv[1], features=sys.argv[2], opt=3)
word = ir.IntType(64)
for what, count in ((vectors.tile_of_counts, 6), (tiles.tile_of_counts, 8)):
    module = ir.Module()
    module.triple = "aarch64-linux-gnu"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [word] * count), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    what(builder, *function.args)
    builder.ret_void()
    made = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(made, passes)
    print(machine.emit_assembly(made))
    print("=====")
"""


def inner_loops(assembly: str) -> list[str]:
    """Blocks that branch to their own beginning and count ones."""
    found = re.split(r"^(\.L\w+):", assembly, flags=re.MULTILINE)
    blocks = zip(found[1::2], found[2::2], strict=True)
    loops = [
        text for label, text in blocks if re.search(rf"\bb\.?\w*\s+{re.escape(label)}\b", text)
    ]
    return [text for text in loops if re.search(r"\bcnt\s+v", text)]


@pytest.mark.parametrize("core", ["cortex-a55", "cortex-a76", "neoverse-v1"])
@pytest.mark.parametrize(("features", "adds"), [("+neon", "uadalp"), ("+neon,+dotprod", "udot")])
def test_arm_counts_bytes_and_widens_them_without_spilling(
    core: str, features: str, adds: str
) -> None:
    told = {"NUMBA_CPU_NAME": core, "NUMBA_CPU_FEATURES": features}
    run = subprocess.run(
        [sys.executable, "-c", _CODE, core, features],
        env={**os.environ, **told},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    for assembly in run.stdout.split("=====")[:2]:
        loops = inner_loops(assembly)
        assert loops, assembly
        for loop in loops:
            assert re.search(rf"\b{adds}\s+v", loop), loop
            assert "[sp" not in loop, loop
            counts, sums = (len(re.findall(rf"\b{name}\s+v", loop)) for name in ("cnt", "eor"))
            assert counts == sums, loop  # one exclusive or for every count, no other logic
