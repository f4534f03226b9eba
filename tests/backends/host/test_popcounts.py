"""How bits are counted elsewhere: inner loops as LLVM makes them, read without such a core."""

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
machine = binding.Target.from_triple(sys.argv[1]).create_target_machine(
    cpu=sys.argv[2], features=sys.argv[3], opt=3)
word = ir.IntType(64)
for what, count in ((vectors.tile_of_counts, 6), (tiles.tile_of_counts, 8)):
    module = ir.Module()
    module.triple = sys.argv[1]
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


def tiles_of(triple: str, core: str, features: str) -> list[str]:
    """Assembly of the tile of products and of that of convolutions."""
    told = {"NUMBA_CPU_NAME": core, "NUMBA_CPU_FEATURES": features}
    run = subprocess.run(
        [sys.executable, "-c", _CODE, triple, core, features],
        env={**os.environ, **told},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout.split("=====")[:2]


def test_a_processors_name_alone_changes_no_features_as_numba_compiles_for_all_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba import config

    from tilewright.backends.host.kernels.popcounts import features

    monkeypatch.setattr(config, "CPU_FEATURES", None)
    own = features()
    monkeypatch.setattr(config, "CPU_NAME", "haswell")
    assert features() == own
    monkeypatch.setattr(config, "CPU_FEATURES", "+avx2,+fma")
    assert features() == {"avx2", "fma"}


def test_convolutions_of_avx512_without_native_counts_keep_their_sums_in_registers() -> None:
    features = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx2,+fma,+popcnt"
    _, assembly = tiles_of("x86_64-linux-gnu", "cascadelake", features)
    found = re.split(r"^(\.L\w+):", assembly, flags=re.MULTILINE)
    loops = [text for text in found[2::2] if "vpshufb" in text and "vpternlog" in text]
    assert loops, assembly
    longest = max(loops, key=lambda text: text.count("vpshufb"))
    assert not re.search(r"vmov\w+\s+%zmm\d+, -?\d*\(%rsp\)", longest), longest


def test_the_tile_of_convolutions_is_the_one_of_fewest_instructions_that_fits() -> None:
    from tilewright.backends.host.kernels.popcounts import Tile

    few, many = Tile(1, 2, 4), Tile(3, 1, 4)
    assert few.instructions(9) < many.instructions(9)
    assert many.instructions(72) < few.instructions(72)
    assert Tile(2, 2, 2).registers <= 32 < Tile(2, 2, 4).registers


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
    for assembly in tiles_of("aarch64-linux-gnu", core, features):
        loops = inner_loops(assembly)
        assert loops, assembly
        for loop in loops:
            assert re.search(rf"\b{adds}\s+v", loop), loop
            assert "[sp" not in loop, loop
            counts, sums = (len(re.findall(rf"\b{name}\s+v", loop)) for name in ("cnt", "eor"))
            assert counts == sums, loop  # one exclusive or for every count, no other logic
