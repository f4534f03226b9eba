"""Makes a planned batch and a checked call into a callable that only launches.

Mostly that is one launch. Sums are launches after one another, each with a product of every sum
(sums.py), and what NumPy's BLAS does faster is taken out of a kernel's batch
(planning/host_part.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import RLock

import numpy as np

from tilewright.arrays.addresses import Column
from tilewright.arrays.views import view
from tilewright.backends.host.grouped import grouped_of
from tilewright.calls.grouped_loop_host import host_loop, operands_of, through_device
from tilewright.calls.grouped_loop_narrow import narrow_loop
from tilewright.engines.grouped import GroupedKernel
from tilewright.errors import OperandError
from tilewright.facts.device import Device
from tilewright.facts.dtypes import NARROW
from tilewright.facts.scalars import Scalars
from tilewright.inputs.batch import Call, Results
from tilewright.inputs.devices import backend_of
from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.host_part import is_for_a_loop, large, spared
from tilewright.remember import open_after_fork
from tilewright.tuning import crossover

# Seconds of a launch where none is known, and the most that is believed: measured under load it may
# be anything.
_LAUNCHES = (2.5e-5, 1e-4)
LayOut = Callable[[Column], GroupedLayout | None]  # the layout of some products of a plan


def _check_kernel(call: Call, device: Device) -> None:
    """Raise where a batch lies on a device that has no kernel for it."""
    dtype = call.a.dtype.name
    if call.a.base is not None and backend_of(device).grouped(device, dtype) is None:
        raise OperandError(
            f"a: lies on {device.id!r}, which has no grouped kernel for {dtype};"
            " accepted is the batch that .to('host') gives"
        )


def bound(
    device: Device, call: Call, lay_out: LayOut, *, named: bool = True
) -> Callable[[], Results]:
    """What computes a call, and returns its results.

    A device that the caller did not name is left for a loop of NumPy's where a launch takes longer.
    Threads that call it take turns: its passes over the results belong together.
    """
    _check_kernel(call, device)
    launches = [
        _launch(device, part, None if on_host else lay_out(at))
        for at, part, on_host in _parts(device, call, named)
    ]
    before, last = launches[:-1], launches[-1] if launches else _nothing
    named_arrays = {"a": call.a.base, "b": call.b.base, "out": call.c.base}
    arrays = [(array, f"{name}.flat") for name, array in named_arrays.items() if array is not None]

    turn = open_after_fork(RLock())

    def check_turn() -> None:
        if turn._is_owned():
            raise OperandError(
                "run: this thread is in the middle of the same bound plan (a signal handler or a"
                " finalizer calls it); accepted are another bound plan, and calls one by one"
            )

    # A back end's launch with `begin` and `end` leaves this thread free between the two.
    begin, end = getattr(last, "begin", last), getattr(last, "end", _nothing)

    def run() -> Results:
        check_turn()
        with turn:
            for array, name in arrays:
                view(array, name)  # raises where it is mapped by now
            for launch in before:
                launch()
            try:
                begin()
                # Behind the launch: a thousand views take as long as half of a small batch.
                results = call.results()  # with `call` the operands live as long as this function
                end()
            except BaseException:  # Ctrl-C: nothing writes to the caller's memory any longer
                end()
                raise
            return results

    def run_loop() -> Results:
        check_turn()
        with turn:
            last()
        return call.results()  # `call` again, for their lives

    return run if arrays or before or hasattr(last, "begin") else run_loop


def _nothing() -> None:
    pass


def _parts(device: Device, call: Call, named: bool) -> list[tuple[Column, Call, bool]]:
    """Batches that run as a launch each, in this order: products, call, and if on the host."""
    choice = not named and call.a.base is None
    on_host = choice and _is_for_a_loop(device, call)
    if call.sums is None:
        return [(np.arange(len(call.a)), call, True)] if on_host else _shared(device, call)
    return [(at, part, on_host) for at, part in call.turns()]


def _is_for_a_loop(device: Device, call: Call) -> bool:
    plain = (
        call.activation == "none"
        and call.bias is None
        and call.sums is None
        and call.a.dtype != np.float16
        and bool((call.alpha == 1).all() and (call.beta == 0).all())
    )
    sizes = (call.a.at.rows, call.b.at.cols, call.a.at.cols)
    return is_loops(device, call.a.dtype.name, sizes, plain=plain)


def is_loops(
    device: Device, dtype: str, sizes: tuple[Column, Column, Column], *, plain: bool = True
) -> bool:
    """Whether a bound batch of these sizes is left to a loop of NumPy's, which has no bfloat16 and
    no fast products of int8."""
    if dtype in NARROW:
        return False
    m, n, k = sizes
    few = partial(is_for_a_loop, len(m), float(2 * np.sum(m.astype(float) * n * k)), plain=plain)
    return few(_LAUNCHES[1]) and few(_launch_seconds(device, dtype))


def _launch_seconds(device: Device, dtype: str) -> float:
    """As measured with the crossover; as elsewhere where it is not yet."""
    if device.backend == "host":
        return _LAUNCHES[0]
    backend = backend_of(device)
    known = crossover.known(device, backend, dtype, backend.priors(device))
    least, most = _LAUNCHES
    return least if known is None else min(max(known.launch, least), most)


def host_share(device: Device, dtype: str, sizes: tuple[Column, Column, Column]) -> Column:
    """The products that NumPy's BLAS takes from a batch on a device that works in its memory."""
    if device.backend == "host":
        native = grouped_of(device, dtype)
        spares = native is not None and native.spares_large
        return np.flatnonzero(spared(*sizes)) if spares else np.empty(0, np.int64)
    kernel = backend_of(device).grouped(device, dtype)
    beside = device.kind == "cpu" and kernel is not None and device.has("svm_system")
    if not beside or dtype == "float16":
        return np.empty(0, np.int64)
    return np.flatnonzero(large(*sizes))


def _shared(device: Device, call: Call) -> list[tuple[Column, Call, bool]]:
    """All in one, or the large ones first: a driver's threads go on spinning when it has ended, and
    BLAS's, which wait for each other, lose more by that than a kernel does by theirs. The host's
    own come first: they spin for a millisecond, which shows nowhere, and OpenBLAS's for a tenth of
    a second, in which a kernel on two cores takes up to twice as long."""
    everything = np.arange(len(call.a))
    sizes = (call.a.at.rows, call.b.at.cols, call.a.at.cols)
    taken_out = call.a.base is None and len(call.a) > 0
    host = host_share(device, call.a.dtype.name, sizes) if taken_out else everything[:0]
    if not len(host):
        return [(everything, call, False)]
    rest = np.delete(everything, host)
    first = [(host, call.part(host, begins=True, ends=True), True)]
    then = [(rest, call.part(rest, begins=True, ends=True), False)] if len(rest) else []
    return [*then, *first] if device.backend == "host" else [*first, *then]


def _launch(device: Device, call: Call, layout: GroupedLayout | None) -> Callable[[], None]:
    kernel = backend_of(device).grouped(device, call.a.dtype.name)
    if (layout is None or kernel is None) and call.a.dtype.name in NARROW:
        return narrow_loop(call)
    if layout is None or kernel is None:
        pairs = zip(call.alpha.tolist(), call.beta.tolist(), strict=True)
        scalars = [Scalars(*pair) for pair in pairs]
        return host_loop(call.a, call.b, call.c, call.bias, scalars, call.activation)
    return _on_device(device, kernel, call, layout)


def _on_device(
    device: Device, kernel: GroupedKernel, call: Call, layout: GroupedLayout
) -> Callable[[], None]:
    reaches = device.backend == "host" or device.has("svm_system")
    if call.c.base is None and not reaches:
        return through_device(device, layout, kernel, call)
    return kernel.bind(layout, operands_of(call))
