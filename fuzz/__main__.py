"""Every target, one after the other."""

from __future__ import annotations

from fuzz import market, network, npy, npz, plan, ragged, sizes, tuned
from fuzz.harness import Target, main

TARGETS: tuple[Target, ...] = (
    npy.TARGET,
    npz.TARGET,
    npz.COLUMNS,
    ragged.TARGET,
    market.TARGET,
    sizes.TARGET,
    plan.TARGET,
    tuned.TARGET,
    tuned.STORE,
    network.TARGET,
)

if __name__ == "__main__":
    from fuzz import graph  # needs ONNX, and milliseconds an input

    main(*TARGETS, graph.TARGET, graph.PLANNED)
