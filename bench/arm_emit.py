"""Prints the assembly of the host's inner loops for another processor, as JSON by name.

    NUMBA_CPU_NAME=CORE NUMBA_CPU_FEATURES=FEATURES python -m bench.arm_emit TRIPLE CORE FEATURES

The variables are read where kernels are imported: `arm_loops` starts a process for each core.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import binding, ir
from numba import types as numbers

_KERNELS = "tilewright.backends.host.kernels"
_WORD = ir.IntType(64)


def main() -> None:
    triple, core, features = sys.argv[1:4]
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(triple)
    machine = target.create_target_machine(cpu=core, features=features, opt=3)
    names = ("vectors", "tiles", "grouped_tile", "grouped_narrow_tile", "whole_tile")
    vectors, tiles, grouped, narrow, whole = map(_module, names)
    atomics, halves = _module("atomics"), _module("halves_tile")
    found: dict[str, tuple[Callable[..., None], int]] = {
        "products": (vectors.tile_of_counts, 6),
        "windows": (tiles.tile_of_counts, 8),
        "sums": (tiles.tile_of_sums, 8),
        "grouped": (partial(_grouped, grouped, grouped.SINGLE, grouped.ROWS), 15),
        "doubles": (partial(_grouped, grouped, grouped.DOUBLE, grouped.ROWS), 15),
        "bytes": (partial(_grouped, narrow, narrow.BYTE, narrow.BYTE.rows), 8),
        "brains": (partial(_grouped, narrow, narrow.BRAIN, narrow.BRAIN.rows), 8),
        "whole": (partial(_called, whole.sums_single), 10),
        **{
            name: (partial(_called, getattr(atomics, name)), count)
            for name, count in (("take", 2), ("seen", 1), ("tell", 2), ("turn", 3))
        },
        **{
            f"{name} {kind}": (partial(_called, getattr(halves, name), zero), 4)
            for name in ("widen", "narrow")
            for kind, zero in (("bfloat16", numbers.uint16), ("float16", numbers.int16))
        },
    }
    made = {name: _assembly(machine, triple, *one) for name, one in found.items()}
    print(json.dumps(made))


def _module(name: str) -> Any:
    return importlib.import_module(f"{_KERNELS}.{name}")


def _grouped(grouped: Any, kind: Any, rows: int, builder: Any, *given: Any) -> None:
    """The largest tile of a kind of elements; A, B and C are pointers."""
    product = grouped.product(builder.module, kind, rows, grouped.WIDEST)
    kinds = product.function_type.args
    words = [
        builder.inttoptr(one, kind) if kind != _WORD else one
        for one, kind in zip(given, kinds, strict=True)
    ]
    builder.call(product, words)


def _called(function: Any, *given: Any) -> None:
    """What a function for compiled functions puts where it is called: `given` are its first
    argument's type where that is a number of a kind, a builder, and the others."""
    kinds = [one for one in given if isinstance(one, numbers.Type)]
    builder, *words = given[len(kinds) :]
    _, generate = function._defn(None, *kinds, *words)
    context = types.SimpleNamespace(get_dummy_value=lambda: None)
    generate(context, builder, None, [*kinds, *words])


def _assembly(machine: Any, triple: str, fill: Callable[..., None], count: int) -> str:
    """A function of so many words, filled and optimised as Numba optimises."""
    module = ir.Module()
    module.triple = triple
    kind = ir.FunctionType(ir.VoidType(), [_WORD] * count)
    function = ir.Function(module, kind, "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    fill(builder, *function.args)
    builder.ret_void()
    made = binding.parse_assembly(str(module))
    options = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(machine, options)
    passes.getModulePassManager().run(made, passes)
    return str(machine.emit_assembly(made))


if __name__ == "__main__":
    main()
