"""The contract between a grouped plan and a back end's grouped kernels.

A back end says which tiles its kernel runs and how its scheduler deals them out; the planner lays
the batch out; the back end binds operands and returns a callable that only launches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column, Columns
from tilewright.planning.buckets import Tile
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.makespan import Slots

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]  # of float64, or complex128 where the matrices are complex


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedOperands:
    """All columns that a batch's kernels read, problems in the caller's order.

    `dtype` is that of a, b, c and bias. Addresses count from zero where there are no `bases`, else
    from where these begin: a device's arrays of a, b, c and bias. A bias has no elements where a
    problem has none.
    """

    a: Columns
    b: Columns
    c: Columns
    bias: Columns | None = None
    alpha: Numbers
    beta: Numbers
    activation: str = "none"
    dtype: str
    bases: tuple[Any, ...] | None = None

    @property
    def m(self) -> Column:
        """Rows of every product."""
        return self.c.rows

    @property
    def n(self) -> Column:
        """Columns of every product."""
        return self.c.cols

    @property
    def k(self) -> Column:
        """The depth of every product."""
        return self.a.cols

    def take(self, which: Column) -> Self:
        """The batch of these problems alone."""
        columns = {name: getattr(self, name).take(which) for name in "abc"}
        bias = self.bias and self.bias.take(which)
        alpha, beta = self.alpha[which], self.beta[which]
        return replace(self, **columns, bias=bias, alpha=alpha, beta=beta)


class GroupedKernel(Protocol):
    """A back end's grouped kernel on one device for one dtype."""

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """The tile shapes it can run, with their rates."""

    @property
    def slots(self) -> Slots:
        """The device's scheduler."""

    @property
    def launch(self) -> float:
        """Seconds until a bound batch begins, and until its end is known."""

    @property
    def is_built(self) -> bool:
        """Whether a launch needs no compiler, which on processors takes seconds."""
        return True

    def bind(self, layout: GroupedLayout, operands: GroupedOperands) -> Callable[[], None]:
        """A callable that launches and, for host memory, returns when the results are there."""
