"""What instructions the processor has, by LLVM's names of them, where Numba compiles for it.

LLVM reads them from the processor, or on ARM from the system, and knows few of ARM's by name there:
of a Neoverse V1 under Linux it tells `neon` and neither `dotprod` nor `bf16`, while its compiler,
which goes by the core's name, uses them all. Products of bytes would run without `sdot` on such a
core. So what LLVM makes of two small functions is looked at: it uses an instruction where its
compiler has it, and others where not.
"""

from __future__ import annotations

from functools import cache

from llvmlite import binding
from numba import config

# A name of LLVM's, an instruction, and a function of which it is made where it is there.
_DOTS = """
declare i32 @llvm.vector.reduce.add.v16i32(<16 x i32>)
define i32 @dots(<16 x i8> %x, <16 x i8> %y) {
  %a = zext <16 x i8> %x to <16 x i32>
  %b = zext <16 x i8> %y to <16 x i32>
  %c = mul <16 x i32> %a, %b
  %d = call i32 @llvm.vector.reduce.add.v16i32(<16 x i32> %c)
  ret i32 %d
}
"""
_BRAINS = """
define <4 x bfloat> @brains(<4 x float> %x) {
  %a = fptrunc <4 x float> %x to <4 x bfloat>
  ret <4 x bfloat> %a
}
"""
_PROBES = (("dotprod", "udot", _DOTS), ("bf16", "bfcvtn", _BRAINS))


def features():
    """The target's features, as Numba takes them: the processor's, unless NUMBA_CPU_FEATURES names
    others. NUMBA_CPU_NAME alone changes none of x86's: Numba compiles for what there is."""
    if config.CPU_FEATURES is not None:
        return set(config.CPU_FEATURES.replace("+", "").split(","))
    triple, found = binding.get_process_triple(), binding.get_host_cpu_features()
    there = {name for name, is_there in found.items() if is_there}
    if not triple.startswith(("aarch64", "arm64")):
        return there
    return there | by_core(triple, config.CPU_NAME or binding.get_host_cpu_name(), found.flatten())


@cache
def by_core(triple, core, told=""):
    """Features of a core of ARM's by its name, and by what is `told` of it besides."""
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=core, features=told)
    found = {"neon"}  # of every processor of 64 bits
    for name, instruction, text in _PROBES:
        module = binding.parse_assembly(f'target triple = "{triple}"{text}')
        if instruction in machine.emit_assembly(module):
            found.add(name)
    return frozenset(found)
