"""Threads that look for the next program a while before they sleep, as machine code sees them.

    line 0  owner     who has the crew: 0, or a number of the program that runs
    line 1  open      whether helpers may begin
    line 2  calls     programs posted so far
    line 3  job       address and number of steps, counters, threads, patience, scratch, its pitch
    then for each helper
    line    inside    1 while it may touch the job
    line    state     AWAY: asleep; CALLED: somebody wakes it; THERE: it looks, or works;
                      and the semaphore that it sleeps at, where the system has them

A helper says that it is inside before it looks whether it may begin; who closes says that none may
before it looks who is inside: so nobody touches what a closed job knew by address.
"""

from __future__ import annotations

from numba import njit

from tilewright.backends.host.kernels.atomics import (
    SEMAPHORES,
    breathe,
    let_others,
    seen,
    sleep_at,
    take,
    tell,
    turn,
    wake_at,
)
from tilewright.backends.host.kernels.conv_steps import run

LINE, JOB, HELPERS, SEMAPHORE = 64, 3 * 64, 4 * 64, 16
AWAY, CALLED, THERE = range(3)


@njit(nogil=True, cache=True)
def post(crew, owner, job):
    """Offer a job, int64 [7], to all helpers; whether the crew was free."""
    if not turn(crew, 0, owner):
        return False
    for index in range(job.size):
        tell(crew + JOB + 8 * index, job[index])
    tell(crew + LINE, 1)
    take(crew + 2 * LINE, 1)
    return True


@njit(cache=True)
def summon(crew, helper):
    """Wake a helper that sleeps; whether it waits for Python to do it, and nobody did yet."""
    state = crew + HELPERS + 2 * LINE * helper + LINE
    if not turn(state, AWAY, CALLED):
        return False
    if SEMAPHORES:
        wake_at(state + SEMAPHORE)
    return not SEMAPHORES


@njit(nogil=True, cache=True)
def close(crew, owner, helpers, patience):
    """Let no helper begin, wait for those inside, and give the crew back, where `owner` has it."""
    if seen(crew) != owner:
        return
    tell(crew + LINE, 0)
    for helper in range(helpers):
        looks = 0
        while seen(crew + HELPERS + 2 * LINE * helper):
            looks += 1
            if looks > patience:
                let_others()
            else:
                breathe()
    tell(crew, 0)


@njit(nogil=True, cache=True)
def serve(crew, helper, linger):
    """Do jobs; sleep, or return to Python to sleep there, once `linger` looks found none."""
    inside = crew + HELPERS + 2 * LINE * helper
    state, calls = inside + LINE, crew + 2 * LINE
    tell(state, THERE)
    known, looks = -1, 0  # whoever was woken has a call to answer
    while True:
        now = seen(calls)
        if now != known:
            known, looks = now, 0
            tell(inside, 1)
            if seen(crew + LINE):
                _work(crew + JOB, helper + 1)
            tell(inside, 0)
            continue
        looks += 1
        if looks <= linger:
            breathe()
            continue
        tell(state, AWAY)
        if seen(calls) == known or not turn(state, AWAY, THERE):
            if not SEMAPHORES:
                return
            sleep_at(state + SEMAPHORE)
            tell(state, THERE)
        looks = 0


@njit(cache=True)
def _work(job, own):
    """The part of thread `own`."""
    threads = seen(job + 24)
    if own < threads:
        scratch = seen(job + 40) + own * seen(job + 48)
        run(seen(job), seen(job + 8), seen(job + 16), scratch, own, threads, seen(job + 32))
