"""Measures a ladder: every kernel of a device and its peers on the same random square matrices.

Each has a block of its own, with a rest before it: BLAS threads keep spinning for a while after a
product and would take the cores from an OpenCL driver on the same processor. Operands lie where the
device wants them before the clock starts. The output is NaN beforehand, so an element that a kernel
forgets shows in its error.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import Array, NDArray
from tilewright.arrays.views import view
from tilewright.engines.backend import Timing
from tilewright.engines.dense import plan_kernel
from tilewright.errors import DeviceWarning, TilewrightError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import sums_of
from tilewright.facts.kernel import Kernel, Plan
from tilewright.facts.problem import Problem
from tilewright.facts.scalars import Scalars
from tilewright.inputs import make
from tilewright.inputs.devices import backend_of, host
from tilewright.products import dense, reference
from tilewright.report import others
from tilewright.report.peers import PYTORCH, Peer, has_pytorch, peers
from tilewright.report.records import KERNEL, PEER, Ladder, Rung, Skipped
from tilewright.report.sampling import FULL, Effort, sample, seconds_of
from tilewright.tuning import energy
from tilewright.tuning.trial import relative_error
from tilewright.wording import in_one_line

SEED = 2
REST = 0.05


@dataclass(frozen=True, slots=True)
class Operands:
    """Random operands on the host, and their product in float64."""

    a: NDArray
    b: NDArray
    truth: NDArray

    @classmethod
    def random(cls, size: int, dtype: str) -> Operands:
        """Square, from the standard normal distribution; the same for the same size and dtype."""
        generator = np.random.default_rng(SEED)
        wide = np.float64 if dtype == "float64" else np.float32
        a, b = (generator.standard_normal((size, size), wide).astype(dtype) for _ in range(2))
        return cls(a, b, reference.matmul(a, b))

    def corner(self, size: int) -> Operands:
        """The same, cut to their first rows and columns."""
        a, b = (np.ascontiguousarray(full[:size, :size]) for full in (self.a, self.b))
        return Operands(a, b, reference.matmul(a, b))

    @property
    def size(self) -> int:
        """Rows of each."""
        return len(self.a)

    @property
    def dtype(self) -> str:
        """Element type, as NumPy names it."""
        return self.a.dtype.name

    def error(self, result: NDArray) -> float:
        """The largest error relative to the largest magnitude; NaN if anything is NaN."""
        return relative_error(result, self.truth)


def steps(device: Device, dtype: str) -> int:
    """How many times `measure` will call its `report`."""
    return len(backend_of(device).kernels(device)) + len(peers(dtype))


def measure(
    device: Device,
    size: int,
    dtype: str = "float32",
    *,
    effort: Effort = FULL,
    report: Callable[[str], None] = lambda name: None,
) -> Ladder:
    """The ladder of a device at one size; `report` hears each name before it is measured.

    A kernel that cannot run is named among `skipped` with its reason and ends nothing. Warns with
    DeviceWarning of a driver whose event times cannot be true.
    """
    operands = Operands.random(size, dtype)
    done: list[Rung | Skipped] = []
    busy: list[str] = []
    meter, on_host = energy.counter(device), energy.counter(host())
    for kernel in backend_of(device).kernels(device):
        report(kernel.name)
        disturbed = others.watch()
        done.append(_measure_kernel(kernel, device, operands, effort, meter))
        busy += [kernel.name] if disturbed() and isinstance(done[-1], Rung) else []
    for peer in peers(dtype):
        report(peer.name)
        disturbed = others.watch()
        done.append(_measure_peer(peer, operands, effort, on_host))
        busy += [peer.name] if disturbed() else []
    if not has_pytorch():
        done.append(Skipped(PYTORCH, "not installed"))
    rungs = sorted((r for r in done if isinstance(r, Rung)), key=lambda rung: rung.gflops)
    skipped = tuple(item for item in done if isinstance(item, Skipped))
    about = meter if isinstance(meter, str) else meter.name
    ladder = Ladder(device, size, dtype, tuple(rungs), skipped, energy=about, busy=tuple(busy))
    _warn_of_lies(ladder)
    return ladder


def problem_of(size: int, dtype: str) -> Problem:
    """A dense square product; NumPy and devices allocate at multiples of 16 bytes."""
    strides = (size, 1) * 3
    return Problem(size, size, size, *strides, dtype=dtype, accumulate=sums_of(dtype), aligned=True)


def shares_memory(device: Device) -> bool:
    """Whether host arrays reach the device without a transfer."""
    return device.has("svm_system") or device.has("unified_memory")


def _measure_kernel(
    kernel: Kernel,
    device: Device,
    operands: Operands,
    effort: Effort,
    meter: energy.Counter | str,
) -> Rung | Skipped:
    problem = problem_of(operands.size, operands.dtype)
    if (why := kernel.why_not(problem, device)) is not None:
        return Skipped(kernel.name, why)
    time.sleep(REST)
    try:
        return _measure_plan(plan_kernel(problem, device, kernel), operands, effort, meter)
    except Exception as error:
        # Whatever a driver does to one kernel, the others still have their turn.
        return Skipped(kernel.name, _reason(error))


def _measure_plan(
    plan: Plan, operands: Operands, effort: Effort, meter: energy.Counter | str
) -> Rung:
    device, backend = plan.device, backend_of(plan.device)
    poison = np.full_like(operands.a, np.nan)
    a, b, c = (_place(array, device) for array in (operands.a, operands.b, poison))
    views = {"a": view(a, "a"), "b": view(b, "b"), "c": view(c, "c")}

    def run() -> Timing:
        return backend.time(plan, views, Scalars())

    samples = sample(run, effort)
    error, config = operands.error(np.asarray(c)), plan.step.config
    moved = None if shares_memory(device) else _end_to_end(plan, operands)
    spent = None if isinstance(meter, str) else energy.joules(run, meter)
    clock = samples.clock(device.kind)
    return Rung(plan.kernel, KERNEL, operands.size, samples, clock, error, config, moved, spent)


def _place(array: NDArray, device: Device) -> NDArray | Array:
    """The array itself where the device works in the host's memory, else one on the device."""
    return array if device.has("svm_system") else make.asarray(array, device=device)


def _end_to_end(plan: Plan, operands: Operands) -> float:
    """Seconds of one product from NumPy arrays to a NumPy array, transfers included."""

    def product() -> None:
        dense.matmul(operands.a, operands.b, device=plan.device, kernel=plan.kernel)

    product()
    return seconds_of(product)


def _measure_peer(
    peer: Peer, operands: Operands, effort: Effort, meter: energy.Counter | str
) -> Rung:
    size = operands.size
    if peer.limit is not None and size > peer.limit:
        operands = operands.corner(peer.limit)
    c = np.full_like(operands.a, np.nan)
    call = peer.prepare(operands.a, operands.b, c)
    time.sleep(REST)
    samples = sample(lambda: Timing.of(call), effort)
    spent = None if isinstance(meter, str) else energy.joules(call, meter)
    error = operands.error(c)
    return Rung(peer.name, PEER, operands.size, samples, "wall", error, joules=spent)


def _warn_of_lies(ladder: Ladder) -> None:
    names = [rung.name for rung in ladder.rungs if rung.samples.events_lie]
    if names:
        warnings.warn(
            f"device={ladder.device.id!r}: event times of {', '.join(names)} cannot be true beside"
            " the wall clock of the same runs; rates are by the wall clock",
            DeviceWarning,
            stacklevel=3,
        )


def _reason(error: Exception) -> str:
    """In one line, with the name of what is no error of ours."""
    name = "" if isinstance(error, TilewrightError) else f"{type(error).__name__}: "
    return name + in_one_line(error)
