"""Measures a batch of unlike products every way a user could run it, each checked in float64.

    loop of numpy.matmul        one call a problem, into results made beforehand
    loop of tilewright.matmul   the same through this library, operands on the host
    padded to the largest       one numpy.matmul on stacks [G, M, K] and [G, K, N], filled beforehand
    plan, ORDER                 a bound plan, launched; on devices that cannot read the host's
                                memory its operands lie on the device

Ways take turns in blocks, with a rest before each: BLAS threads keep spinning for a while after a
product and would take the cores from an OpenCL driver on the same processor. Medians over all
blocks. Planning and binding are timed apart. Results are NaN beforehand, so that an element that
was never written shows in the error.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright import api, reference
from tilewright.backends import Scalars
from tilewright.backends.host.backend import multiply
from tilewright.batch import Column
from tilewright.device import Device
from tilewright.errors import ArgumentError, TilewrightError
from tilewright.grouped import GroupedPlan, plan_grouped
from tilewright.operands import NDArray
from tilewright.planning.grouped import ORDERS, Balance, lay_out, signature
from tilewright.ragged import RaggedBatch
from tilewright.report.ladder import REST
from tilewright.selection import backend_of, host
from tilewright.tuning import crossover

ALL_ORDERS = (*ORDERS, "auto")
NUMPY_LOOP, OUR_LOOP = "loop of numpy.matmul", "loop of tilewright.matmul"
PADDED = "padded to the largest"
MOST_PADDED = 2 << 30  # bytes
_BLOCK = 0.1  # seconds
_ROUNDS, _FEW, _LONG = 5, 3, 0.3  # a run longer than _LONG is repeated _FEW times
_PLANS = 5
Launch = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Planning:
    """Seconds to plan anew, to find the plan again, and to bind; and what was decided."""

    chosen: str
    reason: str
    anew: float
    cached: float
    bind: float
    predicted: float | None
    balance: Balance | None


@dataclass(frozen=True, slots=True)
class Way:
    """One way, measured: seconds of every counted run, and its error against float64.

    `error` is the largest over all problems, each relative to its largest magnitude or to √k where
    that is larger, as operands are standard normal. `skipped` is why it did not run.
    """

    name: str
    times: tuple[float, ...] = ()
    error: float = 0.0
    planning: Planning | None = None
    skipped: str | None = None

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.times)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The rate that percentages count from, in flops a second, and where it comes from."""

    rate: float
    source: str


@dataclass(frozen=True)
class Report:
    """A batch on a device, every way."""

    title: str
    device: Device
    dtype: str
    seed: int
    m: Column
    n: Column
    k: Column
    ways: tuple[Way, ...]
    ceiling: Ceiling | None

    @property
    def flops(self) -> float:
        """Multiplications and additions of the batch; padding does not count."""
        return flops_of(self.m, self.n, self.k)

    def right(self, way: Way) -> bool:
        """Whether its error is rounding: twice NumPy's, 1e-6, and what a plain sum of k adds."""
        numpy = next((w.error for w in self.ways if w.name == NUMPY_LOOP), 0.0)
        epsilon = float(np.finfo(np.float64 if self.dtype == "float64" else np.float32).eps)
        allowed = 1e-6 + epsilon * float(self.k.max(initial=0)) ** 0.5 + 2 * numpy
        return way.skipped is not None or way.error <= allowed

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names of ways whose results are not right."""
        return tuple(way.name for way in self.ways if not self.right(way))


@dataclass(frozen=True)
class Operands:
    """Random operands on the host, room for results, and the truth in float64."""

    a: list[NDArray]
    b: list[NDArray]
    c: list[NDArray]
    truth: list[NDArray]
    flat: tuple[RaggedBatch, RaggedBatch, RaggedBatch]

    @classmethod
    def random(cls, m: Column, n: Column, k: Column, dtype: str, seed: int) -> Operands:
        """Standard normal; every matrix of an operand in one allocation, 64-byte aligned."""
        generator = np.random.default_rng(seed)
        shapes = ((m, k), (k, n), (m, n))
        a, b, c = (RaggedBatch.empty(np.stack(shape, axis=1), dtype) for shape in shapes)
        for part in (a, b):
            wide = np.float64 if dtype == "float64" else np.float32
            part.flat[...] = generator.standard_normal(part.flat.shape, wide).astype(dtype)
        lists = list(a), list(b), list(c)
        truth = [reference.matmul(x, y) for x, y in zip(lists[0], lists[1], strict=True)]
        return cls(*lists, truth, (a, b, c))

    def error(self, results: Sequence[NDArray]) -> float:
        """As `Way.error`; infinite where an element is NaN."""
        worst = 0.0
        for x, truth, found in zip(self.a, self.truth, results, strict=True):
            if not truth.size:
                continue
            scale = max(float(np.abs(truth).max()), x.shape[1] ** 0.5, 1e-300)
            error = float(np.abs(found - truth).max()) / scale
            worst = max(worst, error if error == error else np.inf)
        return worst


def flops_of(m: Column, n: Column, k: Column) -> float:
    """Multiplications and additions of a batch."""
    return 2.0 * float(np.sum(m.astype(np.float64) * n * k))


def check_fits(m: Column, n: Column, k: Column, dtype: str, device: Device, argument: str) -> None:
    """Raise ArgumentError for a batch that half the device's memory, or this host, cannot hold."""
    rows, cols, depth = (column.astype(np.float64) for column in (m, n, k))
    results = float(np.sum(rows * cols))
    needed = (float(np.sum((rows + cols) * depth)) + results) * np.dtype(dtype).itemsize
    if needed > device.memory / 2:
        raise ArgumentError(
            f"{argument}: operands and results take {needed / 2**20:,.0f} MiB; accepted is up to"
            f" half the memory of {device.id!r}, {device.memory / 2**21:,.0f} MiB"
        )
    # The same again while random numbers are drawn, and the truth in float64.
    if 2 * needed + 8 * results > 0.8 * host().memory:
        raise ArgumentError(
            f"{argument}: takes {(2 * needed + 8 * results) / 2**20:,.0f} MiB of the host with the"
            f" check in float64; accepted is up to {0.8 * host().memory / 2**20:,.0f} MiB"
        )


def measure(
    sizes: tuple[Column, Column, Column],
    device: Device,
    *,
    title: str,
    dtype: str = "float32",
    orders: Sequence[str] = ALL_ORDERS,
    seed: int = 0,
    report: Callable[[str], None] = lambda name: None,
) -> Report:
    """Every way on these sizes; `report` hears each name before it runs for the first time."""
    operands = Operands.random(*sizes, dtype, seed)
    makers: dict[str, Callable[[], _Prepared]] = {
        NUMPY_LOOP: partial(_numpy_loop, operands),
        OUR_LOOP: partial(_our_loop, operands, device),
        PADDED: partial(_padded, operands, sizes, dtype),
        **{f"plan, {o}": partial(_plan, operands, sizes, device, dtype, o) for o in orders},
    }
    prepared: dict[str, _Prepared | str] = {}
    for name, make in makers.items():
        report(name)
        try:
            prepared[name] = _checked(make(), operands)
        except TilewrightError as error:
            prepared[name] = " ".join(str(error).split())
    report("all in turns")
    runs = {name: way for name, way in prepared.items() if isinstance(way, _Prepared)}
    times = _in_turns(runs)
    ways = tuple(
        Way(name, skipped=way)
        if isinstance(way, str)
        else Way(name, tuple(times[name]), way.error, way.planning)
        for name, way in prepared.items()
    )
    ceiling = _ceiling(device, dtype, ways, flops_of(*sizes))
    return Report(title, device, dtype, seed, *sizes, ways, ceiling)


@dataclass(slots=True)
class _Prepared:
    """A way, ready: `launch` computes, `results` reads them afterwards; `first` is one run."""

    launch: Launch
    results: Callable[[], Sequence[NDArray]]
    planning: Planning | None = None
    error: float = 0.0
    first: float = 0.0


def _checked(way: _Prepared, operands: Operands) -> _Prepared:
    """Run once to warm up and once against the clock; the second result is compared."""
    operands.flat[2].flat[...] = np.nan
    way.launch()
    begun = time.perf_counter()
    way.launch()
    way.first = time.perf_counter() - begun
    way.error = operands.error(way.results())
    return way


def _in_turns(ways: dict[str, _Prepared]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(_ROUNDS):
        for name, way in ways.items():
            if turn >= _FEW and way.first > _LONG:
                continue
            time.sleep(REST)
            if way.first < _LONG:
                way.launch()
            times[name] += _block(way.launch)
    return times


def _block(launch: Launch) -> list[float]:
    """Runs until the block is over, one at least."""
    values: list[float] = []
    begun = time.perf_counter()
    while not values or time.perf_counter() - begun < _BLOCK:
        start = time.perf_counter()
        launch()
        values.append(time.perf_counter() - start)
    return values


def _numpy_loop(operands: Operands) -> _Prepared:
    jobs = list(zip(operands.a, operands.b, operands.c, strict=True))
    one = Scalars()

    def run() -> None:
        for x, y, z in jobs:
            multiply(x, y, z, one, None, "none")

    def plain() -> None:
        for x, y, z in jobs:
            np.matmul(x, y, out=z)

    # NumPy has no BLAS for float16; what anyone would do is multiply in float32.
    half = operands.flat[2].dtype == np.float16
    return _Prepared(run if half else plain, lambda: operands.c)


def _our_loop(operands: Operands, device: Device) -> _Prepared:
    jobs = list(zip(operands.a, operands.b, operands.c, strict=True))

    def run() -> None:
        for x, y, z in jobs:
            api.matmul(x, y, out=z, device=device)

    return _Prepared(run, lambda: operands.c)


def _padded(operands: Operands, sizes: tuple[Column, Column, Column], dtype: str) -> _Prepared:
    count, (m, n, k) = len(sizes[0]), (int(column.max()) for column in sizes)
    needed = count * (m * k + k * n + m * n) * np.dtype(dtype).itemsize
    if needed > MOST_PADDED:
        raise ArgumentError(f"its stacks would take {needed / 2**30:,.1f} GiB, more than 2 GiB")
    if dtype == "float16":
        raise ArgumentError("NumPy has no BLAS for float16")
    a, b = np.zeros((count, m, k), dtype), np.zeros((count, k, n), dtype)
    c = np.full((count, m, n), np.nan, dtype)
    for i, (x, y) in enumerate(zip(operands.a, operands.b, strict=True)):
        a[i, : x.shape[0], : x.shape[1]] = x
        b[i, : y.shape[0], : y.shape[1]] = y

    def results() -> list[NDArray]:
        return [c[i, : z.shape[0], : z.shape[1]] for i, z in enumerate(operands.c)]

    return _Prepared(lambda: np.matmul(a, b, out=c), results)


def _plan(
    operands: Operands,
    sizes: tuple[Column, Column, Column],
    device: Device,
    dtype: str,
    order: str,
) -> _Prepared:
    plan = plan_grouped(*sizes, dtype=dtype, device=device, order=order)
    a, b, c = operands.flat
    there = _on_device(device, dtype)
    if there:
        a, b, c = (part.to(device) for part in operands.flat)
    begun = time.perf_counter()
    bound = plan.bind(a, b, c)
    planning = _planning(plan, order, time.perf_counter() - begun)
    if not there:
        return _Prepared(bound, lambda: operands.c, planning)
    fence = api.empty(1, dtype, device)

    def run() -> None:
        bound()
        with fence.map():  # waits for everything before it
            pass

    return _Prepared(run, lambda: list(c.to("host")), planning)


def _on_device(device: Device, dtype: str) -> bool:
    """Whether operands have to lie on the device for a launch to be only that."""
    kernel = backend_of(device).grouped(device, dtype)
    return kernel is not None and not kernel.reads_host()


def _planning(plan: GroupedPlan, order: str, bind: float) -> Planning:
    options: dict[str, Any] = {"dtype": plan.dtype, "device": plan.device, "order": order}
    cached = _median(lambda: plan_grouped(plan.m, plan.n, plan.k, **options))
    kernel = backend_of(plan.device).grouped(plan.device, plan.dtype)
    if plan.layout is None or kernel is None:
        why = "a loop of numpy.matmul, as given"
        return Planning("given", why, cached, cached, bind, None, None)

    def anew() -> None:
        signature(plan.m, plan.n, plan.k, order)
        _ = lay_out(plan.m, plan.n, plan.k, kernel.tiles, kernel.slots, order).queue

    layout = plan.layout
    return Planning(
        layout.chosen,
        layout.reason,
        _median(anew),
        cached,
        bind,
        layout.seconds,
        layout.balance(),
    )


def _median(call: Launch) -> float:
    return statistics.median(_timed(call) for _ in range(_PLANS))


def _timed(call: Launch) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _ceiling(device: Device, dtype: str, ways: Sequence[Way], flops: float) -> Ceiling | None:
    """The best rate known of the device: of one large product in the probe, or of this run."""
    ours = [w for w in ways if w.times and (w.planning or w.name == OUR_LOOP)]
    found = [Ceiling(flops / way.seconds, f"{way.name}, in this run") for way in ours if flops]
    try:
        backend = backend_of(device)
        probed = crossover.measured(device, backend, dtype, backend.priors(device))
    except TilewrightError:
        probed = None
    if probed is not None:
        curves = (("host", probed.host),) if device.backend == "host" else probed.curves
        found += [
            Ceiling(work / seconds, f"{name} on one large product, in the device's probe")
            for name, curve in curves
            for work, seconds in curve.points
        ]
    return max(found, key=lambda ceiling: ceiling.rate, default=None)
