"""Suites: batches of real shapes, one file a family, the source of the numbers stated in each.

    names()              every batch that can be loaded
    load(name, seed=0)   its columns m, n, k, and where they come from

A file here declares SOURCE (what was published and what is drawn), NAMES, and `draw(name, seed)`.
Adding a family is adding a file. Seed 0 is the batch to quote; other seeds draw others of its kind.

>>> batch = load("conv-resnet50")
>>> len(batch), [int(column[0]) for column in (batch.m, batch.n, batch.k)]     # conv1: 7 x 7 x 3
(53, [64, 12544, 147])
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType

from tilewright.errors import ArgumentError
from tilewright.facts.problem import Column

__all__ = ["Suite", "families", "load", "names"]


@dataclass(frozen=True)
class Suite:
    """One batch: C = A[m, k] @ B[k, n] for every row of the columns."""

    name: str
    m: Column
    n: Column
    k: Column
    source: str

    def __len__(self) -> int:
        return len(self.m)


def names() -> tuple[str, ...]:
    """Every batch that `load` knows."""
    return tuple(name for listed in families().values() for name in listed)


def families() -> dict[str, tuple[str, ...]]:
    """The batches of each file."""
    return {family: module.NAMES for family, module in _modules().items()}


def load(name: str, seed: int = 0) -> Suite:
    """The batch called `name`.

    Raises ArgumentError for an unknown name or a negative seed, and ModuleNotFoundError where the
    batch takes SciPy and that is not installed.
    """
    if seed < 0:
        raise ArgumentError(f"seed={seed}: 0 or more")
    for module in _modules().values():
        if name in module.NAMES:
            m, n, k = module.draw(name, seed)
            return Suite(name, m, n, k, module.SOURCE)
    raise ArgumentError(f"suite={name!r}: known are {', '.join(names())}")


@cache
def _modules() -> dict[str, ModuleType]:
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: import_module(f"{__name__}.{name}") for name in found}
