"""Lists of tensors that are multiplied: checked once here, batches as lists of views.

A RaggedBatch of tensors becomes a list of views and a list a batch; gradients pass both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tilewright.arrays.aligned import aligned_offsets
from tilewright.errors import OperandError, OverlapError, ShapeError
from tilewright.inputs.matrices import bias_vectors
from tilewright.inputs.ragged_batch import RaggedBatch
from tilewright.inputs.tensor_checks import (
    check_like,
    check_out,
    check_precision,
    check_vector,
    each,
)
from tilewright.inputs.tensors import check_tensor

_facts = attrgetter("dtype", "device", "layout", "is_nested")


def matrices(values: Any, name: str) -> list[Tensor]:
    """The matrices of a list or of a batch, which gives views, checked one by one."""
    if isinstance(values, RaggedBatch):
        return unpacked(values, name)
    if not isinstance(values, list | tuple):
        raise OperandError(
            f"{name}={type(values).__name__}: accepted are a list of matrices and a RaggedBatch"
        )
    for i, value in enumerate(values):
        if not isinstance(value, Tensor) or value.is_nested:
            check_tensor(value, f"{name}[{i}]")
        if value.dim() != 2:
            raise ShapeError(f"{name}[{i}].shape={tuple(value.shape)}: must have two dimensions")
    return list(values)


def fitting(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    biases: Sequence[Any],
    turned: tuple[Any, Any],
    precision: str | None,
    names: tuple[str, str, str] = ("a", "b", "bias"),
) -> tuple[list[Tensor], list[Tensor]]:
    """The factors, transposed where asked for, once all of them and the biases fit each other.

    names: what errors call them.
    """
    # That all are alike is found in loops of C: one after another they take 2 µs a problem.
    alike = not torch.compiler.is_compiling() and len({*map(_facts, a), *map(_facts, b)}) == 1
    for name, part in ((names[0], a[:1] if alike else a), (names[1], () if alike else b)):
        for i, value in enumerate(part):
            check_like(value, f"{name}[{i}]", a[0], f"{names[0]}[0]")
    turns = [each(turned[at], len(a), f"transpose_{name}", bool) for at, name in enumerate("ab")]
    left, right = (
        [value.t() if turn else value for value, turn in zip(part, which, strict=True)]
        for part, which in zip((a, b), turns, strict=True)
    )
    for i, (one, two) in enumerate(zip(left, right, strict=True)):
        if one.shape[1] != two.shape[0]:
            raise ShapeError(
                f"{names[1]}[{i}]: has {two.shape[0]} rows; must have {one.shape[1]}, the columns"
                f" of {names[0]}[{i}]"
            )
    for i, vector in enumerate(biases):
        if vector is not None:
            check_vector(vector, f"{names[2]}[{i}]", right[i].shape[1], left[0])
    check_precision(precision, left[0])
    return left, right


def outputs(out: Any, beta: Any, *operands: Any) -> list[Tensor]:
    """The matrices of `out`.

    Raises OperandError where gradients would be lost, OverlapError where one is named again: its
    products would replace each other.
    """
    found = matrices(out, "out")
    check_out(beta, *operands, *found)
    if torch.compiler.is_compiling():
        again = [i for i, one in enumerate(found) if any(one is other for other in found[:i])]
    else:
        places = [(one.untyped_storage()._cdata, one.storage_offset()) for one in found]
        first = {place: i for i, place in reversed(list(enumerate(places)))}
        again = [i for i, one in enumerate(found) if first[places[i]] < i and one.numel()]
    if again:
        raise OverlapError(
            f"out[{again[0]}]: is an earlier one again, and something of torch's looks at these"
            " tensors; accepted are out=None with into=, and an out whose tensors lie apart"
        )
    return found


def summed(found: Sequence[Tensor], into: Sequence[int], bias: Any) -> list[Tensor]:
    """Several products to a result, added in the caller's order by torch's own sums."""
    sums: list[Any] = [None] * (max(into) + 1)
    for i, (place, made) in enumerate(zip(into, found, strict=True)):
        before = sums[place]
        if before is not None and before.shape != made.shape:
            raise ShapeError(
                f"into[{i}]={place}: product {i} is {made.shape[0]} x {made.shape[1]}; must be"
                f" {before.shape[0]} x {before.shape[1]}, as what it is added to"
            )
        sums[place] = made if before is None else before + made
    for i, vector in enumerate(() if bias is None else bias_vectors(bias, len(sums))):
        if vector is not None:
            check_vector(vector, f"bias[{i}]", sums[i].shape[1], sums[i])
            sums[i] = sums[i] + vector
    return sums


def unpacked(batch: RaggedBatch, name: str) -> list[Tensor]:
    """The matrices, as views of `flat`.

    Where they follow each other they are cut in one piece, whose gradient is one concatenation; a
    slice each would have a gradient as long as `flat` each.
    """
    check_tensor(batch.flat, f"{name}.flat")
    starts, sizes = batch.offsets, batch.rows * batch.cols
    ends = starts + sizes
    if len(batch) == 0 or (starts[1:] < ends[:-1]).any():
        return list(batch)
    gaps = np.append(starts[1:], batch.flat.shape[0]) - ends
    cuts = np.stack((sizes, gaps), axis=1).reshape(-1).tolist()
    parts = batch.flat.split([int(starts[0]), *cuts])[1::2]
    shapes = zip(parts, batch.rows.tolist(), batch.cols.tolist(), strict=True)
    return [part.view(rows, cols) for part, rows, cols in shapes]


def packed(matrices: Sequence[Tensor]) -> RaggedBatch:
    """The matrices in one allocation, each at a multiple of 64 bytes."""
    rows = np.array([one.shape[0] for one in matrices], np.int64)
    cols = np.array([one.shape[1] for one in matrices], np.int64)
    offsets, total = aligned_offsets(rows, cols, matrices[0].element_size())
    gaps = np.append(offsets[1:], total) - (offsets + rows * cols)
    pieces: list[Any] = []
    for one, gap in zip(matrices, gaps.tolist(), strict=True):
        pieces += [one.reshape(-1), one.new_zeros(gap)] if gap else [one.reshape(-1)]
    return RaggedBatch(torch.cat(pieces), rows, cols, offsets)
