"""A checked batch on its way down: operands as columns, results, sums; nothing is written yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column
from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import like, view
from tilewright.errors import DeviceMemoryError, ShapeError
from tilewright.inputs.checks import checked_activation
from tilewright.inputs.matrices import (
    Matrices,
    bias_vectors,
    check_outputs,
    check_results,
    factors,
    matrices,
    taken,
)
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.sums import Sums, check_sizes, checked_into, once, one_vector, same_places

Results = list[Any] | RaggedBatch


@dataclass(frozen=True, slots=True)
class Call:
    """Checked operands of a batch, not yet on their way to a device.

    `a`, `b`, `alpha` have a row a product; `c`, `beta`, `bias` one a result, which is the same
    where `sums` is None.
    """

    a: Matrices
    b: Matrices
    c: Matrices
    bias: Matrices | None
    alpha: npt.NDArray[np.float64]
    beta: npt.NDArray[np.float64]
    activation: str
    results: Callable[[], Results]
    sums: Sums | None = None

    def part(self, at: Column, *, begins: bool, ends: bool) -> Call:
        """Some products as a batch of their own, at most one a result.

        `begins` where they are the first of their sums: others add to what lies there. `ends` where
        they are the last, which bias and activation wait for.
        """
        into = at if self.sums is None else self.sums.into[at]
        return Call(
            taken(self.a, at),
            taken(self.b, at),
            taken(self.c, into),
            taken(self.bias, into) if ends and self.bias is not None else None,
            self.alpha[at],
            self.beta[into] if begins else np.ones(len(at)),
            self.activation if ends else "none",
            self.results,
        )


Room = tuple[Callable[[], Results], Matrices]


@dataclass(frozen=True, slots=True)
class Place:
    """How one kind of memory shows matrices, makes room for results and reads bias vectors.

    `room` takes rows and columns of the results, `a`, and the first product of every result where
    there are sums; `bias` the vectors, their lengths and `b`.
    """

    matrices: Callable[[Any, str], Matrices]
    room: Callable[[Column, Column, Matrices, Column | None], Room]
    bias: Callable[[Sequence[Any], Column, Matrices], Matrices]


def checked(
    a: Any,
    b: Any,
    out: Any,
    *,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    transpose_a: Any = False,
    transpose_b: Any = False,
    bias: Any = None,
    activation: str | None = None,
    into: Any = None,
    place: Place | None = None,
) -> Call:
    """Operands and options of `grouped_matmul`, all checked. Raises what it raises.

    `place` is where matrices lie; the host and its OpenCL devices where None.
    """
    place = place or _HOST
    activation = checked_activation(activation)
    left, right = place.matrices(a, "a"), place.matrices(b, "b")
    target = None if out is None else place.matrices(out, "out")
    count = None if target is None else len(target)
    index = None if into is None else checked_into(into, len(left), count)
    named = None if index is None else int(index.max(initial=-1)) + 1
    flags = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    left, right, scale, keep = factors(
        left, right, alpha=alpha, beta=beta, out=out, results=named, **flags
    )
    if index is None and target is not None:
        check_results(target, left, right)
        index = same_places(target.at)
    sums = None if index is None else Sums.of(index, int(index.max(initial=-1)) + 1)
    rows, cols, vectors = left.at.rows, right.at.cols, bias
    if bias is not None:
        vectors = bias_vectors(bias, len(left) if named is None else named)
    if sums is not None:
        check_sizes(sums.into, sums, rows, cols)
        rows, cols = rows[sums.first], cols[sums.first]
        if named is None and target is not None:
            target = taken(target, sums.first)
            keep = once(keep, sums.into, sums.first, "beta")
            vectors = None if bias is None else one_vector(vectors, sums.into, sums.first)
    shift = None if bias is None else place.bias(vectors, cols, right)
    if target is None:
        first = None if sums is None else sums.first
        results, target = place.room(rows, cols, left, first)
    else:
        results = lambda: out  # noqa: E731
        check_results(target, left, right, None if sums is None else sums.first)
        check_outputs(target, (left, right, shift))
    return Call(left, right, target, shift, scale, keep, activation, results, sums)


def _new_results(rows: Column, cols: Column, a: Matrices, first: Column | None) -> Room:
    """Results in one allocation: a RaggedBatch, or a list of views, made when asked for.

    Each is of the kind of its first product's `a`.
    """
    if isinstance(a.held, RaggedBatch):
        device = "host" if a.base is None else a.base.device
        batch = RaggedBatch.empty(np.stack((rows, cols), axis=1), a.dtype, device)
        return lambda: batch, matrices(batch, "out")
    offsets, total = aligned_offsets(rows, cols, a.dtype.itemsize)
    try:
        flat = np.empty(total, a.dtype)
    except (MemoryError, ValueError):
        raise DeviceMemoryError(
            f"out=None: the host cannot give {total * a.dtype.itemsize} bytes for the results"
        ) from None
    kinds = a.kinds if first is None or a.kinds is None else [a.kinds[i] for i in first.tolist()]

    @cache
    def results() -> Results:
        # A loop in C: 0.20 µs a view, where slicing and reshaping take 0.26.
        shapes = zip(rows.tolist(), cols.tolist(), strict=True)
        starts = (offsets * a.dtype.itemsize).tolist()
        view: Any = np.ndarray
        views = list(map(view, shapes, repeat(a.dtype), repeat(flat), starts))
        if kinds is None:
            return views
        return [like(kind)(made) for kind, made in zip(kinds, views, strict=True)]

    return results, matrices(RaggedBatch(flat, rows, cols, offsets), "out")


def _bias(vectors: Sequence[Any], cols: Column, b: Matrices) -> Matrices:
    """Vectors [cols[r]] as columns of one; without rows where a result has none."""
    rows: list[NDArray] = []
    for i, vector in enumerate(vectors):
        if vector is None:
            rows.append(np.empty((0, 1), b.dtype))
            continue
        array = view(vector, f"bias[{i}]").memory
        if array.shape != (int(cols[i]),) or array.dtype != b.dtype:
            raise ShapeError(
                f"bias[{i}]: {array.dtype} {array.shape}; must be {b.dtype} ({cols[i]},)"
            )
        rows.append(np.ascontiguousarray(array)[:, np.newaxis])
    if b.base is not None:
        return matrices(RaggedBatch.from_list(rows).to(b.base.device), "bias")
    return matrices(rows, "bias")


_HOST = Place(matrices, _new_results, _bias)


def check_sizes_planned(sizes: Mapping[str, Column], a: Matrices, b: Matrices) -> None:
    """Raise ShapeError where operands have other sizes than a plan's, by "m", "n" and "k"."""
    given = {"m": a.at.rows, "n": b.at.cols, "k": a.at.cols}
    for name, planned in sizes.items():
        if len(planned) != len(given[name]):
            raise ShapeError(f"a: has {len(given[name])} matrices; the plan is for {len(planned)}")
        if not np.array_equal(planned, given[name]):
            i = int(np.argmax(planned != given[name]))
            raise ShapeError(f"{name}[{i}]={given[name][i]}: the plan was made for {planned[i]}")
