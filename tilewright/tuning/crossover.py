"""The one-second probe of a device: curves of its best kernels beside NumPy's BLAS.

Measured once a device, driver, dtype and version of the kernels, then read from the store. Host and
device are timed in blocks of their own, not in turns: BLAS threads keep spinning for a while after
a product and would take the cores from an OpenCL driver on the same processor.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tilewright.backends import Backend, Scalars
from tilewright.backends.host.backend import multiply
from tilewright.batch import Problem
from tilewright.device import Device
from tilewright.errors import DeviceError, KernelError
from tilewright.kernel import Kernel, Plan, Priors
from tilewright.operands import Array, NDArray, View, view, view_host
from tilewright.planning import plan_kernel
from tilewright.planning.cost import Curve, Measured
from tilewright.tuning import store

SIZES = (96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_BUDGET = 0.6  # seconds a curve may take
_SPIN = 0.05  # seconds for which BLAS threads keep a core busy after their last product
_HOPELESS = 2.0  # a kernel this many times slower than the best so far is not measured further
_BANDWIDTH_BYTES = 1 << 25
_lock = threading.Lock()


def measured(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured:
    """The curves of a device for one dtype: from memory, from the store, or measured now."""
    with _lock:
        return _measured(device, backend, dtype, priors)


@cache
def _measured(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured:
    key = _key(device, priors)
    stored = store.load(key)
    if dtype in stored:
        try:
            return _from_json(stored[dtype])
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # written by hand or by another version: measure again and replace it
    fresh = _probe(device, backend, dtype, priors)
    store.save(key, {**stored, dtype: _to_json(fresh)})
    return fresh


def _key(device: Device, priors: Priors) -> str:
    host = hashlib.sha256(repr(np.show_config(mode="dicts")).encode()).hexdigest()[:8]
    return f"crossover|{device.key}|{priors.digest}|{host}"


def _probe(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured:
    by_name = {kernel.name: kernel for kernel in backend.kernels(device)}
    operands = _Operands(device, backend, dtype)
    host = _curve(operands.time_host, None)
    time.sleep(_SPIN)
    curves: list[tuple[str, Curve]] = []
    for name in priors.kernels:
        if name not in by_name:
            continue
        best = curves[0][1] if curves else None
        try:
            curve = _curve(partial(operands.time, by_name[name]), best)
        except (DeviceError, KernelError):
            continue  # a driver that refuses this kernel costs it its place, nothing more
        curves.append((name, curve))
    return Measured(
        host=host,
        curves=tuple(curves),
        bandwidth=_bandwidth(),
        transfer=_transfer(operands, by_name, curves),
    )


def _curve(run: Callable[[int], float], best: Curve | None) -> Curve:
    """Least times over SIZES, ascending, until the budget is spent or `best` is out of reach.

    The least, not the median: whatever else runs on the machine only ever adds to a time, and a
    host measured under load would lose products that are its own.
    """
    points = []
    spent = 0.0  # of the products alone: the first of a size may compile for seconds
    for size in SIZES:
        run(size)
        first = run(size)
        repeats = int(np.clip(0.05 / max(first, 1e-6), 4, 25))
        times = [first, *(run(size) for _ in range(repeats))]
        seconds = min(times)
        spent += sum(times)
        flops = 2.0 * size**3
        points.append((flops, seconds))
        if spent + 5 * seconds > _BUDGET:
            break
        if best is not None and seconds > _HOPELESS * best.seconds(flops):
            break
    return Curve(tuple(points))


class _Operands:
    """Random square matrices, on the host and on the device."""

    def __init__(self, device: Device, backend: Backend, dtype: str) -> None:
        self.device, self.backend = device, backend
        self.dtype = np.dtype(dtype)
        self.accumulate = "float32" if dtype == "float16" else dtype
        self.generator = np.random.default_rng(0)
        self._plans: dict[Any, Plan] = {}
        self._held: dict[int, tuple[dict[str, View], dict[str, View]]] = {}

    def _views(self, size: int) -> tuple[dict[str, View], dict[str, View]]:
        if size not in self._held:
            host = [self.generator.random((size, size)).astype(self.dtype) for _ in range(3)]
            names = ("a", "b", "c")
            device = {
                name: view(self._to_device(array), name)
                for name, array in zip(names, host, strict=True)
            }
            on_host = {name: view_host(array) for name, array in zip(names, host, strict=True)}
            self._held[size] = (on_host, device)
        return self._held[size]

    def _to_device(self, array: NDArray) -> Any:
        if self.device.has("svm_system"):
            return array
        memory = self.backend.allocate(array.nbytes, self.device, "allocate", array)
        return Array(memory, array.shape, array.dtype)

    def _problem(self, size: int) -> Problem:
        strides = (size, 1) * 3
        return Problem(
            size,
            size,
            size,
            *strides,
            dtype=self.dtype.name,
            accumulate=self.accumulate,
            aligned=True,
        )

    def time(self, kernel: Kernel, size: int) -> float:
        """Wall seconds of one product on the device, operands in place."""
        key = (kernel.name, size)
        if key not in self._plans:
            self._plans[key] = plan_kernel(self._problem(size), self.device, kernel)
        _, device = self._views(size)
        return self.backend.time(self._plans[key], device, Scalars()).wall

    def time_host(self, size: int) -> float:
        """Wall seconds of the same product by NumPy's BLAS."""
        views, _ = self._views(size)
        begun = time.perf_counter()
        multiply(views["a"].memory, views["b"].memory, views["c"].memory, Scalars(), None, "none")
        return time.perf_counter() - begun

    def time_with_copies(self, kernel: Kernel, size: int) -> float:
        """Wall seconds of the same product from and to the host's memory."""
        plan = plan_kernel(self._problem(size), self.device, kernel)
        host, _ = self._views(size)
        begun = time.perf_counter()
        self.backend.run(plan, host, Scalars())
        return time.perf_counter() - begun


def _transfer(
    operands: _Operands, kernels: dict[str, Kernel], curves: list[tuple[str, Curve]]
) -> float | None:
    """Bytes a second between host and device; None where nothing has to move.

    What a product takes longer when its operands come from and go to the host's memory.
    """
    if operands.device.has("unified_memory") or not curves:
        return None
    name, curve = curves[0]
    size = SIZES[-1]
    operands.time_with_copies(kernels[name], size)
    whole = min(operands.time_with_copies(kernels[name], size) for _ in range(3))
    moved = 3 * size * size * operands.dtype.itemsize
    return moved / max(whole - curve.seconds(2.0 * size**3), 1e-6)


def _bandwidth() -> float:
    """Bytes a second, read and written, of a large copy in the host's memory."""
    source = np.ones(_BANDWIDTH_BYTES, np.uint8)
    target = np.empty_like(source)
    seconds = []
    for _ in range(4):
        begun = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begun)
    return 2 * source.nbytes / min(seconds)


def _to_json(value: Measured) -> dict[str, Any]:
    return {
        "host": value.host.points,
        "curves": {name: curve.points for name, curve in value.curves},
        "bandwidth": value.bandwidth,
        "transfer": value.transfer,
    }


def _from_json(document: dict[str, Any]) -> Measured:
    return Measured(
        _points(document["host"]),
        tuple((name, _points(points)) for name, points in document["curves"].items()),
        _positive(document["bandwidth"]),
        None if document["transfer"] is None else _positive(document["transfer"]),
    )


def _points(points: Sequence[Sequence[float]]) -> Curve:
    curve = tuple((_positive(flops), _positive(seconds)) for flops, seconds in points)
    if not curve or list(curve) != sorted(curve):
        raise ValueError("a curve without points, or not ascending")
    return Curve(curve)


def _positive(value: Any) -> float:
    if not float(value) > 0:
        raise ValueError(f"{value!r} is not positive")
    return float(value)
