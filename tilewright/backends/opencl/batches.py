"""Runs a batch of equal products in one launch, by the kernels made for batches of unlike sizes.

A launch takes some 20 µs of the host's time, as long as a product of 100 x 100 x 100, and a batch
has thousands of products. Operands are read where they lie, whatever their steps, broadcast ones by
steps of nothing. `Plan.is_one_launch` says which batches come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.addresses import Column, Columns
from tilewright.arrays.views import View
from tilewright.backends.opencl.grouped import Groups, grouped_of
from tilewright.backends.opencl.memory import Staged, staged_strides
from tilewright.backends.opencl.runtime import Session
from tilewright.engines.grouped import GroupedOperands
from tilewright.facts.kernel import Plan
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars
from tilewright.planning.grouped import GroupedLayout, lay_out
from tilewright.remember import Shelf

# Products of a launch: their tables are 10 MB.
_MOST = 1 << 16
_layouts: Shelf[tuple[Any, ...], GroupedLayout] = Shelf("batches of equal products", most=64 << 20)
Steps = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lent:
    """Memory that stands where a grouped operand has a device's array."""

    buffer: Any

    @property
    def memory(self) -> Lent:
        """Itself: an array's memory has the buffer."""
        return self


def enqueue(
    session_: Session,
    plan: Plan,
    views: Mapping[str, View],
    staged: Mapping[str, Staged],
    scalars: Scalars,
) -> list[Any]:
    """Every product of the leading dimensions; the events. The caller holds the lock."""
    shape = views["c"].shape[:-2]
    steps = {name: staged_strides(view, plan.device) for name, view in views.items()}
    starts = {
        name: part.offset + _starts(shape, steps.get(name, ())) for name, part in staged.items()
    }
    found: list[Any] = []
    kernel = _kernel(plan)
    for first in range(0, int(np.prod(shape)), _MOST):
        part = {name: column[first : first + _MOST] for name, column in starts.items()}
        operands = _operands(plan.problem, part, staged, scalars)
        layout = _layout(plan, len(part["c"]))
        found += kernel.bind_in(session_, layout, operands).enqueue()
    return found


def _kernel(plan: Plan) -> Groups:
    kernel = grouped_of(plan.device, plan.problem.dtype)
    assert kernel is not None
    return kernel


def _starts(shape: Steps, steps: Steps) -> Column:
    """Where each product's matrix begins, counted from the first; a bias has one place for all."""
    leading = steps[:-2] if len(steps) > 2 else (0,) * len(shape)
    places = np.indices(shape, np.int64, sparse=True)
    total = sum(place * step for place, step in zip(places, leading, strict=True))
    column: Column = np.broadcast_to(total, shape).reshape(-1)
    return column


def _operands(
    problem: Problem, starts: Mapping[str, Column], staged: Mapping[str, Staged], scalars: Scalars
) -> GroupedOperands:
    count, item = len(starts["c"]), problem.itemsize
    m, n, k = problem.m, problem.n, problem.k

    def of(name: str, *lies: int) -> Columns:
        return Columns(starts[name] * item, *(np.full(count, number) for number in lies))

    return GroupedOperands(
        a=of("a", m, k, problem.a_row * item, problem.a_col * item),
        b=of("b", k, n, problem.b_row * item, problem.b_col * item),
        c=of("c", m, n, problem.c_row * item, problem.c_col * item),
        bias=of("bias", 1, n, item, item) if problem.bias else None,
        alpha=np.full(count, scalars.alpha),
        beta=np.full(count, scalars.beta),
        activation=problem.activation,
        dtype=problem.dtype,
        bases=tuple(Lent(staged[name].argument) for name in ("a", "b", "c", "bias")),
    )


def _layout(plan: Plan, count: int) -> GroupedLayout:
    problem, device = plan.problem, plan.device
    sizes = (problem.m, problem.n, problem.k)

    def lay() -> GroupedLayout:
        kernel = _kernel(plan)
        m, n, k = (np.full(count, size) for size in sizes)
        return lay_out(m, n, k, kernel.tiles, kernel.slots, "given")

    key = (device, problem.dtype, count, *sizes)
    return _layouts.found(key, lay, lambda made: made.bytes)
