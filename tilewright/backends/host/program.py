"""Programs of steps that all cores run together: what bound convolutions of the host are.

    one = engine.bind(...)           a program of one step
    all_of_them = joined(programs)   one call, in which no thread is woken twice

Waking a thread takes 20 µs, as long as many a layer of a network for phones; between the steps of a
program threads meet in less than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.backends.host.crew import crew_of, looks
from tilewright.backends.host.threads import Task
from tilewright.remember import once, open_after_fork

# Kinds of steps: of convolutions, of Winograd's two halves, of `values.py`, of batches.
DIRECT, FLAT, DEPTH, SPREAD, GATHER, EXPAND, POOL, BLEND, ELEMENTS, ROWS, CHANNELS, SUM = range(12)
TILES, TILES_DOUBLE, PARTS, PARTS_DOUBLE = range(12, 16)
TILES_BRAIN, TILES_BYTE, PARTS_BRAIN, PARTS_BYTE = range(16, 20)  # of bfloat16, of int8
_ALONE = 2e-5  # seconds that are shorter than waking another thread
_WAIT = 2e-4  # seconds that a thread looks for the others of its step before it sleeps


class Program:
    """Steps with their addresses; called, it runs them. Two threads that call it take turns."""

    def __init__(
        self,
        steps: NDArray,
        scratch: int,
        cores: int,
        seconds: float,
        keep: Sequence[object],
        planes: int = 0,
    ) -> None:
        self.steps, self.scratch, self.seconds = steps, scratch, seconds
        self.cores = cores
        self.keep = tuple(keep)  # arrays that the steps know by address
        self.planes = planes  # bytes that a step leaves for the next, the same for all that do
        lines = len(steps) * (cores + 1)
        self._counters = np.zeros((lines + 1, 8), np.int64)
        start = -self._counters.ctypes.data // 8 % 8  # to a line of the cache
        self._places = self._counters.reshape(-1)[start : start + 8 * lines]
        self._lock = open_after_fork(Lock())

    @once
    def _memory(self) -> NDArray:
        """A thread's own, a row for each, lines of the cache. Of zeros: what a tile reads beyond a
        row is not used, but denormals would be slow."""
        pitch = (self.scratch + 127) // 64 * 64
        room = np.zeros(self.cores * pitch + 64, np.uint8)
        skip = -room.ctypes.data % 64
        return room[skip : skip + self.cores * pitch].reshape(self.cores, pitch)

    @once
    def _steps(self) -> NDArray:
        """The steps, with a place for what they leave each other: zeros, as denormals are slow."""
        steps = self.steps.copy()
        for kind in np.unique(steps["kind"][steps["tasks"] > 0]).tolist():
            steps["code"][steps["kind"] == kind] = compiled.code_of_step(kind)
        self._between = np.zeros(self.planes + 64, np.uint8)
        at = self._between.ctypes.data
        steps["planes"] = at + -at % 64
        return steps

    def and_then(self, other: object) -> Program | None:
        """One program of both, `other` after this; None where it is none."""
        return joined((self, other)) if isinstance(other, Program) else None

    def __call__(self) -> None:
        """Run all steps."""
        with self._lock:
            self._places[:] = 0
            if self._threads == 1:
                self.part(0)()
            else:
                crew_of(self._threads - 1).run(self._job, self._lead)

    def part(self, own: int) -> Task:
        """What one thread does of a run; counters are cleared before."""
        run, places = compiled.kernels("conv_steps").run, self._places.ctypes.data
        scratch = self._memory[own].ctypes.data
        steps = self._steps.ctypes.data, len(self._steps)
        return partial(run, *steps, places, scratch, own, self._threads, looks(_WAIT))

    @once
    def _lead(self) -> Task:
        return self.part(0)

    @property
    def _threads(self) -> int:
        return self.cores if self.seconds > _ALONE else 1

    @once
    def _job(self) -> NDArray:
        """A run as helpers are told of it: `kernels/crew`."""
        memory, places = self._memory, self._places.ctypes.data
        given = (self._steps.ctypes.data, len(self._steps), places, self._threads, looks(_WAIT))
        return np.array([*given, memory.ctypes.data, memory.strides[0]], np.int64)


def joined(programs: Sequence[Program]) -> Program:
    """One program of all their steps, in this order."""
    return Program(
        np.concatenate([program.steps for program in programs]),
        max(program.scratch for program in programs),
        max(program.cores for program in programs),
        sum(program.seconds for program in programs),
        programs,
        max(program.planes for program in programs),
    )
