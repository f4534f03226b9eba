"""Visits points of a device: a few runs of one product each, by NumPy's BLAS or by a kernel.

BLAS threads keep spinning for a while after a product and would take the cores from an OpenCL
driver on the same processor, so a visit of such a device waits until they rest. A kernel's programs
are built one after another before its first visit, so that whoever has little time may stop after
each of them. The smallest products of each are compared with float64's: drivers have compiled
kernels that compute something else, and such a kernel is not chosen there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tilewright.engines.backend import Backend
from tilewright.engines.dense import plan_kernel
from tilewright.errors import KernelError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import sums_of
from tilewright.facts.kernel import Defines, Kernel, Launch, Plan, Priors, Step
from tilewright.planning.cost import Curve
from tilewright.tuning.narrow import side_of
from tilewright.tuning.share import Room
from tilewright.tuning.trial import SPIN, Shape, Trial
from tilewright.tuning.visits import HOST, SIZES, Point, Sides

_VISIT = 0.02  # seconds that the repeats of one visit take together
_REPEATS = (1, 25)
_CHECKED = 64  # a side up to which results are compared: the truth of more wakes a BLAS's threads
_BANDWIDTH_BYTES = 1 << 25
# Seconds in which operands are drawn, and bytes of them a second that are laid out.
_PLACED, _PLACING = 0.002, 1e9
# Seconds of `bandwidth()`, and with `transfer()` of a device of its own memory.
_LAST, _LAST_MOVED = 0.04, 0.3


class WrongResultError(KernelError):
    """A driver runs a kernel and the result is not the product."""


class Probe:
    """Products on the host and on a device by their sides; operands live within a `with` block.

    Raises DeviceError where the device does not open.
    """

    def __init__(self, device: Device, backend: Backend, dtype: str, priors: Priors) -> None:
        self.device, self.backend, self.dtype = device, backend, dtype
        self._by_name = {kernel.name: kernel for kernel in backend.kernels(device)}
        self._trials: dict[Sides, Trial] = {}
        self._steps: dict[Point, Step] = {}
        self._built: set[tuple[str, str, Defines]] = set()
        backend.allocate(1, device, "allocate")  # whether it opens at all
        self._rested = False
        self.kernels = tuple(self._worth_it(priors))

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *error: object) -> None:
        self._trials.clear()  # operands may be large; compiled programs stay
        self._rested = False

    def is_ready(self, point: Point) -> bool:
        """Whether a visit builds no program."""
        return point[0] == HOST or self._built.issuperset(map(_program, self._step(point).launches))

    def cost(self, point: Point, seconds: float) -> float:
        """Seconds of a visit whose product takes so many: operands, rest, a first run, a repeat."""
        name, (m, n, k) = point
        elements = m * k + k * n + m * n
        placed = _PLACED + elements * np.dtype(self.dtype).itemsize / _PLACING
        return (0.0 if (m, n, k) in self._trials else placed) + self._rest(name) + 2 * seconds

    def visit(self, point: Point, seconds: float, room: Room) -> float | None:
        """Least seconds of a few runs; None where room ended while programs were built.

        `seconds` is what one run will take, as far as is known. Raises DeviceError or KernelError
        where the driver refuses the kernel, WrongResultError where it computes it wrongly.
        """
        name, sides = point
        trial = self._trial(sides)
        if name == HOST:
            self._rested = False
            return _least(trial.host_seconds, room)
        plan = plan_kernel(trial.problem, self.device, self._by_name[name])
        for count, launch in enumerate(plan.step.launches, 1):
            if _program(launch) not in self._built:
                trial.seconds(replace(plan, step=_first(plan, count)))
                self._built.add(_program(launch))
                if self.cost(point, seconds) > room.left():
                    return None
        if max(sides) <= _CHECKED and (why := trial.wrong(plan)):
            raise WrongResultError(why)
        time.sleep(self._rest(name))
        self._rested = True
        return _least(lambda: trial.seconds(plan), room)

    def computed(self, name: str, sides: Sides) -> float:
        """Multiplications and additions of whole tiles, edges included."""
        return float(self._step((name, sides)).computed_flops)

    def last_cost(self) -> float:
        """Seconds of what is measured last: the memory's rate, and what moves to the device."""
        return _LAST if self.device.has("unified_memory") else _LAST_MOVED

    def transfer(self, curves: Mapping[str, Curve]) -> float | None:
        """Bytes a second between host and device; None where nothing has to move.

        What a product takes longer when its operands come from and go to the host's memory.
        """
        if self.device.has("unified_memory") or not curves:
            return None
        name, curve = next(iter(curves.items()))
        size = side_of(curve.points[-1][0])
        sides = (size, size, size)
        trial = self._trial(sides)
        plan = plan_kernel(trial.problem, self.device, self._by_name[name])
        trial.copied_seconds(plan)
        whole = min(trial.copied_seconds(plan) for _ in range(3))
        moved = 3 * sides[0] ** 2 * np.dtype(self.dtype).itemsize
        return float(moved / max(whole - curve.points[-1][1], 1e-6))

    def _worth_it(self, priors: Priors) -> list[str]:
        """The rules' kernels, then whatever moves nothing beforehand: it may win where all is
        small, whatever the rules say."""
        named = [name for name in priors.kernels if name in self._by_name]
        others = [
            name
            for name, kernel in self._by_name.items()
            if name not in named and self._moves_nothing(kernel)
        ]
        return named + others

    def _moves_nothing(self, kernel: Kernel) -> bool:
        """Whether it reads operands where they lie, and copies none into a local memory that is
        the same memory: `local` takes Intel's compiler 1.1 s, and has won nothing on a processor.
        """
        problem = self._shape((SIZES[0],) * 3).problem()
        try:
            step = plan_kernel(problem, self.device, kernel).step
        except KernelError:
            return False
        local = kernel.resources(step.config, problem).local_bytes
        return not step.scratch and (not local or self.device.local_memory_is_dedicated)

    def _shape(self, sides: Sides) -> Shape:
        return Shape(*sides, self.dtype, sums_of(self.dtype))

    def _trial(self, sides: Sides) -> Trial:
        if sides not in self._trials:
            self._trials.clear()  # one at a time: sizes come in order, and large ones are large
            self._trials[sides] = Trial(self._shape(sides), self.device, self.backend)
        return self._trials[sides]

    def _step(self, point: Point) -> Step:
        if point not in self._steps:
            problem = self._shape(point[1]).problem()
            self._steps[point] = plan_kernel(problem, self.device, self._by_name[point[0]]).step
        return self._steps[point]

    def _rest(self, name: str) -> float:
        """Seconds until the BLAS's threads rest, where a kernel would share cores with them."""
        waits = name != HOST and self.device.kind == "cpu" and not self._rested
        return SPIN if waits else 0.0


def bandwidth() -> float:
    """Bytes a second, read and written, of a large copy in the host's memory."""
    source = np.ones(_BANDWIDTH_BYTES, np.uint8)
    target = np.empty_like(source)
    seconds = []
    for _ in range(4):
        begun = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - begun)
    return 2 * source.nbytes / min(seconds)


def _least(run: Callable[[], float], room: Room) -> float:
    first = run()
    repeats = int(np.clip(min(_VISIT, room.left()) / max(first, 1e-6), *_REPEATS))
    return min(first, *(run() for _ in range(repeats)))


def _program(launch: Launch) -> tuple[str, str, Defines]:
    return launch.program, launch.entry, launch.defines


def _first(plan: Plan, count: int) -> Step:
    return replace(plan.step, launches=plan.step.launches[:count])
