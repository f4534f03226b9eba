"""The probes behind `tilewright peak` on the host: registers, NumPy's BLAS, memory.

Registers are driven by code that Numba compiles, a thread a core; without Numba the best product of
the BLAS stands for them. Working sets below 1 MiB are left out: Python's call would be measured.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host import compiled
from tilewright.backends.host.backend import multiply
from tilewright.backends.host.epilogue import fixed
from tilewright.backends.host.native import NumbaEngine
from tilewright.backends.host.rates import counts_by
from tilewright.engines.backend import Timing
from tilewright.engines.bits import BitProblem, BitWork
from tilewright.engines.probes import BRIEF, Effort, Probe
from tilewright.facts.ceilings import FMA, READ, Bandwidth, Latency, Rate
from tilewright.facts.device import Device
from tilewright.facts.scalars import Scalars
from tilewright.remember import once

_LEAST_SET = 1 << 20
_REGISTER = (16, 64)  # bytes of the narrowest and the widest


def probes(device: Device, effort: Effort) -> Iterator[Probe]:
    """Every row of the host."""
    if find_spec("numba") is not None:
        for dtype in ("float64", "float32"):
            yield from _registers(device, dtype, effort)
        yield _bits(device)
    for dtype in reversed(device.dtypes):
        for side in effort.sides:
            yield _product(dtype, side)
    sizes = [size for size in effort.sizes if _LEAST_SET <= size <= device.memory // 8]
    for size in sizes:
        yield _read(size)
    if sizes:
        yield _copy(sizes[-1])
    one = np.ones((1, 1), np.float32)
    out = np.empty_like(one)
    yield Probe(Latency("numpy.matmul of 1 x 1"), 1.0, _timed(lambda: np.matmul(one, one, out)))


def brief(device: Device, *, bits: bool) -> Iterator[Probe]:
    """What predictions of the host's engines go by: a few rows, milliseconds each; or that of bits.

    The registers are driven in the widest vectors of what Numba compiles for.
    """
    if bits:
        yield _bits(device)
        return
    vectors = (compiled.kernels("popcounts").FLOATS,)
    yield from _registers(device, "float32", replace(BRIEF, vectors=vectors))
    yield _product("float32", BRIEF.sides[0])
    yield _read(BRIEF.sizes[0])


def _registers(device: Device, dtype: str, effort: Effort) -> Iterator[Probe]:
    """Fused multiply-adds on all cores, in every vector that some processor has registers for."""
    itemsize = np.dtype(dtype).itemsize
    for vector in effort.vectors:
        for chains in effort.chains:
            if _REGISTER[0] <= vector * itemsize <= _REGISTER[1]:
                run = _Chains(dtype, vector, chains, device.compute_units)
                work = 2.0 * vector * chains * run.steps * device.compute_units
                row = Rate(dtype, FMA, vector, chains)
                yield Probe(row, work, run, device.compute_units)


class _Chains:
    """`run(rounds)` on a thread a core; compiled at the first run."""

    steps = 8  # a round unrolls

    def __init__(self, dtype: str, vector: int, chains: int, cores: int) -> None:
        self.dtype, self.vector, self.chains, self.cores = dtype, vector, chains, cores

    @once
    def _compiled(self) -> Any:
        # Numba takes a second to import, and its kernels have no Python types.
        kernels: Any = importlib.import_module("tilewright.backends.host.kernels.chains")
        assert self.steps == kernels.STEPS
        return kernels.chains_of(self.dtype, self.vector, self.chains)

    def __call__(self, rounds: int) -> Timing:
        half = np.dtype(self.dtype).type(0.5)  # chains run to 1: no denormals, no infinities
        run = self._compiled
        with ThreadPoolExecutor(self.cores) as pool:
            each = [(half, half, rounds)] * self.cores
            return Timing.of(lambda: list(pool.map(lambda numbers: run(*numbers), each)))


def _bits(device: Device) -> Probe:
    """One-bit products that lie in the caches, as bits are counted in this process."""
    problem = BitProblem(512, 512, 4096)
    words = np.random.default_rng(0).integers(0, 2**64, (512, problem.words), np.uint64)
    out = np.empty((problem.m, problem.n), np.int32)
    work, engine = BitWork(problem, words, fixed(words.copy()), None, None, out), NumbaEngine()
    launch = engine.bind(engine.propose((problem,), device), [work])
    return Probe(Rate("bits", counts_by()), float(problem.operations), _timed(launch))


def _product(dtype: str, side: int) -> Probe:
    a, b, c = (np.random.default_rng(i).random((side, side)).astype(dtype) for i in range(3))
    widened = ", widened to float32" if dtype == "float16" else ""
    row = Rate(dtype, f"numpy.matmul, {side}{widened}")
    return Probe(row, 2.0 * side**3, _timed(lambda: multiply(a, b, c, Scalars(), None, "none")))


def _read(size: int) -> Probe:
    """A dot product of the set's two halves: the one read that a BLAS spreads over all cores."""
    x, y = _filled(size // 2), _filled(size // 2)
    return Probe(Bandwidth(READ, size), float(size), _timed(lambda: np.dot(x, y)))


def _copy(size: int) -> Probe:
    """NumPy copies on one core."""
    source, target = _filled(size // 2), _filled(size // 2)
    row = Bandwidth("copy, one core", size)
    return Probe(row, float(size), _timed(lambda: np.copyto(target, source)))


def _filled(size: int) -> NDArray:
    """Doubles that were written: pages that nobody wrote are all one page of zeros."""
    return np.ones(size // 8)


def _timed(call: Callable[[], object]) -> Callable[[int], Timing]:
    def runs(rounds: int) -> None:
        for _ in range(rounds):
            call()

    return lambda rounds: Timing.of(lambda: runs(rounds))
