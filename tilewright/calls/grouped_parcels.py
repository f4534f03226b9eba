"""What a worker is sent of a batch, and what it makes of it: sizes, options, elements side by side.

    Work      sizes, transposes, scalars: equal ones are run by one bound plan, which is kept
    Parcel    a Work and its elements: an array each of a, b, bias and what is added to

Matrices lie in such an array as `RaggedBatch` has them, 64-byte aligned, so that a part of one is
sent as it is; others are copied beside each other. One that lies by columns stays so: its bits do.
"""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column
from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.array import NDArray
from tilewright.calls.grouped_loop_host import views
from tilewright.calls.grouped_plan import plan_of
from tilewright.inputs.batch import Call
from tilewright.inputs.devices import host
from tilewright.inputs.matrices import Matrices, taken
from tilewright.planning.grouped import signature
from tilewright.remember import Shelf

Flags = npt.NDArray[np.bool_]
_bound: Shelf[bytes, deque[_Bound]] = Shelf("bound plans of workers", most=1 << 30)


@dataclass(frozen=True, eq=False)
class Work:
    """Products of some results, by their numbers among these."""

    m: Column
    n: Column
    k: Column
    turned_a: Flags
    turned_b: Flags
    into: Column | None
    alpha: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]
    biased: Flags | None  # results that have a bias
    activation: str
    dtype: str
    order: str
    kernel: str | None

    @property
    def key(self) -> bytes:
        """The same for works that one bound plan does."""
        columns = (self.turned_a, self.turned_b, self.into, self.alpha, self.beta, self.biased)
        parts = tuple(None if one is None else one.tobytes() for one in columns)
        names = (self.activation, self.dtype, self.order, self.kernel)
        return signature(self.m, self.n, self.k, *parts, *names)

    @property
    def shapes(self) -> tuple[Column, Column]:
        """Rows and columns of the results."""
        if self.into is None:
            return self.m, self.n
        _, first = np.unique(self.into, return_index=True)
        return self.m[first], self.n[first]


@dataclass(frozen=True, eq=False)
class Parcel:
    """What goes to a worker; `c` where something is added to, `bias` where there is one."""

    work: Work
    a: NDArray
    b: NDArray
    c: NDArray | None
    bias: NDArray | None


def parcel_of(
    call: Call, products: Column, results: Column, order: str, kernel: str | None
) -> Parcel:
    """Some results of a call, with all of their products."""
    a, b = taken(call.a, products), taken(call.b, products)
    c, bias = taken(call.c, results), None
    into = None if call.sums is None else call.sums.into[products] - results[0]
    if call.bias is not None:
        bias = taken(call.bias, results)
    beta = call.beta[results]
    work = Work(
        *(a.at.rows, b.at.cols, a.at.cols, _turned(a), _turned(b), into),
        *(call.alpha[products], beta, None if bias is None else bias.at.rows > 0),
        call.activation,
        a.dtype.name,
        order,
        kernel,
    )
    adds = _packed(c, np.zeros(len(c), np.bool_)) if beta.any() else None
    more = None if bias is None else _packed(bias, np.zeros(len(bias), np.bool_))
    return Parcel(work, _packed(a, work.turned_a), _packed(b, work.turned_b), adds, more)


def bytes_of(part: Matrices) -> npt.NDArray[np.float64]:
    """The bytes of each matrix."""
    return part.at.rows.astype(np.float64) * part.at.cols * int(part.dtype.itemsize)


def write(made: NDArray, target: Matrices, *, between: bool) -> None:
    """Results that a worker made, where the caller wants them.

    `between` says that the bytes from each result to the next are nobody's, so that they may be
    written with it; a caller's may lie in an array, or in memory of their own.
    """
    if (there := _as_it_lies(target, between=between)) is not None:
        there[...] = made[: len(there)]
        return
    rows, cols = target.at.rows, target.at.cols
    for own, view in zip(_laid(made, rows, cols), views(target), strict=True):
        view[...] = own


def make(parcel: Parcel) -> NDArray:
    """At a worker: the results of a parcel, on the core of the task that asks.

    The plan that an equal work was bound to is run again, on elements that are copied to it.
    """
    key = parcel.work.key
    idle = _bound.get(key)
    try:
        bound = _Bound(parcel.work) if idle is None else idle.popleft()
    except IndexError:  # other threads have all of them
        bound = _Bound(parcel.work)
    made = bound.made(parcel)
    _bound.keep(key, deque(), size=bound.bytes, owners=()).append(bound)
    return made


class _Bound:
    """A bound plan with memory of its own, for one thread at a time."""

    def __init__(self, work: Work) -> None:
        rows, cols = work.shapes
        dtype = np.dtype(work.dtype)
        self._a, a = _room(work.m, work.k, dtype, work.turned_a)
        self._b, b = _room(work.k, work.n, dtype, work.turned_b)
        self._c, c = _room(rows, cols, dtype)
        self._bias, bias = None, None
        if work.biased is not None:
            self._bias, columns = _room(np.where(work.biased, cols, 0), np.ones_like(cols), dtype)
            pairs = zip(columns, work.biased.tolist(), strict=True)
            bias = [column[:, 0] if has else None for column, has in pairs]
        options: dict[str, Any] = {"alpha": work.alpha, "beta": work.beta, "bias": bias}
        if work.into is not None:
            options["into"] = work.into
        self._run = _plan(work).bind(a, b, c, activation=work.activation, **options)

    @property
    def bytes(self) -> int:
        """What is kept of it, tables as large as its sizes not counted."""
        return self._a.nbytes + self._b.nbytes + self._c.nbytes

    def made(self, parcel: Parcel) -> NDArray:
        """The results, in memory of their own."""
        given = ((self._a, parcel.a), (self._b, parcel.b), (self._c, parcel.c))
        for own, elements in (*given, (self._bias, parcel.bias)):
            if own is not None and elements is not None:
                own[: len(elements)] = elements
        self._run()
        return self._c.copy()


def _plan(work: Work) -> Any:
    """The plan for one core: tasks of a worker's other threads have the others."""
    core = replace(host(), id="host: a core", compute_units=1)
    options: dict[str, Any] = {"named": True, "kernel": work.kernel}
    return plan_of(work.m, work.n, work.k, work.dtype, core, work.order, **options)


def _turned(part: Matrices) -> Flags:
    """Which lie by columns."""
    item = part.dtype.itemsize
    found: Flags = (part.at.row == item) & (part.at.col != item) & (part.at.cols > 1)
    return found


def _room(
    rows: Column, cols: Column, dtype: Any, turned: Flags | None = None
) -> tuple[NDArray, list[NDArray]]:
    _, total = aligned_offsets(rows, cols, dtype.itemsize)
    flat = np.zeros(total, dtype)
    return flat, _laid(flat, rows, cols, turned)


def _laid(flat: NDArray, rows: Column, cols: Column, turned: Flags | None = None) -> list[NDArray]:
    """The matrices in an array of elements."""
    offsets, _ = aligned_offsets(rows, cols, flat.itemsize)
    begins = zip(offsets.tolist(), rows.tolist(), cols.tolist(), strict=True)
    found = [flat[at : at + m * n].reshape(m, n) for at, m, n in begins]
    for i in () if turned is None else np.flatnonzero(turned).tolist():
        found[i] = found[i].reshape(found[i].shape[::-1]).T
    return found


def _packed(part: Matrices, turned: Flags) -> NDArray:
    """The elements of matrices, side by side."""
    there = None if turned.any() else _as_it_lies(part)
    if there is not None:
        return there
    flat, own = _room(part.at.rows, part.at.cols, part.dtype, turned)
    for to, view in zip(own, views(part), strict=True):
        to[...] = view
    return flat


def _as_it_lies(part: Matrices, *, between: bool = True) -> NDArray | None:
    """The memory of matrices that lie as a RaggedBatch has them; None of others.

    Without `between`, None too where one does not end where the next begins.
    """
    at, item = part.at, part.dtype.itemsize
    offsets, total = aligned_offsets(at.rows, at.cols, item)
    full = np.flatnonzero((at.rows > 0) & (at.cols > 0))
    if not len(full):
        return np.empty(0, part.dtype)
    begin = int(at.address[full[0]]) - int(offsets[full[0]]) * item
    dense = (at.address == begin + offsets * item) & (at.col == item) & (at.row == at.cols * item)
    if not dense[full].all():
        return None
    if not between and (np.diff(offsets[full]) != (at.rows * at.cols)[full[:-1]]).any():
        return None
    last = full[-1]  # behind it the array may end
    total = int(offsets[last] + at.rows[last] * at.cols[last])
    span: Any = (ctypes.c_char * (total * item)).from_address(begin)
    span._owner = part.held
    return np.frombuffer(span, part.dtype)
