"""The host back end: the whole product through `numpy.matmul`, half precision through fp32.

NumPy has no BLAS for float16; widening both operands and rounding once at the end is faster and, as
sums are fp32, as exact as every other back end here.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright import settings
from tilewright.arrays.aligned import aligned_bytes
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import View
from tilewright.backends.host.blas import blas
from tilewright.engines.backend import Backend, Timing
from tilewright.engines.grouped import GroupedKernel
from tilewright.errors import DeviceMemoryError
from tilewright.facts import machine
from tilewright.facts.device import Device
from tilewright.facts.kernel import Plan
from tilewright.facts.scalars import Scalars


class HostMemory:
    """Plain memory, aligned to cache lines; mapping it is nothing."""

    def __init__(self, device: Device, size: int, source: NDArray | None, *, share: bool) -> None:
        self.device = device
        self.mapped = False
        if source is not None and share:
            self._bytes = source.reshape(-1).view(np.uint8)
            return
        none = f"device='host': {device.name} cannot give {size} bytes"
        self._bytes = aligned_bytes(size, none)
        if source is not None:
            np.copyto(self._bytes, source.reshape(-1).view(np.uint8))

    def map(self) -> NDArray:
        """The bytes themselves."""
        self.mapped = True
        return self._bytes

    def unmap(self) -> None:
        """Nothing to hand back."""
        self.mapped = False


class Host(Backend):
    """NumPy's BLAS."""

    name = "host"

    def devices(self) -> tuple[Device, ...]:
        """One."""
        return (_describe(),)

    def grouped(self, device: Device, dtype: str) -> GroupedKernel | None:
        """Micro-kernels by Numba, where that is installed."""
        from tilewright.backends.host import grouped

        return grouped.grouped_of(device, dtype)

    def allocate(self, size: int, device: Device, way: str, source: Any = None) -> HostMemory:
        """Plain memory; "use" shares the source's."""
        return HostMemory(device, size, source, share=way == "use")

    def run(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> None:
        """Compute into views["c"] with numpy.matmul."""
        bias = views.get("bias")
        try:
            multiply(
                views["a"].memory,
                views["b"].memory,
                views["c"].memory,
                scalars,
                None if bias is None else bias.memory,
                plan.problem.activation,
            )
        except MemoryError:
            raise DeviceMemoryError(NO_ROOM) from None

    def time(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> Timing:
        """Wall clock; NumPy has no events."""
        return Timing.of(lambda: self.run(plan, views, scalars))


NO_ROOM = "a, b: the host has no room for copies of operands that its BLAS cannot read in place"


def multiply(
    a: NDArray, b: NDArray, c: NDArray, scalars: Scalars, bias: NDArray | None, activation: str
) -> None:
    """C = activation(alpha A B + beta C + bias) into `c`, the product by NumPy's BLAS.

    Where alpha is 0 A and B are not read, as in BLAS.
    """
    if scalars.alpha == 0:
        a, b = a[..., :0], b[..., :0, :]
    plain = scalars.alpha == 1 and scalars.beta == 0 and bias is None and activation == "none"
    if plain and c.dtype != np.float16:
        np.matmul(a, b, out=c)
        return
    wide: Any = np.float32 if c.dtype == np.float16 else c.dtype.type
    value = np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))
    if scalars.alpha != 1:
        value *= wide(scalars.alpha)
    if scalars.beta != 0:
        value += wide(scalars.beta) * c.astype(wide, copy=False)
    if bias is not None:
        value += bias
    with np.errstate(over="ignore"):
        np.copyto(c, activate(value, activation), casting="same_kind")


def activate(value: NDArray, activation: str) -> NDArray:
    """relu, exact gelu (x times the normal distribution's cumulative at x), or nothing."""
    if activation == "relu":
        clipped: NDArray = np.maximum(value, 0)
        return clipped
    if activation == "gelu":
        smooth = _erf(value * value.dtype.type(math.sqrt(0.5)))
        smooth += 1
        smooth *= value
        smooth *= 0.5
        return smooth
    return value


def _erf(value: NDArray) -> NDArray:
    try:
        from scipy.special import erf
    except ImportError:
        erf = np.frompyfunc(math.erf, 1, 1)
    result: NDArray = np.asarray(erf(value)).astype(value.dtype, copy=False)
    return result


def _describe() -> Device:
    memory = machine.memory()
    return Device(
        id="host",
        backend="host",
        name=_processor_name(),
        vendor=platform.machine(),
        driver=f"NumPy {np.__version__}, {blas()}{settings.as_held()}",
        platform="NumPy",
        kind="cpu",
        compute_units=machine.cores(),
        memory=memory,
        max_allocation=memory,
        features=frozenset({"fp16", "fp64", "unified_memory"}),
    )


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return named(file.read())
    except OSError:
        return named("")


def named(said: str) -> str:
    """The processor that Linux tells of in `/proc/cpuinfo`: its model, or the kinds of its cores,
    `aarch64, cores 0x41/0xd05 0x41/0xd0b` by implementer and part, where ARM's have no name."""
    halves = [line.partition(":") for line in said.splitlines()]
    lines = [(name.strip(), value.strip()) for name, _, value in halves]
    told = [value for name, value in lines if name == "model name" and value]
    makers = [value for name, value in lines if name == "CPU implementer"]
    parts = [value for name, value in lines if name == "CPU part"]
    known = platform.processor() or platform.machine()
    if told or not parts:
        return told[0] if told else known
    cores = sorted({"/".join(pair) for pair in zip(makers, parts, strict=False)})
    return f"{known}, cores {' '.join(cores)}"
