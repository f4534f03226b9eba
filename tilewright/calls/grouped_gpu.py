"""Variable-size batches of arrays on a GPU: the same checks, then engines instead of a layout.

grouped_matmul   checks -> Work -> the plan of an earlier batch that lay alike, or a new one
bind             checks -> Work -> a callable that only launches
explain          a plan's sizes as a batch of dense aligned matrices, and the engines' verdict
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Columns
from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.views import View
from tilewright.backends.cuda import choose
from tilewright.backends.cuda import work as contract
from tilewright.backends.cuda.machine import arrays, driver
from tilewright.backends.cuda.machine.placing import places
from tilewright.backends.cuda.machine.results import places as result_places
from tilewright.backends.cuda.work import Work
from tilewright.calls.grouped_work_host import (
    Place,
    Results,
    Room,
    check_sizes_planned,
    checked,
)
from tilewright.calls.plan_gpu import plan_of, told
from tilewright.errors import DeviceError, DtypeError, OperandError, ShapeError
from tilewright.inputs.checks import PRECISIONS, checked_precision
from tilewright.inputs.devices import resolve
from tilewright.inputs.matrices import Matrices, taken
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.sums import Sums
from tilewright.planning.sizes import Planned

Ints = npt.NDArray[np.int64]


def dtype_name(dtype: Any) -> str:
    """The name of a dtype that a GPU multiplies. Raises DtypeError."""
    return arrays.element_type(dtype).name


def grouped_matmul(a: Any, b: Any, out: Any, **options: Any) -> Results:
    """Arguments, results and errors are those of `tilewright.grouped_matmul`."""
    kernel, device = options.pop("kernel"), options.pop("device")
    works, results = _checked(a, b, out, **options)
    ordinal = works[0].ordinal
    here = driver.device_of(ordinal)
    if device not in (None, "cuda") and resolve(device).id != here.id:
        raise OperandError(f"device={device!r}: a lies on {here.id!r}")
    with arrays.stream_of(_one(a), ordinal):
        for work in works:
            plan_of(work, here, kernel).run(places(work))
    if out is not None:
        _written(out)
    return results


def _written(out: Any) -> None:
    arrays.written([out.flat] if isinstance(out, RaggedBatch) else out)


def bind(
    plan: Planned,
    a: Any,
    b: Any,
    out: Any = None,
    *,
    kernel: str | None = None,
    **options: Any,
) -> Callable[[], Results]:
    """A callable that only launches, on torch's current stream, and returns the results.

    It holds its tables and scratch: run it on one stream at a time, and keep it as long as a graph
    that captured it is replayed. Raises ShapeError, DtypeError or OperandError where the operands
    are not those that the plan was made for, and DeviceError while a graph is captured.
    """
    _refuse_in_capture()
    works, results = _checked(a, b, out, order=plan.asked, sizes=plan, lasting=True, **options)
    work = works[0]
    if len(plan.m) and work.dtype != plan.dtype:
        raise DtypeError(f"a.dtype={work.dtype!r}: the plan was made for {plan.dtype!r}")
    if work.ordinal != driver.ordinal_of(plan.device):
        raise OperandError(
            f"a: lies on 'cuda:{work.ordinal}'; the plan was made for {plan.device.id!r}"
        )
    kind, ordinal = _one(a), work.ordinal
    with arrays.stream_of(kind, ordinal):
        launches = [choose.bind(x, plan.device, kernel, often=True).launch for x in works]
    launch = launches[0] if len(launches) == 1 else lambda: [one() for one in launches]
    given = results if out is None else out
    written = arrays.writer([given.flat] if isinstance(given, RaggedBatch) else given)

    def run() -> Results:
        launch()
        written()
        return results

    def run_on_stream() -> Results:
        with arrays.stream_of(kind, ordinal):
            return run()

    return run if hasattr(kind, "data_ptr") else run_on_stream


def _refuse_in_capture() -> None:
    """Raise where a graph is being captured: tables uploaded there are filled at its replay."""
    if driver.need().cuda.is_current_stream_capturing():
        raise DeviceError(
            "plan.bind: a CUDA graph is being captured on this stream; bind before the capture and"
            " call what it returns within, or call grouped_matmul"
        )


def engine_of(a: Any, b: Any, out: Any = None, **options: Any) -> str:
    """The engine that `grouped_matmul` would take for these operands as they lie."""
    (work, *_), _ = _checked(a, b, out, **options)
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    return choose.judge(work.take(live), driver.device_of(work.ordinal)).best.engine


def explain(plan: Planned) -> str:
    """The plan in words, were every matrix dense and aligned: what `bind` takes may differ."""
    flops = float(2 * np.sum(plan.m.astype(float) * plan.n * plan.k))
    head = [
        f"{len(plan.m)} products, {plan.dtype}, {flops / 1e9:.3f} GFLOP",
        f"device     {plan.device.id}  {plan.device.name}",
    ]
    work = _nominal(plan)
    live = np.flatnonzero((work.m > 0) & (work.n > 0))
    if not len(live):
        return "\n".join([*head, "because    the results are empty: nothing is computed"])
    return "\n".join(head + told(work.take(live), plan.device))


def _nominal(plan: Planned) -> Work:
    """The sizes of a plan as dense matrices, each at a multiple of 64 bytes."""
    kind = arrays.element_type(plan.dtype)
    one = np.ones(len(plan.m), np.int64)

    def dense(rows: Ints, cols: Ints) -> contract.Columns:
        offsets, _ = aligned_offsets(rows, cols, kind.itemsize)
        return contract.Columns(offsets * kind.itemsize, cols, one)

    return Work(
        driver.ordinal_of(plan.device),
        plan.m,
        plan.n,
        plan.k,
        dense(plan.m, plan.k),
        dense(plan.k, plan.n),
        dense(plan.m, plan.n),
        None,
        one.astype(np.float64),
        np.zeros(len(plan.m)),
        "none",
        plan.dtype,
        "ieee",
        plan.asked,
        (),
    )


def _checked(
    a: Any,
    b: Any,
    out: Any,
    *,
    precision: str | None = None,
    order: str = "auto",
    sizes: Planned | None = None,
    lasting: bool = False,
    **options: Any,
) -> tuple[list[Work], Results]:
    """The launches of a batch, mostly one, and its results.

    `sizes`: what they must be. `lasting`: new results will be written again and again.
    """

    def room(rows: Ints, cols: Ints, left: Matrices, first: Ints | None) -> Room:
        made, target = _new_results(a, rows, cols, left, first, lasting=lasting)
        return lambda: made, target

    call = checked(a, b, out, place=Place(_matrices, room, _bias), **options)
    if sizes is not None:
        check_sizes_planned({"m": sizes.m, "n": sizes.n, "k": sizes.k}, call.a, call.b)
    left, right, target, vectors = call.a, call.b, call.c, call.bias
    keep, sums = call.beta, call.sums
    if sums is not None:
        target = taken(target, sums.into)
        vectors = None if vectors is None else taken(vectors, sums.into)
        keep = keep[sums.into]
    size = left.dtype.itemsize
    work = Work(
        _ordinal(left),
        left.at.rows,
        right.at.cols,
        left.at.cols,
        _bytes(left, size),
        _bytes(right, size),
        _bytes(target, size),
        None if vectors is None else _bytes(vectors, size),
        call.alpha,
        keep,
        call.activation,
        left.dtype.name,
        checked_precision(precision, left.dtype.name, PRECISIONS),
        order,
        (left.held, right.held, target.held, options.get("bias")),
    )
    return ([work] if sums is None else list(_turns(work, sums))), call.results()


def _turns(work: Work, sums: Sums) -> Iterator[Work]:
    """The launches of sums, one behind another: beta counts in the first product of each.

    Bias and activation count in the last, so a turn in which some sums end has two launches.
    """
    plain = work.activation == "none" and work.bias is None
    added = replace(work, beta=np.where(sums.turn > 0, 1.0, work.beta))
    for turn in sums.turns():
        if plain:
            yield added.take(turn)
            continue
        ends = sums.last[turn]
        if not ends.all():
            yield replace(added.take(turn[~ends]), bias=None, activation="none")
        if ends.any():
            yield added.take(turn[ends])


def _matrices(values: Any, name: str) -> Matrices:
    """The columns of a list of matrices or of a RaggedBatch on a GPU, addresses in elements.

    `base` is the GPU itself: whatever lies there counts as one memory.
    """
    if isinstance(values, RaggedBatch):
        flat = arrays.view(values.flat, f"{name}.flat")
        one = np.ones(len(values), np.int64)
        at = Columns(flat.offset + values.offsets, values.rows, values.cols, values.cols, one)
        dtype: Any = flat.dtype
        return Matrices(at, dtype, flat.memory, values)
    if not isinstance(values, Sequence) or hasattr(values, "shape"):
        raise OperandError(
            f"{name}={type(values).__name__}: accepted are a list of matrices and a RaggedBatch"
        )
    if not len(values):
        raise ShapeError(f"{name}: has 0 matrices; must have as many as the others")
    held = tuple(values)  # a lazy sequence makes each element anew: these are the ones that stay
    address, sizes, steps, kind, ordinal = arrays.columns(held, name)
    at = Columns(address, sizes[:, 0], sizes[:, 1], steps[:, 0], steps[:, 1])
    dtype = kind
    base: Any = arrays.memory_of(ordinal)
    return Matrices(at, dtype, base, held)


def _ordinal(part: Matrices) -> int:
    memory: Any = part.base
    ordinal: int = memory.ordinal
    return ordinal


def _bytes(part: Matrices, size: int) -> contract.Columns:
    return contract.Columns(part.at.address * size, part.at.row, part.at.col)


def _new_results(
    given: Any, rows: Ints, cols: Ints, a: Matrices, first: Ints | None, *, lasting: bool
) -> tuple[Results, Matrices]:
    """Results in one allocation: a RaggedBatch, or a list of matrices within one.

    Each is of the kind of its first product's `a`. Those that are `lasting` are views, as autograd
    knows them: they share one count of writes.
    """
    kind, ordinal = arrays.element_type(a.dtype.name), _ordinal(a)
    offsets, total = aligned_offsets(rows, cols, kind.itemsize)
    made: Any
    with arrays.stream_of(_one(given), ordinal):
        if isinstance(given, RaggedBatch):
            made = arrays.empty(total, kind, ordinal)
            address = made.data_ptr()
        elif lasting:
            flat = arrays.empty(total, kind, ordinal)
            address = flat.data_ptr()
            lies = zip(rows.tolist(), cols.tolist(), offsets.tolist(), strict=True)
            made = [flat.as_strided((m, n), (n, 1), at) for m, n, at in lies]
        else:
            lie = result_places(rows, cols, offsets, total, kind.name)
            made, address = lie.made(ordinal)
    at = Columns(address // kind.itemsize + offsets, rows, cols, cols, np.ones_like(rows))
    target = Matrices(at, a.dtype, a.base, made)
    if isinstance(given, RaggedBatch):
        return RaggedBatch(arrays.like(given.flat)(made), rows, cols, offsets), target
    if _are_torch(a.held):
        return made, target
    kinds = a.held if first is None else [a.held[i] for i in first.tolist()]
    return [arrays.like(one)(view) for one, view in zip(kinds, made, strict=True)], target


def _are_torch(values: Any) -> bool:
    """Whether results for these operands are torch's own tensors."""
    return all(hasattr(kind, "data_ptr") for kind in set(map(type, values)))


def _bias(vectors: Sequence[Any], widths: Ints, b: Matrices) -> Matrices:
    """The bias vectors as matrices of a row; address 0 and no columns where there is none."""
    address, cols = np.zeros_like(widths), np.zeros_like(widths)
    for i, vector in enumerate(vectors):
        if vector is not None:
            seen = arrays.view(vector, f"bias[{i}]")
            _check_vector(seen, f"bias[{i}]", int(widths[i]), b)
            address[i], cols[i] = seen.offset, widths[i]
    one = np.ones_like(widths)
    return Matrices(Columns(address, one, cols, one, one), b.dtype, b.base, vectors)


def _check_vector(seen: View, name: str, n: int, b: Matrices) -> None:
    if seen.shape != (n,) or seen.dtype != b.dtype:
        raise ShapeError(f"{name}: {seen.dtype.name} {seen.shape}; must be {b.dtype.name} ({n},)")
    if n > 1 and seen.strides != (1,):
        raise OperandError(f"{name}.strides={seen.strides}: must be contiguous on a GPU")
    if seen.memory != b.base:
        raise OperandError(f"{name}: lies elsewhere than b; accepted are arrays of one GPU")


def _one(values: Any) -> Any:
    """An array that shows the kind of a list or batch."""
    return values.flat if isinstance(values, RaggedBatch) else values[0]
