"""What test_oclgrind.py runs in a process of its own: one kernel, or a planted fault, in Oclgrind.

python -m tests.support.under_oclgrind [WHAT]

WHAT: KERNEL | grouped_lanes | bits | conv | film | out_of_bounds | global_race | local_race
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module

import numpy as np

import tilewright
from tests.support import forked
from tests.support.cases import Case
from tests.support.runs import configurations, run, run_configuration
from tilewright.backends.opencl import runtime
from tilewright.facts.kernel import Config

# Tiny, odd, with gaps and edges everywhere; and small enough to be simulated in a moment.
CASES = (
    Case(5, 9, 7, a="offset", b="offset", out="offset", alpha=2.0, beta=-1.0, bias=True),
    Case(9, 5, 6, transpose_a=True, transpose_b=True, activation="gelu"),
    Case(4, 8, 4),
    Case(1, 1, 1),
    Case(33, 70, 33, activation="relu"),
    Case(17, 13, 19, lead_a=(2,), out="F"),
    Case(3, 2, 5, dtype="float64", a="reversed", b="strided"),
)
# What has a file of its own, with a function that takes the simulator; they import much.
FILES = {
    "grouped_lanes": "grouped_under_oclgrind",
    "bits": "bits_under_oclgrind",
    "conv": "conv_under_oclgrind",
    "film": "film_under_oclgrind",
}
FAULTS = {
    "out_of_bounds": "x[get_global_id(0) + 1] = 1;",
    "global_race": "x[0] = get_global_id(0);",
    "local_race": "__local int y; y = get_local_id(0); barrier(1); x[get_global_id(0)] = y;",
}


def multiply(kernel: str, device: tilewright.Device) -> None:
    """Every case with the default configuration, some with every other."""
    for case in CASES:
        run(case, device, kernel)
    odd, wide = Case(33, 70, 33, a="F"), Case(36, 72, 36)
    others = replace(odd, b="F"), replace(wide, a="F", b="F")
    for case in (CASES[0], odd, wide, *others):
        for declared, config in configurations(device, case):
            if declared.name == kernel:
                run_configuration(few_steps(case, config), device, declared, config)


def few_steps(case: Case, config: Config) -> Case:
    """As long a k as uses every buffer, the first of them again, and ends within a step."""
    rest = 4 if case.k % 4 == 0 else 1
    steps = config.buffers * config.tile_k
    return replace(case, k=min(case.k, steps + rest)) if steps else case


def plant(fault: str, device: tilewright.Device) -> None:
    cl = runtime.pyopencl()
    session = runtime.session(device)
    text = f"__kernel void planted(__global int *x) {{ {FAULTS[fault]} }}"
    kernel = cl.Kernel(cl.Program(session.context, text).build(), "planted")
    buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 4 * 8)
    cl.enqueue_fill_buffer(session.queue, buffer, np.int32(0), 0, 4 * 8)
    kernel(session.queue, (8,), (4,), buffer)
    session.queue.finish()


def main(what: str) -> None:
    simulators = [device for device in tilewright.devices() if device.kind == "simulator"]
    if what in FILES:
        import_module(f"tests.support.{FILES[what]}").multiply(simulators[0])
    else:
        run = plant if what in FAULTS else multiply
        run(what, simulators[0])
    print("done")


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1])
    else:
        import_module("scipy.special")  # of most of them, each 0.2 s
        forked.serve(main)
