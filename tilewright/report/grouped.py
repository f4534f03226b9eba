"""Measures a batch of unlike products every way a user could run it, each checked in float64.

    loop of numpy.matmul        one call a problem, into results made beforehand
    loop of tilewright.matmul   the same through this library, operands on the host
    tilewright.grouped_matmul   lists of the same in one call, which makes the results; device and
                                engine are its own choice unless the device is not the best one
    padded to the largest       one numpy.matmul on stacks [G, M, K] and [G, K, N], made
                                beforehand
    plan, ORDER                 a bound plan, launched; on devices that cannot read the host's
                                memory its operands lie on the device

Ways take turns in blocks, with a rest before each: BLAS threads keep spinning for a while after a
product and would take the cores from an OpenCL driver on the same processor. Medians over all
blocks. Planning and binding are timed apart. Results are NaN beforehand, so that an element that
was never written shows in the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tilewright.errors import ArgumentError, TilewrightError
from tilewright.facts.device import Device
from tilewright.facts.problem import Column
from tilewright.inputs.devices import backend_of, host
from tilewright.planning.order import ORDERS
from tilewright.report.grouped_records import (
    NUMPY_LOOP,
    OUR_CALL,
    OUR_LOOP,
    PADDED,
    Ceiling,
    Report,
    Way,
    flops_of,
)
from tilewright.report.grouped_ways import (
    Operands,
    Prepared,
    numpy_loop,
    our_call,
    our_loop,
    padded,
    planned,
)
from tilewright.report.ladder import REST
from tilewright.report.sampling import block, seconds_of
from tilewright.tuning import crossover
from tilewright.wording import in_one_line

ALL_ORDERS = (*ORDERS, "auto")
_BLOCK = 0.1  # seconds
_ROUNDS, _FEW, _LONG = 5, 3, 0.3  # a run longer than _LONG is repeated _FEW times


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
    makers: dict[str, Callable[[], Prepared]] = {
        NUMPY_LOOP: partial(numpy_loop, operands),
        OUR_LOOP: partial(our_loop, operands, device),
        OUR_CALL: partial(our_call, operands, device),
        PADDED: partial(padded, operands, sizes, dtype),
        **{f"plan, {o}": partial(planned, operands, sizes, device, dtype, o) for o in orders},
    }
    prepared: dict[str, Prepared | str] = {}
    for name, make in makers.items():
        report(name)
        try:
            prepared[name] = _checked(make(), operands)
        except TilewrightError as error:
            prepared[name] = in_one_line(error)
    report("all in turns")
    runs = {name: way for name, way in prepared.items() if isinstance(way, Prepared)}
    times = _in_turns(runs)
    ways = tuple(
        Way(name, skipped=way)
        if isinstance(way, str)
        else Way(name, tuple(times[name]), way.error, way.planning)
        for name, way in prepared.items()
    )
    ceiling = _ceiling(device, dtype, ways, flops_of(*sizes))
    return Report(title, device, dtype, seed, *sizes, ways, ceiling)


def _checked(way: Prepared, operands: Operands) -> Prepared:
    """Run once to warm up and once against the clock; the second result is compared."""
    operands.flat[2].host()[...] = np.nan
    way.launch()
    way.first = seconds_of(way.launch)
    way.error = operands.error(way.results())
    return way


def _in_turns(ways: dict[str, Prepared]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(_ROUNDS):
        for name, way in ways.items():
            if turn >= _FEW and way.first > _LONG:
                continue
            time.sleep(REST)
            if way.first < _LONG:
                way.launch()
            times[name] += block(way.launch, _BLOCK)
    return times


def _ceiling(device: Device, dtype: str, ways: Sequence[Way], flops: float) -> Ceiling | None:
    """The device's measured peak; where that is unknown, the best rate of a product: of a large one
    in the probe, or of this run."""
    peak = device.ceilings.peak(dtype) if device.ceilings else None
    if peak is not None:
        return Ceiling(peak.value, f"{peak}, measured by `tilewright peak`")
    ours = [w for w in ways if w.times and (w.planning or w.name in (OUR_LOOP, OUR_CALL))]
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
