"""Makes a network ready for one batch size, to be run again and again: in Numba's kernels or NumPy.

compile_program -> NativeProgram (steps_host.py: Numba's kernels)   where Numba is installed
                -> NumpyProgram  (`Layer.compute`, layer by layer)      elsewhere
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.nn.buffers import Buffer
from tilewright.nn.layers.base import Layer
from tilewright.nn.steps import Step, Timing
from tilewright.nn.value import Value


def compile_program(
    layers: Sequence[Layer],
    values: Mapping[str, Value],
    output: str,
    images: int,
    *,
    keep: bool = False,
) -> NativeProgram | NumpyProgram:
    """The fastest program that this machine has; `keep` every stored value, as `trace` needs."""
    if compiled.available() and images:
        from tilewright.nn.steps_host import build

        built = build(layers, values, output, images, keep=keep)
        return NativeProgram(images, tuple(built.steps), built.buffers, output, built.bytes)
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


def evaluate(layers: Sequence[Layer], values: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """All values of the layers in NumPy, from those that are given by name."""
    found = dict(values)
    for layer in layers:
        found[layer.name] = layer.compute(*(found[name] for name in layer.inputs))
    return found


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
        return evaluate(self.layers, {"input": x})

    def profile(self, x: NDArray, repeats: int) -> tuple[Timing, ...]:
        """Every layer timed."""
        values, timings = {"input": x}, []
        for layer in self.layers:
            found = []
            for _ in range(repeats):
                begun = time.perf_counter()
                values[layer.name] = layer.compute(*(values[i] for i in layer.inputs))
                found.append(time.perf_counter() - begun)
            kind = f"{type(layer).__name__} in NumPy"
            timings.append(Timing((layer.name,), kind, statistics.median(found)))
        return tuple(timings)


Program = NativeProgram | NumpyProgram
