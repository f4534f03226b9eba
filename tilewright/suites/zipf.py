"""Zipf draws: small sizes are common, large ones rare, as in most things that people collect.

A size x of 1..highest has probability proportional to x^-exponent. With exponent 1, as Zipf found
for words by rank (Human Behavior and the Principle of Least Effort, 1949), every octave of sizes is
equally likely, so that the few largest problems hold nearly all arithmetic.
"""

from __future__ import annotations

import numpy as np

from tilewright.facts.problem import Column

SOURCE = "m, n and k each drawn with probability proportional to size^-exponent, seeded"
# name: highest, exponent, problems
LAWS = {
    "zipf-512": (512, 1.0, 1000),
    "zipf-1024": (1024, 1.5, 2000),
}
NAMES = tuple(LAWS)


def draw(name: str, seed: int) -> tuple[Column, Column, Column]:
    """The columns of one of `NAMES`."""
    return up_to(*LAWS[name], seed)


def up_to(highest: int, exponent: float, count: int, seed: int) -> tuple[Column, Column, Column]:
    """`count` problems of sizes 1..highest."""
    sizes = np.arange(1, highest + 1)
    weights = sizes**-exponent
    random = np.random.default_rng(seed)
    m, n, k = random.choice(sizes, size=(3, count), p=weights / weights.sum())
    return m, n, k
