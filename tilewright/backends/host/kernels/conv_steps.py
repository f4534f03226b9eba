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

A step is a record, `STEP` of `step.py` beside this file. A task is called by the address of its
machine code, so that a program compiles what it does and no more.
"""

from __future__ import annotations

from functools import cache

from numba import cfunc, njit, types

from tilewright.backends.host.kernels.atomics import breathe, let_others, seen, take
from tilewright.backends.host.kernels.conv_depth import depth_task
from tilewright.backends.host.kernels.conv_direct import direct_task, flat_task
from tilewright.backends.host.kernels.conv_expand import expand_task
from tilewright.backends.host.kernels.conv_winograd import gather_task, spread_task
from tilewright.backends.host.kernels.grouped import (
    double_parts,
    double_tiles,
    single_parts,
    single_tiles,
)
from tilewright.backends.host.kernels.grouped_narrow import (
    brain_parts,
    brain_tiles,
    byte_parts,
    byte_tiles,
)
from tilewright.backends.host.kernels.lanes import whole
from tilewright.backends.host.kernels.rows import channels_task, rows_task
from tilewright.backends.host.kernels.step import call
from tilewright.backends.host.kernels.step_table import CODE, SIZE, TASKS
from tilewright.backends.host.kernels.values import blend_task, elements_task, pool_task
from tilewright.backends.host.kernels.whole_sum import sum_task


@njit(nogil=True, cache=True)
def run(steps, count, counters, scratch, own, threads, patience):
    """The part of thread `own`, of so many, in all of `count` steps.

    steps     address of their records
    counters  address of int64 [steps, threads + 1, 8]: tasks taken of every share, and tasks done;
              0 before the first thread
    scratch   address of this thread's own memory
    patience  looks at what others do before the core is offered to others
    """
    for number in range(count):
        step = steps + SIZE * number
        tasks, code = whole(step, TASKS), whole(step, CODE)
        line = counters + 64 * (threads + 1) * number
        finished = 0
        for ahead in range(threads):
            share = (own + ahead) % threads
            first = tasks * share // threads
            own_tasks = tasks * (share + 1) // threads - first
            while seen(line + 64 * share) < own_tasks:
                task = take(line + 64 * share, 1)
                if task >= own_tasks:
                    break
                call(code, step, first + task, scratch)
                finished += 1
        done = line + 64 * threads
        if finished:
            take(done, finished)
        wait(done, tasks, patience)


# In the order of the kinds that `backends/host/program.py` names.
_TASKS_OF_KINDS = (
    *(direct_task, flat_task, depth_task, spread_task, gather_task, expand_task),
    *(pool_task, blend_task, elements_task, rows_task, channels_task, sum_task),
    *(single_tiles, double_tiles, single_parts, double_parts),
    *(brain_tiles, byte_tiles, brain_parts, byte_parts),
)


@cache
def code_of(kind):
    """Tasks of a kind as machine code that is called by address; its `address` is that."""
    return cfunc(types.void(*[types.intp] * 3), cache=True)(_TASKS_OF_KINDS[kind])


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
