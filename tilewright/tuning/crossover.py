"""The probe of a device, of about two seconds: curves of its best kernels beside NumPy's BLAS.

Squares first, then products with one narrow side (narrow.py), which together give the crossover
with the host and the boundaries of the shape classes. Measured once a device, driver, dtype and
version of the kernels, then read from the store. Host and device are timed in blocks of their own,
not in turns: BLAS threads keep spinning for a while after a product and would take the cores from
an OpenCL driver on the same processor.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from tilewright.backends import Backend
from tilewright.device import Device
from tilewright.errors import DeviceError, KernelError
from tilewright.kernel import Kernel, Plan, Priors
from tilewright.planning import plan_kernel
from tilewright.planning.classes import Boundaries
from tilewright.planning.cost import Curve, Measured, Narrow
from tilewright.tuning import narrow, store
from tilewright.tuning.trial import Shape, Trial

SIZES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_BUDGET = 0.6  # seconds a curve may take
_SPIN = 0.05  # seconds for which BLAS threads keep a core busy after their last product
_HOPELESS = 2.0  # a kernel this many times slower than the best so far is not measured further
_BANDWIDTH_BYTES = 1 << 25
_lock = threading.Lock()


def measured(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured:
    """The curves of a device for one dtype: from memory, from the store, or measured now."""
    with _lock:
        return _measured(device, backend, dtype, priors)


def known(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured | None:
    """The same, but from the store alone: nothing is measured."""
    return _stored(_key(device, priors), dtype)


@cache
def _measured(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured:
    key = _key(device, priors)
    found = _stored(key, dtype)
    if found is not None:
        return found
    fresh = _probe(device, backend, dtype, priors)
    both = partial(_with, dtype, _to_json(fresh))
    store.update(store.MEASURED, store.digest(key), both, key)
    return fresh


def _with(dtype: str, curves: dict[str, Any], content: store.Content) -> store.Content:
    """Beside the curves of other dtypes, which other processes may have stored meanwhile."""
    return {**content, dtype: curves}


def _stored(key: str, dtype: str) -> Measured | None:
    stored = store.load(key)
    if dtype not in stored:
        return None
    try:
        return _from_json(stored[dtype])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # written by hand or by another version: to be measured again and replaced


def _key(device: Device, priors: Priors) -> str:
    host = hashlib.sha256(repr(np.show_config(mode="dicts")).encode()).hexdigest()[:8]
    return f"crossover|{device.key}|{priors.digest}|{host}"


def _probe(device: Device, backend: Backend, dtype: str, priors: Priors) -> Measured:
    by_name = {kernel.name: kernel for kernel in backend.kernels(device)}
    trials = _Trials(device, backend, dtype)
    host = _curve(trials.host, None)
    sides = {"host": narrow.factors(narrow.measure(trials.host, {}), host, _useful)}
    time.sleep(_SPIN)
    curves: dict[str, Curve] = {}
    best: narrow.Seconds = {}
    for name in dict.fromkeys((*priors.kernels, *by_name)):
        if name not in by_name:
            continue
        # Whatever the rules say: what moves nothing beforehand may win where all is small.
        if name not in priors.kernels and not trials.moves_nothing(by_name[name]):
            continue
        run, computed = trials.of(by_name[name]), trials.computed(by_name[name])
        try:
            curve = _curve(run, next(iter(curves.values()), None))
            seconds = narrow.measure(run, best)
        except (DeviceError, KernelError):
            continue  # a driver that refuses this kernel costs it its place, nothing more
        curves[name], sides[name] = curve, narrow.factors(seconds, curve, computed)
        best = narrow.best_of(best, seconds)
    return Measured(
        host=host,
        curves=tuple(curves.items()),
        bandwidth=_bandwidth(),
        transfer=_transfer(trials, by_name, curves),
        narrow=tuple(sides.items()),
        boundaries=narrow.boundaries(curves, best),
    )


def _curve(product: narrow.Run, best: Curve | None) -> Curve:
    """Least times over SIZES, ascending, until the budget is spent or `best` is out of reach.

    The least, not the median: whatever else runs on the machine only ever adds to a time, and a
    host measured under load would lose products that are its own.
    """

    def run(size: int) -> float:
        return product(size, size, size)

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


class _Trials:
    """Products on the host and on the device by their sides, operands made once."""

    def __init__(self, device: Device, backend: Backend, dtype: str) -> None:
        self.device, self.backend, self.dtype = device, backend, dtype
        self._accumulate = "float32" if dtype == "float16" else dtype
        self._trial = lru_cache(maxsize=64)(self._make)
        self._plans: dict[tuple[str, int, int, int], Plan] = {}

    def host(self, m: int, n: int, k: int) -> float:
        """Wall seconds of a product by NumPy's BLAS."""
        return self._trial(m, n, k).host_seconds()

    def of(self, kernel: Kernel) -> narrow.Run:
        """Wall seconds of a product by a kernel, operands in place."""
        return lambda m, n, k: self._trial(m, n, k).seconds(self._plan(kernel, m, n, k))

    def computed(self, kernel: Kernel) -> narrow.Run:
        """Multiplications and additions of whole tiles, edges included."""
        return lambda m, n, k: float(self._plan(kernel, m, n, k).step.computed_flops)

    def moves_nothing(self, kernel: Kernel) -> bool:
        """Whether the kernel reads operands where they lie."""
        try:
            return not self._plan(kernel, SIZES[0], SIZES[0], SIZES[0]).step.scratch
        except KernelError:
            return False

    def with_copies(self, kernel: Kernel, size: int) -> float:
        """Wall seconds of a square product from and to the host's memory."""
        return self._trial(size, size, size).copied_seconds(self._plan(kernel, size, size, size))

    def _make(self, m: int, n: int, k: int) -> Trial:
        shape = Shape(m, n, k, self.dtype, self._accumulate)
        return Trial(shape, self.device, self.backend)

    def _plan(self, kernel: Kernel, m: int, n: int, k: int) -> Plan:
        key = (kernel.name, m, n, k)
        if key not in self._plans:
            problem = self._trial(m, n, k).problem
            self._plans[key] = plan_kernel(problem, self.device, kernel)
        return self._plans[key]


def _useful(m: int, n: int, k: int) -> float:
    return 2.0 * m * n * k


def _transfer(
    trials: _Trials, kernels: dict[str, Kernel], curves: dict[str, Curve]
) -> float | None:
    """Bytes a second between host and device; None where nothing has to move.

    What a product takes longer when its operands come from and go to the host's memory.
    """
    if trials.device.has("unified_memory") or not curves:
        return None
    name, curve = next(iter(curves.items()))
    size = SIZES[-1]
    trials.with_copies(kernels[name], size)
    whole = min(trials.with_copies(kernels[name], size) for _ in range(3))
    moved = 3 * size * size * np.dtype(trials.dtype).itemsize
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
        "narrow": {name: asdict(sides) for name, sides in value.narrow},
        "boundaries": asdict(value.boundaries),
    }


def _from_json(document: dict[str, Any]) -> Measured:
    return Measured(
        _points(document["host"]),
        tuple((name, _points(points)) for name, points in document["curves"].items()),
        _positive(document["bandwidth"]),
        None if document["transfer"] is None else _positive(document["transfer"]),
        tuple((name, _narrow(sides)) for name, sides in document["narrow"].items()),
        _boundaries(document["boundaries"]),
    )


def _points(points: Sequence[Sequence[float]]) -> Curve:
    curve = tuple((_positive(flops), _positive(seconds)) for flops, seconds in points)
    if not curve or list(curve) != sorted(curve):
        raise ValueError("a curve without points, or not ascending")
    return Curve(curve)


def _narrow(document: dict[str, Any]) -> Narrow:
    sides = {
        side: tuple((_positive(width), _positive(factor)) for width, factor in document[side])
        for side in "mnk"
    }
    if any(list(points) != sorted(points) for points in sides.values()):
        raise ValueError("widths that do not ascend")
    return Narrow(**sides)


def _boundaries(document: dict[str, Any]) -> Boundaries:
    sides = {name: int(document[name]) for name in ("matrix_vector", "skinny", "small")}
    if min(sides.values()) < 0:
        raise ValueError("a boundary below 0")
    return Boundaries(**sides, measured=bool(document["measured"]))


def _positive(value: Any) -> float:
    if not float(value) > 0:
        raise ValueError(f"{value!r} is not positive")
    return float(value)
