"""A network made ready for one batch size: passes with their buffers, to be run again and again.

compile_program -> NativeProgram (native_steps.py: Numba's kernels)   where Numba is installed
                -> NumpyProgram  (reference.py: layer by layer)       elsewhere
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.backends.host import compiled
from tilewright.onebit import reference
from tilewright.onebit.buffers import Buffer
from tilewright.onebit.layers import Layer, Value
from tilewright.remember import Shelf

NDArray = npt.NDArray[Any]
# What networks and convolutions were made ready with, for the batch sizes they ran last. A program
# belongs to its network and goes with it.
PROGRAMS: Shelf[tuple[int, tuple[int, ...]], Any] = Shelf("one-bit programs", most=2 << 30)


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of a pass, and the layers that it does."""

    layers: tuple[str, ...]
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """A pass as it is run: nothing to pass in, nothing to allocate."""

    layers: tuple[str, ...]
    kind: str
    run: Callable[[], object]


class Program(Protocol):
    """A network for batches of `images`."""

    @property
    def images(self) -> int:
        """Images of a batch."""

    @property
    def bytes(self) -> int:
        """Memory that it holds."""

    def run(self, x: NDArray) -> NDArray:
        """The output of a batch [images, height, width, channels], float32."""

    def trace(self, x: NDArray) -> dict[str, NDArray]:
        """Every stored value of a batch."""

    def profile(self, x: NDArray, repeats: int) -> tuple[Timing, ...]:
        """Median seconds of every pass."""


def compile_program(
    layers: Sequence[Layer],
    values: Mapping[str, Value],
    output: str,
    images: int,
    *,
    keep: bool = False,
) -> Program:
    """The fastest program that this machine has; `keep` every stored value, as `trace` needs."""
    if compiled.available() and images:
        from tilewright.onebit.native_steps import build

        built = build(layers, values, output, images, keep=keep)
        return NativeProgram(images, built.steps, built.buffers, output, built.bytes)
    return NumpyProgram(images, tuple(layers), output)


@dataclass(frozen=True, eq=False)
class NativeProgram:
    """Steps on buffers; one caller at a time."""

    images: int
    steps: tuple[Step, ...]
    buffers: Mapping[str, Buffer]
    output: str
    bytes: int

    def run(self, x: NDArray) -> NDArray:
        """One pass after another."""
        with compiled.LOCK:
            self._fill(x)
            for step in self.steps:
                step.run()
            return self.buffers[self.output].values().astype(np.float32)

    def trace(self, x: NDArray) -> dict[str, NDArray]:
        """What lies in the buffers after a run; needs a program compiled with `keep`."""
        with compiled.LOCK:
            self.run(x)
            return {name: buffer.values().copy() for name, buffer in self.buffers.items()}

    def _fill(self, x: NDArray) -> None:
        np.copyto(self.buffers["input"].images(), x)

    def profile(self, x: NDArray, repeats: int) -> tuple[Timing, ...]:
        """Every pass timed in its place among the others."""
        times: list[list[float]] = [[] for _ in self.steps]
        with compiled.LOCK:
            self._fill(x)
            for repeat in range(repeats + 1):
                for step, found in zip(self.steps, times, strict=True):
                    begun = time.perf_counter()
                    step.run()
                    if repeat:  # the first compiles
                        found.append(time.perf_counter() - begun)
        return tuple(
            Timing(step.layers, step.kind, statistics.median(found))
            for step, found in zip(self.steps, times, strict=True)
        )


@dataclass(frozen=True, eq=False)
class NumpyProgram:
    """Layer by layer in NumPy: slow, exact, always there."""

    images: int
    layers: tuple[Layer, ...]
    output: str
    bytes: int = 0  # the layers are the network's

    def run(self, x: NDArray) -> NDArray:
        """The output alone."""
        return self.trace(x)[self.output].astype(np.float32)

    def trace(self, x: NDArray) -> dict[str, NDArray]:
        """All values."""
        return reference.evaluate(self.layers, {"input": x})

    def profile(self, x: NDArray, repeats: int) -> tuple[Timing, ...]:
        """Every layer timed."""
        values, timings = {"input": x}, []
        for layer in self.layers:
            found = []
            for _ in range(repeats):
                begun = time.perf_counter()
                values[layer.name] = reference.apply(layer, *(values[i] for i in layer.inputs))
                found.append(time.perf_counter() - begun)
            kind = f"{type(layer).__name__} in NumPy"
            timings.append(Timing((layer.name,), kind, statistics.median(found)))
        return tuple(timings)
