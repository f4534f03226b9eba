"""Convolutions of float32 as steps of a program that all cores run together, one task at a time.

    step 0   [task 0][task 1][task 2] ...       whoever is free takes the next task; nobody begins
    step 1   [task 0][task 1] ...               a step before every task of the last is done

A thread that comes late, or never, holds nobody up. Meeting costs below a microsecond, where waking
a thread takes twenty: that is why whole stretches of a network are one call.

A step is a record, `tilewright.backends.host.program.STEP`, whose fields are told there.
"""

from __future__ import annotations

from numba import njit

from tilewright.backends.host.kernels.atomics import let_others, seen, take
from tilewright.backends.host.kernels.conv_depth import depth_task
from tilewright.backends.host.kernels.conv_direct import direct_task, flat_task

_PATIENCE = 2000  # looks before the core is offered to others


@njit(nogil=True, cache=True)
def run(steps, counters, scratch):
    """One thread's part of all steps.

    counters  address of int64 [steps, 8]: tasks taken and tasks done, 0 before the first thread
    scratch   address of this thread's own memory
    """
    for number in range(steps.size):
        step = steps[number]
        taken = counters + 64 * number
        while True:
            task = take(taken)
            if task >= step.tasks:
                break
            if step.kind == 0:
                direct_task(step, task, scratch)
            elif step.kind == 1:
                flat_task(step, task, scratch)
            else:
                depth_task(step, task)
            take(taken + 8)
        looks = 0
        while seen(taken + 8) < step.tasks:
            looks += 1
            if looks > _PATIENCE:
                let_others()
