"""The ways to run a batch of unlike products, made ready; report/grouped.py lists them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.backends.host.backend import multiply
from tilewright.errors import ArgumentError
from tilewright.facts.device import Device
from tilewright.facts.problem import Column
from tilewright.facts.scalars import Scalars
from tilewright.inputs import make
from tilewright.inputs.devices import backend_of, resolve
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.planning.grouped import lay_out, signature
from tilewright.products import dense, reference
from tilewright.products.grouped import GroupedPlan, grouped_matmul, plan_grouped
from tilewright.report.grouped_records import Planning
from tilewright.report.sampling import seconds_of

MOST_PADDED = 2 << 30  # bytes
_PLANS = 5
Launch = Callable[[], object]


@dataclass(slots=True)
class Prepared:
    """A way, ready: `launch` computes, `results` reads them afterwards; `first` is one run."""

    launch: Launch
    results: Callable[[], Sequence[NDArray]]
    planning: Planning | None = None
    error: float = 0.0
    first: float = 0.0


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
            flat = part.host()
            flat[...] = generator.standard_normal(flat.shape, wide).astype(dtype)
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


def numpy_loop(operands: Operands) -> Prepared:
    """One `numpy.matmul` a problem; float16 is multiplied in float32, having no BLAS of its own."""
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
    return Prepared(run if half else plain, lambda: operands.c)


def our_loop(operands: Operands, device: Device) -> Prepared:
    """One `tilewright.matmul` a problem, from and to NumPy arrays.

    The device is named where it is not the one that a caller gets without: a name costs 40 µs.
    """
    jobs = list(zip(operands.a, operands.b, operands.c, strict=True))
    named = _named(device)

    def run() -> None:
        for x, y, z in jobs:
            dense.matmul(x, y, out=z, device=named)

    return Prepared(run, lambda: operands.c)


def our_call(operands: Operands, device: Device) -> Prepared:
    """The lists in one `tilewright.grouped_matmul`, which makes their results."""
    named, made = _named(device), list[NDArray]()

    def run() -> None:
        made[:] = grouped_matmul(operands.a, operands.b, device=named)

    return Prepared(run, lambda: made)


def _named(device: Device) -> Device | None:
    """What a caller names: nothing, where it is the device that calls take by themselves."""
    return None if device == resolve(None) else device


def padded(operands: Operands, sizes: tuple[Column, Column, Column], dtype: str) -> Prepared:
    """One product of stacks. Raises ArgumentError with the reason where that is not to be run."""
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

    return Prepared(lambda: np.matmul(a, b, out=c), results)


def planned(
    operands: Operands,
    sizes: tuple[Column, Column, Column],
    device: Device,
    dtype: str,
    order: str,
) -> Prepared:
    """A plan in this order, bound."""
    plan = plan_grouped(*sizes, dtype=dtype, device=device, order=order)
    a, b, c = operands.flat
    there = _on_device(device, dtype)
    if there:
        a, b, c = (part.to(device) for part in operands.flat)
    bound = plan.bind(a, b, c)  # the first of a kind may compile
    planning = _planning(plan, order, _median(lambda: plan.bind(a, b, c)))
    if not there:
        return Prepared(bound, lambda: operands.c, planning)
    fence = make.empty(1, dtype, device)

    def run() -> None:
        bound()
        with fence.map():  # waits for everything before it
            pass

    return Prepared(run, lambda: list(c.to("host")), planning)


def _on_device(device: Device, dtype: str) -> bool:
    """Whether operands have to lie on the device for a launch to be only that."""
    kernel = backend_of(device).grouped(device, dtype)
    return kernel is not None and not device.has("svm_system")


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
    spent = (_median(anew), cached, bind, layout.seconds)
    return Planning(layout.chosen, layout.reason, *spent, layout.balance())


def _median(call: Launch) -> float:
    return statistics.median(seconds_of(call) for _ in range(_PLANS))
