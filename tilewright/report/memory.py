"""Measures three ways of sharing memory with a device: operands there, a result back.

The bytes beside the seconds are what each way has to copy on such a device, counted and not
measured: no driver tells. A way that takes longer than its bytes explain copies in secret.
"""

from __future__ import annotations

import statistics
import time

from tilewright.arrays.views import view
from tilewright.backends import backends
from tilewright.engines.dense import plan_host, plan_kernel
from tilewright.facts.device import Device
from tilewright.facts.kernel import Plan
from tilewright.facts.scalars import Scalars
from tilewright.inputs import make
from tilewright.inputs.devices import backend_of
from tilewright.report.ladder import Operands, problem_of, shares_memory
from tilewright.report.records import Ladder, MemoryWay
from tilewright.settings import MEMORY_WAYS

_REPEATS = 5


def measure_memory(ladder: Ladder) -> tuple[MemoryWay, ...]:
    """Every way on the ladder's device, by its fastest kernel; none where no kernel ran."""
    if ladder.winner is None and ladder.device.backend != "host":
        return ()
    operands = Operands.random(ladder.size, ladder.dtype)
    plan = _plan(ladder)
    return tuple(_measure(way, plan, operands) for way in MEMORY_WAYS)


def _plan(ladder: Ladder) -> Plan:
    problem = problem_of(ladder.size, ladder.dtype)
    for kernel in backend_of(ladder.device).kernels(ladder.device):
        if ladder.winner is not None and kernel.name == ladder.winner.name:
            return plan_kernel(problem, ladder.device, kernel)
    return plan_host(problem, ladder.device, "no kernel runs here")


def _measure(way: str, plan: Plan, operands: Operands) -> MemoryWay:
    # The first round meets cold pages and a cold driver: it is the warm-up.
    rounds = [_round(way, plan, operands) for _ in range(_REPEATS + 1)][1:]
    create, run, back, errors = zip(*rounds, strict=True)
    created, returned = _copied_bytes(way, plan.device, operands)
    median = statistics.median
    return MemoryWay(way, median(create), median(run), median(back), created, returned, max(errors))


def _round(way: str, plan: Plan, operands: Operands) -> tuple[float, float, float, float]:
    """Seconds to create and fill, run and map back, and the error of the result."""
    device = plan.device
    begun = time.perf_counter()
    a = make.asarray(operands.a, device=device, memory=way)
    b = make.asarray(operands.b, device=device, memory=way)
    c = make.empty(operands.truth.shape, operands.dtype, device, memory=way)
    create = time.perf_counter() - begun
    views = {name: view(array, name) for name, array in zip("abc", (a, b, c), strict=True)}
    name = "host" if plan.kernel == "host" else device.backend
    run = backends()[name].time(plan, views, Scalars()).wall
    begun = time.perf_counter()
    with c.map() as result:
        back = time.perf_counter() - begun
        return create, run, back, operands.error(result)


def _copied_bytes(way: str, device: Device, operands: Operands) -> tuple[int, int]:
    """Bytes that have to be copied to fill the operands, and to see the result."""
    operand_bytes = operands.a.nbytes + operands.b.nbytes
    if shares_memory(device):
        return (0 if way == "use" else operand_bytes), 0
    # "allocate" is filled in the host's memory first, and transferred from there.
    return operand_bytes * (2 if way == "allocate" else 1), operands.a.nbytes
