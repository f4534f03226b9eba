"""Threads that run programs of steps together, and look for the next one a while before they sleep.

Waking a thread and hearing that it is done took a third of a millisecond a call between them, a
tenth of MobileNetV2. So a helper that finishes looks for another program for `LINGER` seconds, in
machine code that holds no lock of the interpreter's; then it sleeps and costs nothing: where there
are semaphores, in machine code too, as who waits for that lock misses programs of 0.1 ms for 5 ms.
Who finds the crew at work for another thread runs alone.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from functools import cache
from queue import SimpleQueue

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.backends.host.threads import Task

LINGER = 1e-3  # seconds; OpenMP's runtimes wait 0.2 s, those of onnxruntime about one millisecond
_ENOUGH = 1.0  # seconds that the end of the process waits for helpers to leave


class Crew:
    """So many helpers."""

    def __init__(self, helpers: int) -> None:
        self._kernels = compiled.kernels("crew")
        self._helpers = helpers
        room = np.zeros((5 + 2 * helpers) * 8, np.int64)
        skip = -room.ctypes.data % 64 // 8
        self._words = room[skip : skip + (4 + 2 * helpers) * 8]  # lines of the cache
        self._base = self._words.ctypes.data
        self._linger = looks(LINGER)
        self._queues = [self._started(number) for number in range(helpers)]
        atexit.register(self._dismiss)

    def run(self, job: NDArray, lead: Task) -> None:
        """`lead`, which does all that nobody else does, beside helpers that come in time.

        job   int64 [7], as `kernels/crew` has it; read no more once this returns, however it does
        """
        owner = job.ctypes.data
        try:
            if self._kernels.post(self._base, owner, job):
                self._wake()
            lead()
            self._close(owner)
        except BaseException:  # Ctrl-C: helpers are waited for all the same
            self._close(owner)
            if not self._kernels.SEMAPHORES:
                for queue in self._queues:  # one may count as called, and was not
                    queue.put(None)
            raise

    def _wake(self) -> None:
        """Those that sleep."""
        for number, queue in enumerate(self._queues):
            if self._kernels.summon(self._base, number):
                queue.put(None)

    def is_asleep(self) -> bool:
        """Whether every helper is."""
        return not self._words[40::16].any()

    def is_taken(self) -> bool:
        """Whether a program runs on it."""
        return bool(self._words[0])

    def _close(self, owner: int) -> None:
        self._kernels.close(self._base, owner, self._helpers, self._linger)

    def _started(self, number: int) -> SimpleQueue[None]:
        queue: SimpleQueue[None] = SimpleQueue()

        def serve() -> None:
            while True:
                self._kernels.serve(self._base, number, self._linger)
                queue.get()

        name = f"tilewright-steps-{number}"
        threading.Thread(target=serve, name=name, daemon=True).start()
        return queue

    def _dismiss(self) -> None:
        """The process ends: machine code must not look at memory that goes."""
        begun = time.perf_counter()
        while not self.is_asleep() and time.perf_counter() - begun < _ENOUGH:
            time.sleep(LINGER)


@cache
def looks(seconds: float) -> int:
    """How often a waiting thread looks at a counter in so many seconds."""
    look, count = compiled.kernels("conv_steps").look, 1 << 14
    counter = np.zeros(1, np.int64)
    look(counter.ctypes.data, count)
    begun = time.perf_counter()
    look(counter.ctypes.data, count)
    return int(count * seconds / max(time.perf_counter() - begun, 1e-7))


_LOCK = threading.RLock()  # a handler may want a crew while this thread makes one
_crews: dict[int, Crew] = {}


def crew_of(helpers: int) -> Crew:
    """The process's crew of so many helpers."""
    known = _crews.get(helpers)
    if known is not None:
        return known
    with _LOCK:
        return _crews.get(helpers) or _crews.setdefault(helpers, Crew(helpers))


def _after_fork() -> None:
    """A child has none of its parent's threads, and may have its lock as another held it."""
    global _LOCK
    _LOCK = threading.RLock()
    for crew in _crews.values():
        atexit.unregister(crew._dismiss)
    _crews.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
