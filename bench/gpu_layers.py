"""Whole layers of experts in `bench.gpu`: the ways of `bench.moe`, rested, steady and cold.

tilewright.moe, torch's sort, gather and `_grouped_mm`, and a loop over experts that waits for the
sizes; liger-kernel's where it is installed. Forward keeps what backward needs; a step is forward
and the gradients of x, both matrices and the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench import moe

# Cycles that the device is kept busy while the host enqueues a layer and its gradients: an H200's
# host took 1.8 ms for those, and `bench.moe`'s 1.6 ms were too few for it.
LEAD = 8_000_000
_STEP = 3  # products of a step for one of forward
Rows = Callable[[dict[str, Any], float, int], dict[str, dict[str, float]]]
FIGURES = ("ms", "steady_ms", "cold_ms", "host_us")


def measured(case: moe.Case, rows: Rows) -> dict[str, Any]:
    """A case's errors, what its ways keep, and how long they take as `rows` measures it."""
    import torch

    found = moe.layers(case)
    record = found.record
    for kind, ways, times in (("forward", found.forward, 1), ("step", found.both, _STEP)):
        for name, row in rows(ways, times * case.flops, LEAD).items():
            record["ways"][name][kind] = row
    _show(record)
    del found
    torch.cuda.empty_cache()
    return record


def _show(record: Mapping[str, Any]) -> None:
    print(f"{record['case']}: must {record['must_ms']} aim {record['aim_ms']}", flush=True)
    for name, way in record["ways"].items():
        for kind in ("forward", "step"):
            said = ", ".join(f"{figure} {way[kind][figure]:.3f}" for figure in FIGURES)
            print(f"    {name:12s} {kind:8s} {said}   error {way['error']:.1e}", flush=True)
    for name, why in record["refused"].items():
        print(f"    {name:12s} -: {why[:110]}", flush=True)
