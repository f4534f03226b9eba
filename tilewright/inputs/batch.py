"""Checks one batch, in the same way for every place that its matrices may lie in.

    arguments -> place: columns -> transposes, sizes -> sums -> bias -> results -> overlap -> Call

What runs it: `calls/grouped_run_host.py` by a plan, `calls/grouped_gpu.py` by engines. Nothing is
written yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column
from tilewright.errors import DtypeError, OperandError, ShapeError
from tilewright.facts.device import Device
from tilewright.inputs.checks import checked_activation
from tilewright.inputs.matrices import (
    Matrices,
    bias_vectors,
    check_results,
    device_of,
    factors,
    taken,
)
from tilewright.inputs.overlap_batch import check_outputs
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
    alpha: npt.NDArray[Any]
    beta: npt.NDArray[Any]
    activation: str
    results: Callable[[], Results]
    sums: Sums | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """What kernels read of it (engines/grouped.py)."""
        parts = {"a": self.a, "b": self.b, "c": self.c, "bias": self.bias}
        return {
            **{name: None if part is None else part.at for name, part in parts.items()},
            "alpha": self.alpha,
            "beta": self.beta,
            "activation": self.activation,
            "dtype": self.a.dtype.name,
        }

    def turns(self) -> Iterator[tuple[Column, Call]]:
        """The launches of its sums, one behind another: products, and the batch of them alone.

        A turn in which some sums end has two where bias or activation wait for the last product.
        """
        assert self.sums is not None
        plain = self.activation == "none" and self.bias is None
        for number, turn in enumerate(self.sums.turns()):
            last = self.sums.last[turn]
            kinds = ((turn, True),) if plain else ((turn[~last], False), (turn[last], True))
            for at, ends in kinds:
                if len(at):
                    yield at, self.part(at, begins=number == 0, ends=ends)

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
            self.beta[into] if begins else np.ones(len(at), self.beta.dtype),
            self.activation if ends else "none",
            self.results,
        )


Room = tuple[Callable[[], Results], Matrices]


class Place(Protocol):
    """How one kind of memory shows matrices, makes room for results and reads bias vectors."""

    def matrices(self, values: Any, name: str) -> Matrices:
        """The columns of a list of matrices or a RaggedBatch. No element is copied."""

    def room(self, rows: Column, cols: Column, a: Matrices, first: Column | None) -> Room:
        """New results in one allocation, in the kind of `a`: a RaggedBatch, or a list.

        Each of a list is of the kind of its first product's `a`, which `first` has where there are
        sums.
        """

    def bias(self, vectors: Sequence[Any], widths: Column, b: Matrices) -> Matrices:
        """Vectors of these lengths, or None, as matrices; one without elements for None."""

    def written(self, out: Any) -> None:
        """Tell whoever counts that results were written in place."""


def checked(
    place: Place,
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
) -> Call:
    """Operands and options of `grouped_matmul`, all checked. Raises what it raises."""
    left, right = place.matrices(a, "a"), place.matrices(b, "b")
    activation = checked_activation(activation, left.dtype.name)
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


def check_planned(call: Call, device: Device, dtype: str, sizes: Mapping[str, Column]) -> None:
    """Raise where operands are not those that a plan was made for: its sizes are m, n and k."""
    a = call.a
    given = {"m": a.at.rows, "n": call.b.at.cols, "k": a.at.cols}
    for name, planned in sizes.items():
        if len(planned) != len(given[name]):
            raise ShapeError(f"a: has {len(given[name])} matrices; the plan is for {len(planned)}")
        if not np.array_equal(planned, given[name]):
            i = int(np.argmax(planned != given[name]))
            raise ShapeError(f"{name}[{i}]={given[name][i]}: the plan was made for {planned[i]}")
    if len(a) and a.dtype.name != dtype:
        raise DtypeError(f"a.dtype={a.dtype.name!r}: the plan was made for {dtype!r}")
    if a.base is not None and device_of(a) != device.id:
        raise OperandError(f"a: lies on {device_of(a)!r}; the plan was made for {device.id!r}")
