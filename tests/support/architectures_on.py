"""Whole architectures on a device beside their definitions: too slow for the suite, run by hand.

    python -m tests.support.architectures_on opencl:0 [NAME ...]

A line for each: the largest difference over the largest value, seconds of the first bind, engines.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from tests.support.architectures import ARCHITECTURES
from tests.support.outlines import network_of


def main(device: str, names: list[str]) -> None:
    """Print the lines; of all architectures where none is named."""
    for name in names or ARCHITECTURES:
        rng, net = np.random.default_rng(1), network_of(name)
        shapes = ARCHITECTURES[name].shapes
        inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        wanted = _several(net.run(*inputs))
        begun = time.perf_counter()
        bound = net.bind({f"x{at}": x.shape for at, x in enumerate(inputs)}, device)
        seconds = time.perf_counter() - begun
        pairs = zip(_several(bound(*inputs)), wanted, strict=True)
        off = max(float(np.abs(made - right).max() / np.abs(right).max()) for made, right in pairs)
        engines = ", ".join(sorted({step.engine for step in bound.steps}))
        print(f"{name:20}{off:9.1e}{seconds:7.1f} s  {engines}", flush=True)


def _several(made: object) -> tuple[np.ndarray, ...]:
    return made if isinstance(made, tuple) else (np.asarray(made),)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
