"""The probes behind `tilewright peak` on NVIDIA GPUs: the most that each part of the chip gives.

Registers: multiply-add chains by type and number of chains. Tensor cores: mma by warps, wgmma by
four warps where the chip has it. Memory: reads of every working set, a copy, shared memory, both
ways to the host, launches. The kernels are those of peak.cu, compiled by NVRTC, so GPUs of
AMD have no probes here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from tilewright.backends.cuda.machine import driver, nvrtc
from tilewright.engines.backend import Timing
from tilewright.engines.probes import Effort, Probe, distant_step, launches, parts_of
from tilewright.errors import DeviceError
from tilewright.facts.ceilings import READ, Bandwidth, Rate
from tilewright.facts.device import Device
from tilewright.remember import once

_BLOCK = 256  # threads
_BLOCKS = 16  # a multiprocessor, for kernels of few registers
_STEPS = 8  # that a round unrolls
_WGMMA_SHARED = (2 * 64 * 64 + 64 * 256) * 2 + 1024  # bytes: two left operands, one right
_AMPERE = 8  # compute capability of the first mma with bfloat16
Source = Callable[[], Any]  # bytes with something in them


def probes(device: Device, effort: Effort) -> Iterator[Probe]:
    """Every row of a GPU. Raises DeviceError where NVRTC cannot be used, as on ROCm."""
    missing = nvrtc.missing() if device.platform == "CUDA" else "kernels are compiled by NVRTC"
    if missing is not None:
        raise DeviceError(f"device={device.id!r}: its probes cannot be built: {missing}")
    gpu = _Gpu(device)
    for dtype in ("float64", "float32"):
        for chains in effort.chains:
            yield _multiply_adds(gpu, dtype, chains)
    for dtype in ("float16", "bfloat16"):
        yield from _tensor_cores(gpu, dtype, effort)
    yield from _memory(gpu, effort)
    yield from _launches(gpu)


class _Gpu:
    """One GPU: kernels by name, a place for results, and both clocks."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.torch = driver.need()
        self.ordinal = driver.ordinal_of(device)
        self.where = self.torch.device("cuda", self.ordinal)
        self.units = device.compute_units

    @once
    def out(self) -> Any:
        """Eight bytes for every thread of the largest launch."""
        return self.empty(8 * 32 * self.units * _BLOCK)

    def empty(self, size: int) -> Any:
        """`size` bytes on the GPU. Raises DeviceError where there is no room."""
        try:
            return self.torch.empty(size, dtype=self.torch.uint8, device=self.where)
        except self.torch.OutOfMemoryError as error:
            raise DeviceError(f"device={self.device.id!r}: no room for {size} bytes") from error

    def enqueue(
        self, name: str, blocks: int, values: tuple[Any, ...], defines: nvrtc.Defines, shared: int
    ) -> None:
        """One launch of a kernel of peak.cu on torch's current stream."""
        function = nvrtc.function(f"peak:{name}", defines, self.ordinal, shared=shared)
        function.launch(blocks, _BLOCK, nvrtc.Arguments(values))

    def timed(self, enqueue: Callable[[], None]) -> Timing:
        """What `enqueue` enqueues until it is done: the events around it, and both clocks."""
        torch = self.torch
        with torch.cuda.device(self.ordinal):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()

            def work() -> None:
                start.record()
                enqueue()
                end.record()
                torch.cuda.synchronize()

            return Timing.of(work, lambda: float(start.elapsed_time(end)) * 1e-3)

    def kernel(
        self,
        name: str,
        blocks: int,
        values: Callable[[int], tuple[Any, ...]],
        defines: nvrtc.Defines = (),
        shared: int = 0,
    ) -> Callable[[int], Timing]:
        """`run(rounds)` of a probe: one launch with the arguments that `values(rounds)` gives."""
        return lambda rounds: self.timed(
            lambda: self.enqueue(name, blocks, values(rounds), defines, shared)
        )


def _pointer(held: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(held.data_ptr())


def _multiply_adds(gpu: _Gpu, dtype: str, chains: int) -> Probe:
    number = ctypes.c_double if dtype == "float64" else ctypes.c_float
    blocks = _BLOCKS * gpu.units
    run = gpu.kernel(
        "multiply_add",
        blocks,
        lambda rounds: (_pointer(gpu.out), number(0.5), number(0.5), ctypes.c_int(rounds)),
        (("CHAINS", chains), ("DOUBLE", int(dtype == "float64"))),
    )
    return Probe(Rate(dtype, "fma", 1, chains), 2.0 * chains * _STEPS * blocks * _BLOCK, run)


def _tensor_cores(gpu: _Gpu, dtype: str, effort: Effort) -> Iterator[Probe]:
    brain = ("BF16", int(dtype == "bfloat16"))
    major = int(gpu.device.version.removeprefix("sm_")[:-1])
    values: Callable[[int], tuple[Any, ...]] = lambda rounds: (  # noqa: E731
        _pointer(gpu.out),
        ctypes.c_int(rounds),
    )
    if major >= _AMPERE:
        blocks = 2 * gpu.units
        for chains in effort.chains:
            run = gpu.kernel("tensor_warp", blocks, values, (("CHAINS", chains), brain))
            work = 2.0 * 16 * 8 * 16 * chains * _STEPS * blocks * (_BLOCK // 32)
            yield Probe(Rate(dtype, "mma", 1, chains), work, run)
    if gpu.device.has("wgmma"):
        blocks, work = gpu.units, 2.0 * 2 * 64 * 256 * 64 * gpu.units
        run = gpu.kernel("tensor_group", blocks, values, (("HOPPER", 1), brain), _WGMMA_SHARED)
        yield Probe(Rate(dtype, "wgmma", 1, 2), work, run)


def _memory(gpu: _Gpu, effort: Effort) -> Iterator[Probe]:
    sizes = [size for size in effort.sizes if size <= gpu.device.memory // 8]
    blocks = 8 * gpu.units
    yield Probe(
        Bandwidth("shared read", 16 * 8 * _BLOCK),
        16.0 * 8 * _BLOCK * blocks,
        gpu.kernel("shared_sum", blocks, lambda rounds: (_pointer(gpu.out), ctypes.c_int(rounds))),
    )
    if not sizes:
        return
    source = cache(lambda: gpu.empty(sizes[-1]).fill_(1))  # made on first need, and held
    for size in sizes:
        yield _read(gpu, source, size, blocks)
    yield _copy(gpu, source, sizes[-1])
    yield from _transfers(gpu, source, sizes[len(sizes) * 3 // 4])


def _read(gpu: _Gpu, source: Source, size: int, blocks: int) -> Probe:
    parts, count = parts_of(size // 16, blocks, 4 * _BLOCK)
    run = gpu.kernel(
        "read_sum",
        blocks,
        lambda rounds: (
            _pointer(source()),
            _pointer(gpu.out),
            *map(ctypes.c_int, (parts, count, distant_step(parts), rounds)),
        ),
    )
    return Probe(Bandwidth(READ, size), 16.0 * count * blocks, run)


def _copy(gpu: _Gpu, source: Source, size: int) -> Probe:
    half = size // 2

    def copies(rounds: int) -> None:
        first = source().data_ptr()
        places = (ctypes.c_void_p(first), ctypes.c_void_p(first + half))
        for _ in range(rounds):
            gpu.enqueue("copy", 32 * gpu.units, (*places, ctypes.c_longlong(half // 16)), (), 0)

    run: Callable[[int], Timing] = lambda rounds: gpu.timed(partial(copies, rounds))  # noqa: E731
    return Probe(Bandwidth("copy", size), 2.0 * (half // 16 * 16), run)


def _transfers(gpu: _Gpu, source: Source, size: int) -> Iterator[Probe]:
    """Copies between pinned memory of the host and the GPU's."""
    torch = gpu.torch
    pinned = cache(lambda: torch.ones(size, dtype=torch.uint8, device="cpu").pin_memory())

    def run(back: bool, rounds: int) -> Timing:
        there, here = source()[:size], pinned()
        target, origin = (here, there) if back else (there, here)

        def copies() -> None:
            for _ in range(rounds):
                target.copy_(origin, non_blocking=True)

        return gpu.timed(copies)

    for path, back in (("host to device", False), ("device to host", True)):
        yield Probe(Bandwidth(path, size), float(size), partial(run, back))


def _launches(gpu: _Gpu) -> Iterator[Probe]:
    def launched(count: int) -> Timing:
        def enqueue() -> None:
            for _ in range(count):
                gpu.enqueue("empty", 1, (), (), 0)

        return gpu.timed(enqueue)

    yield from launches(launched)
