"""Sums of products: several products of a batch that are added into one result.

A result is asked for more than once either by `into`, the index of every product's result, or by an
`out` that names the very same matrix (place, sizes, strides) more than once. Both become `Sums`:

    result[r] = activation(sum of alpha[i] · A[i] @ B[i], into[i] = r, + beta[r] · out[r] + bias[r])

Products are added one after another in the caller's order, each result on its own, so that the bits
never depend on which ran first. `Sums.turns` deals them into launches that follow each other: the
first product of every sum in the first, the second in the second.

Worked example, five products and two results:

>>> sums = Sums.of(np.array([0, 1, 0, 0, 1]), 2)
>>> sums.first.tolist(), sums.turn.tolist(), sums.last.tolist()
([0, 1], [0, 0, 1, 2, 1], [False, False, False, True, True])
>>> [part.tolist() for part in sums.turns()]
[[0, 1], [2, 4], [3]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.arrays.addresses import Column, Columns, numbers_of
from tilewright.errors import ArgumentError, ShapeError

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sums:
    """Of every product its result, its turn in that sum and whether it is the last of it.

    `first` has the first product of every result.
    """

    into: Column
    first: Column
    turn: Column
    last: Flags

    @classmethod
    def of(cls, into: Column, results: int) -> Sums:
        """From the result of every product; each of `results` has one product at least."""
        by_result = np.argsort(into, kind="stable")
        counts = np.bincount(into, minlength=results)
        ends = np.cumsum(counts)
        turn = np.empty(len(into), np.int64)
        turn[by_result] = np.arange(len(into)) - np.repeat(ends - counts, counts)
        last = np.zeros(len(into), np.bool_)
        last[by_result[ends - 1]] = True
        return cls(into, by_result[ends - counts], turn, last)

    def turns(self) -> Iterator[Column]:
        """The products of each launch, in the caller's order."""
        by_turn = np.argsort(self.turn, kind="stable")
        yield from np.split(by_turn, np.cumsum(np.bincount(self.turn))[:-1])


def checked_into(into: Any, products: int, results: int | None) -> Column:
    """`into` as a column of indices below `results`; where that is None, below its own largest + 1.

    Raises ArgumentError unless it has a whole number for each product and every result a product.
    """
    column = numbers_of(into)
    if column.shape != (products,) or (products and column.dtype.kind not in "iu"):
        raise ArgumentError(
            f"into: {column.dtype} of shape {column.shape}; accepted are {products} whole numbers,"
            " the index of every product's result"
        )
    column = column.astype(np.int64)
    count = int(column.max(initial=-1)) + 1 if results is None else results
    wrong = (column < 0) | (column >= count)
    if wrong.any():
        at = int(np.argmax(wrong))
        most = (products if results is None else results) - 1
        raise ArgumentError(f"into[{at}]={column[at]}: accepted are 0 to {most}")
    if products * 64 + 64 < count:
        raise ArgumentError(f"into: its largest is {count - 1}, and there are {products} products")
    named = np.bincount(column, minlength=count) > 0
    if not named.all():
        raise ArgumentError(
            f"into: no product names result {int(np.argmin(named))}; every one needs a product"
            " (with k = 0 it gives beta * out)"
        )
    return column


def check_sizes(into: Column, sums: Sums, rows: Column, cols: Column) -> None:
    """Raise ShapeError where products of unlike sizes are to be added."""
    wrong = (rows != rows[sums.first][into]) | (cols != cols[sums.first][into])
    if wrong.any():
        i = int(np.argmax(wrong))
        first = int(sums.first[into[i]])
        raise ShapeError(
            f"into[{i}]={into[i]}: product {i} is {rows[i]} x {cols[i]}; must be {rows[first]} x"
            f" {cols[first]} as product {first}, which it is added to"
        )


def same_places(at: Columns) -> Column | None:
    """The index of the result of every matrix where some are the very same; None where none are.

    Results are numbered by their first appearance. Matrices without elements are never the same.
    """
    if len(np.unique(at.address)) == len(at.address):
        return None
    alone = np.where((at.rows == 0) | (at.cols == 0), np.arange(len(at.rows)), -1)
    row, col = np.where(at.rows > 1, at.row, 0), np.where(at.cols > 1, at.col, 0)
    keys = np.stack((at.address, at.rows, at.cols, row, col, alone), axis=1)
    _, first, same = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(keys):
        return None
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[same.reshape(-1)]


def once(values: npt.NDArray[Any], into: Column, first: Column, name: str) -> npt.NDArray[Any]:
    """One value a result of a column that has one a product, which must agree within each sum."""
    wrong = values != values[first][into]
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ArgumentError(
            f"{name}[{i}]={values[i]}: out[{i}] is out[{first[into[i]]}], whose {name} is"
            f" {values[first][into][i]}; it is applied once, so they must agree"
        )
    kept: npt.NDArray[Any] = values[first]
    return kept


def one_vector(vectors: Sequence[Any], into: Column, first: Column) -> list[Any]:
    """The bias of every result, of a list that has one a product: the same array, or None."""
    kept = [vectors[i] for i in first.tolist()]
    for i, result in enumerate(into.tolist()):
        if vectors[i] is not None and not _is_same(vectors[i], kept[result]):
            raise ArgumentError(
                f"bias[{i}]: out[{i}] is out[{first[result]}], whose bias is another; it is added"
                " once, so give the same array or None"
            )
    return kept


def _is_same(one: Any, other: Any) -> bool:
    """Whether two vectors are one: the very same object, or views of the very same elements."""
    if one is other:
        return True
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return False
    first, second = one.__array_interface__, other.__array_interface__
    names = ("data", "shape", "strides", "typestr")
    return all(first[name] == second[name] for name in names)
