"""Runs and explains checked batches of arrays on a GPU, through its engines.

grouped_matmul   the plan of an earlier batch that lay alike, or a new one
bound            a callable that only launches
explain          sizes as a batch of dense aligned matrices, and the engines' verdict
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns, row_major
from tilewright.arrays.aligned import aligned_offsets
from tilewright.backends.cuda import choose
from tilewright.backends.cuda.machine import arrays, driver
from tilewright.backends.cuda.machine.placing import places
from tilewright.backends.cuda.work import Work
from tilewright.calls.plan_gpu import plan_of, verdict_lines
from tilewright.errors import DeviceError
from tilewright.facts.device import Device
from tilewright.inputs.batch import Call, Results, checked
from tilewright.inputs.batch_place_gpu import BatchOnGpu, written_of
from tilewright.inputs.checks import PRECISIONS, checked_precision
from tilewright.inputs.devices import gpu
from tilewright.inputs.place_gpu import OnGpu
from tilewright.planning.explain import batch_head

Ints = npt.NDArray[np.int64]


def dtype_name(dtype: Any) -> str:
    """The name of a dtype that a GPU multiplies. Raises DtypeError."""
    return arrays.element_type(dtype).name


def grouped_matmul(
    a: Any,
    b: Any,
    out: Any,
    *,
    order: str,
    device: Any,
    kernel: Any,
    precision: Any,
    **options: Any,
) -> Results:
    """Arguments, results and errors are those of `tilewright.grouped_matmul`."""
    place = BatchOnGpu(a)
    call = checked(place, a, b, out, **options)
    where = place.within(call.a)
    works = _works(where, call, order, precision)
    here = where.device(device)
    with where.stream():
        for work in works:
            plan_of(work, here, kernel).run(places(work))
    if out is not None:
        place.written(out)
    return call.results()


def bound(
    place: BatchOnGpu,
    call: Call,
    out: Any,
    device: Device,
    order: str,
    *,
    kernel: str | None = None,
    precision: str | None = None,
) -> Callable[[], Results]:
    """A callable that only launches, on torch's current stream, and returns the results.

    It holds its tables and scratch: run it on one stream at a time, and keep it as long as a graph
    that captured it is replayed. Raises DeviceError while a graph is captured.
    """
    _refuse_in_capture()
    where, results = place.within(call.a), call.results()
    works = _works(where, call, order, precision)
    with where.stream():
        launches = [choose.bind(work, device, kernel, often=True).launch for work in works]
    launch = launches[0] if len(launches) == 1 else lambda: [one() for one in launches]
    written = arrays.writer(written_of(results if out is None else out))

    def run() -> Results:
        launch()
        written()
        return results

    def run_on_stream() -> Results:
        with where.stream():
            return run()

    return run if hasattr(where.first, "data_ptr") else run_on_stream


def _refuse_in_capture() -> None:
    """Raise where a graph is being captured: tables uploaded there are filled at its replay."""
    if driver.need().cuda.is_current_stream_capturing():
        raise DeviceError(
            "plan.bind: a CUDA graph is being captured on this stream; bind before the capture and"
            " call what it returns within, or call grouped_matmul"
        )


def engine_of(a: Any, b: Any, *, precision: str | None = None) -> str:
    """The engine that `grouped_matmul` would take for these operands as they lie."""
    place = BatchOnGpu(a)
    call = checked(place, a, b, None)
    work, *_ = _works(place.within(call.a), call, "auto", precision)
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    return choose.judge(work.take(live), gpu(work.ordinal)).best.engine


def explain(m: Ints, n: Ints, k: Ints, dtype: str, device: Device, order: str) -> str:
    """The plan in words, were every matrix dense and aligned: what is bound may differ."""
    flops = float(2 * np.sum(m.astype(float) * n * k))
    head = batch_head(len(m), dtype, flops, device)
    work = _nominal(m, n, k, dtype, device, order)
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    if not len(live):
        return "\n".join([*head, "because    the results are empty: nothing is computed"])
    return "\n".join(head + verdict_lines(work.take(live), device))


def _nominal(m: Ints, n: Ints, k: Ints, dtype: str, device: Device, order: str) -> Work:
    """These sizes as dense matrices, each at a multiple of 64 bytes."""
    kind = arrays.element_type(dtype)

    def dense(rows: Ints, cols: Ints) -> Columns:
        offsets, _ = aligned_offsets(rows, cols, kind.itemsize)
        return row_major(rows, cols, offsets * kind.itemsize, kind.itemsize)

    parts: Any = {"a": dense(m, k), "b": dense(k, n), "c": dense(m, n)}
    scalars: Any = {"alpha": np.ones(len(m)), "beta": np.zeros(len(m))}
    return Work(ordinal=driver.ordinal_of(device), **parts, **scalars, dtype=dtype, order=order)


def _works(where: OnGpu, call: Call, order: str, precision: str | None) -> list[Work]:
    """The launches of a batch, mostly one."""
    precision = checked_precision(precision, call.a.dtype.name, PRECISIONS)
    parts = [call] if call.sums is None else [part for _, part in call.turns()]
    return [_work(where, part, order, precision) for part in parts]


def _work(where: OnGpu, call: Call, order: str, precision: str) -> Work:
    held = (part.held for part in (call.a, call.b, call.c, call.bias) if part is not None)
    how: Any = {"precision": precision, "order": order, "keep": tuple(held)}
    return Work(ordinal=where.memory.ordinal, **call.columns, **how)
