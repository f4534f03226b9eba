"""Runs tasks on all cores of the host: threads wait on a queue, and each takes the next task."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue

Task = Callable[[], object]


def in_parallel(tasks: Sequence[Task], cores: int) -> None:
    """Run all tasks on `cores` threads, this one among them; each takes the next when done.

    Nothing is raised before all threads are done, Ctrl-C neither, at whatever moment it comes: they
    write to arrays of the caller's.
    """
    if len(tasks) < 2 or cores < 2:
        for task in tasks:
            task()
        return
    job = _Tasks(tasks)
    try:
        queue = _helpers(cores - 1)
        for _ in range(min(cores, len(tasks)) - 1):
            queue.put(job.help_out)
        job.take(Exception)
        job.settle()
    except BaseException:  # Ctrl-C: the helpers are waited for all the same
        job.settle()
        raise
    if job.errors:
        raise job.errors[0]


class _Tasks:
    """Tasks that several threads take from, and how many helpers are at it.

    Helpers count themselves, as no interrupt reaches them; whether the main thread was interrupted
    before or after it woke one is nothing that has to be known.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.errors: list[BaseException] = []
        self._tasks = tasks
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._open, self._active = True, 0
        self._idle = threading.Event()

    def take(self, kind: type[BaseException]) -> None:
        """Run tasks until none is left; errors of a kind are kept for the end."""
        while (number := next(self._numbers)) < len(self._tasks):
            try:
                self._tasks[number]()
            except kind as raised:
                self.errors.append(raised)

    def help_out(self) -> None:
        """What a helper does; nothing where it wakes too late."""
        with self._lock:
            self._active += 1
        if self._open:
            self.take(BaseException)
        with self._lock:
            self._active -= 1
            if not self._active:
                self._idle.set()

    def settle(self) -> None:
        """Let no other helper begin, and wait for those that did.

        Without the lock, which an interrupt might leave locked: a helper counts itself before it
        looks whether it may begin, and here it is the other way round.
        """
        self._open = False
        while self._active and not self._idle.is_set():
            try:
                self._idle.wait()
            except KeyboardInterrupt as raised:
                self.errors.append(raised)


@cache
def _helpers(threads: int) -> SimpleQueue[Task]:
    """Threads that wait on a queue: half the latency of an executor and its futures."""
    queue: SimpleQueue[Task] = SimpleQueue()

    def serve() -> None:
        while True:
            queue.get()()

    for number in range(threads):
        threading.Thread(target=serve, name=f"tilewright-bits-{number}", daemon=True).start()
    return queue


if hasattr(os, "register_at_fork"):  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)
