"""Uniform draws: every size of every problem between two limits, all equally likely.

The usual benchmark of variable-size batches, in the four ranges that this project's goals name.
"""

from __future__ import annotations

import numpy as np

from tilewright.facts.problem import Column

SOURCE = "m, n and k each drawn uniformly, limits included; no publication behind the numbers"
# name: lowest, highest, problems
RANGES = {
    "uniform-1-32": (1, 32, 1000),
    "uniform-1-64": (1, 64, 1000),
    "uniform-1-256": (1, 256, 1000),
    "uniform-64-512": (64, 512, 200),
}
NAMES = tuple(RANGES)


def draw(name: str, seed: int) -> tuple[Column, Column, Column]:
    """The columns of one of `NAMES`."""
    return between(*RANGES[name], seed)


def between(lowest: int, highest: int, count: int, seed: int) -> tuple[Column, Column, Column]:
    """`count` problems of sizes lowest..highest."""
    random = np.random.default_rng(seed)
    m, n, k = random.integers(lowest, highest, size=(3, count), endpoint=True)
    return m, n, k
