"""Operators of float32 as steps of a program that all cores run together, one task at a time.

    step 0   [task 0][task 1] | [task 2][task 3]     a thread takes the tasks of its own share, then
    step 1   [task 0] | [task 1]                     others'; nobody begins a step before every task
                                                     of the last is done

Shares are the same places of a picture in every step: what a thread reads it has mostly written
itself, and lies in its core's cache. Dealt one by one to whoever is free, the tasks of MobileNetV2
took two threads 7.4 ms together where one thread takes 5.8.

A thread that comes late, or never, holds nobody up. Meeting costs below a microsecond, where waking
a thread takes twenty: that is why whole stretches of a network are one call. Who waits looks again
and again for a while before he sleeps: the shortest sleep takes a tenth of a millisecond.

A step is a record, `tilewright.backends.host.program.STEP`, whose fields are told there.
"""

from __future__ import annotations

from numba import njit

from tilewright.backends.host.kernels.atomics import breathe, let_others, seen, take
from tilewright.backends.host.kernels.conv_depth import depth_task
from tilewright.backends.host.kernels.conv_direct import direct_task, flat_task
from tilewright.backends.host.kernels.conv_expand import expand_task
from tilewright.backends.host.kernels.conv_winograd import gather_task, spread_task
from tilewright.backends.host.kernels.rows import channels_task, rows_task
from tilewright.backends.host.kernels.values import blend_task, elements_task, pool_task
from tilewright.backends.host.kernels.whole_sum import sum_task


@njit(nogil=True, cache=True)
def run(steps, counters, scratch, own, threads, patience):
    """The part of thread `own`, of so many, in all steps.

    counters  address of int64 [steps, threads + 1, 8]: tasks taken of every share, and tasks done;
              0 before the first thread
    scratch   address of this thread's own memory
    patience  looks at what others do before the core is offered to others
    """
    for number in range(steps.size):
        step = steps[number]
        line = counters + 64 * (threads + 1) * number
        finished = 0
        for ahead in range(threads):
            share = (own + ahead) % threads
            first = step.tasks * share // threads
            count = step.tasks * (share + 1) // threads - first
            while seen(line + 64 * share) < count:
                task = take(line + 64 * share, 1)
                if task >= count:
                    break
                _do(steps, number, first + task, scratch)
                finished += 1
        done = line + 64 * threads
        if finished:
            take(done, finished)
        wait(done, step.tasks, patience)


@njit(cache=True)
def _do(steps, number, task, scratch):
    """One task. A step of two convolutions has two records, the second without tasks."""
    step = steps[number]
    if step.kind == 0:
        direct_task(step, task, scratch)
    elif step.kind == 1:
        flat_task(step, task, scratch)
    elif step.kind == 2:
        depth_task(step, task)
    elif step.kind == 3:
        spread_task(step, task, scratch)
    elif step.kind == 4:
        gather_task(step, task, scratch)
    elif step.kind == 5:
        expand_task(step, steps[number + 1], task, scratch)
    elif step.kind == 6:
        pool_task(step, task)
    elif step.kind == 7:
        blend_task(step, task)
    elif step.kind == 8:
        elements_task(step, task)
    elif step.kind == 9:
        rows_task(step, task)
    elif step.kind == 10:
        channels_task(step, task)
    else:
        sum_task(step, task)


@njit(nogil=True, cache=True)
def wait(address, count, patience):
    """Until the int64 at `address` is `count`."""
    looks = 0
    while seen(address) < count:
        looks += 1
        if looks > patience:
            let_others()
        else:
            breathe()


@njit(nogil=True, cache=True)
def look(address, count):
    """So many looks, as `wait` makes them; returns how many were not 0."""
    found = 0
    for _ in range(count):
        if seen(address):
            found += 1
        breathe()
    return found
