"""Plans a batch on a GPU by its engines, and tells their verdict in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import placing
from tilewright.backends.cuda.work import Work
from tilewright.facts.device import Device
from tilewright.planning.explain import lines_of
from tilewright.remember import Shelf

_plans: Shelf[tuple[Any, ...], choose.Movable] = Shelf("batches on GPUs", most=128 << 20)


def verdict_lines(work: Work, device: Device, kernel: str | None = None) -> list[str]:
    """The engines' verdict in lines."""
    verdict = choose.judge(work, device, kernel)
    flops = 2.0 * float(np.sum(work.m.astype(float) * work.n * work.k))
    return lines_of(verdict, flops)


def plan_of(work: Work, device: Device, kernel: str | None) -> choose.Movable:
    """The plan of an earlier batch that lay alike, or a new one.

    A graph that captures its launch holds all that this reads but operands and results.
    """
    names = (kernel, work.dtype, work.precision, work.activation, work.order)
    key = (work.ordinal, device.id, *names, placing.signature(work))
    return _plans.found(
        key, lambda: choose.move(work, device, kernel), lambda plan: plan.bytes + len(key[-1])
    )
