"""The contract between a grouped plan and a back end's grouped kernels.

A back end says which tiles its kernel runs and how its scheduler deals them out; the planner lays
the batch out; the back end binds operands and returns a callable that only launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns
from tilewright.planning.buckets import Tile
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.makespan import Slots

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GroupedOperands:
    """All columns that a grouped kernel reads, problems in the caller's order.

    Addresses are those of the host's memory where there are no `bases`, else they count from where
    these begin: arrays of a, b, c and bias. A bias has no rows where a problem has none.
    """

    a: Columns
    b: Columns
    c: Columns
    bias: Columns | None
    bases: tuple[Any, ...] | None
    alpha: Floats
    beta: Floats
    activation: str
    dtype: str


class GroupedKernel(Protocol):
    """A back end's grouped kernel on one device for one dtype."""

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The tile shapes it can run, with their rates."""

    @property
    def slots(self) -> Slots:
        """The device's scheduler."""

    def bind(self, layout: GroupedLayout, operands: GroupedOperands) -> Callable[[], None]:
        """A callable that launches and, for host memory, returns when the results are there."""
