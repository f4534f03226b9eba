"""The place of batches on a GPU: torch's tensors, CuPy, DLPack. Loaded with the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.addresses import Column, row_major
from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.views import View
from tilewright.backends.cuda.machine import arrays, cupy_lists
from tilewright.backends.cuda.machine.results import known_places
from tilewright.errors import OperandError, ShapeError
from tilewright.inputs.batch import Results, Room
from tilewright.inputs.matrices import Matrices
from tilewright.inputs.place_gpu import OnGpu
from tilewright.inputs.ragged_batch import RaggedBatch


@dataclass(frozen=True, slots=True)
class BatchOnGpu:
    """The memory of the GPU that `given` lies on, the list or batch whose kind results have.

    `lasting`: results will be written again and again.
    """

    given: Any
    lasting: bool = False

    @property
    def one(self) -> Any:
        """An array that shows the kind of the list or batch."""
        return self.given.flat if isinstance(self.given, RaggedBatch) else self.given[0]

    def within(self, part: Matrices) -> OnGpu:
        """The place of one array there, where an operand lies: its device, streams, memory."""
        memory: Any = part.base
        return OnGpu(self.one, memory)

    def matrices(self, values: Any, name: str) -> Matrices:
        """Their columns.

        `base` is the GPU itself: whatever lies there counts as one memory.
        """
        if isinstance(values, RaggedBatch):
            flat = arrays.view(values.flat, f"{name}.flat")
            address = (flat.offset + values.offsets) * flat.dtype.itemsize
            at = row_major(values.rows, values.cols, address, flat.dtype.itemsize)
            dtype: Any = flat.dtype
            return Matrices(at, dtype, flat.memory, values)
        if not isinstance(values, Sequence) or hasattr(values, "shape"):
            raise OperandError(
                f"{name}={type(values).__name__}: accepted are a list of matrices and a RaggedBatch"
            )
        if not len(values):
            raise ShapeError(f"{name}: has 0 matrices; must have as many as the others")
        held = tuple(values)  # a lazy sequence makes each element anew: these stay
        at, dtype, ordinal = arrays.columns(held, name)
        base: Any = arrays.memory_of(ordinal)
        return Matrices(at, dtype, base, held)

    def room(self, rows: Column, cols: Column, a: Matrices, first: Column | None) -> Room:
        """Those that are `lasting` are views, as autograd knows them: they share one count of
        writes."""
        offsets, total = aligned_offsets(rows, cols, a.dtype.itemsize)
        where = self.within(a)
        made: Any
        with where.stream():
            if isinstance(self.given, RaggedBatch):
                made = where.empty(total, a.dtype)
                address = made.data_ptr()
            elif self.lasting:
                flat = where.empty(total, a.dtype)
                address = flat.data_ptr()
                lies = zip(rows.tolist(), cols.tolist(), offsets.tolist(), strict=True)
                made = [flat.as_strided((m, n), (n, 1), at) for m, n, at in lies]
            elif cupy_lists.is_plain(a.held):
                made, address = cupy_lists.made(
                    rows, cols, offsets, total, a.dtype.name, where.memory.ordinal
                )
            else:
                lie = known_places(rows, cols, offsets, total, a.dtype.name)
                made, address = lie.made(where.memory.ordinal)
        at = row_major(rows, cols, address + offsets * a.dtype.itemsize, a.dtype.itemsize)
        results = self._public(made, rows, cols, offsets, a, first)
        return lambda: results, Matrices(at, a.dtype, a.base, made)

    def _public(
        self, made: Any, rows: Column, cols: Column, offsets: Column, a: Matrices, first: Any
    ) -> Results:
        """What was made in the caller's kind: by torch mostly, which hands it over."""
        if isinstance(self.given, RaggedBatch):
            return RaggedBatch(arrays.like(self.given.flat)(made), rows, cols, offsets)
        is_torch = all(hasattr(kind, "data_ptr") for kind in set(map(type, a.held)))
        if is_torch or (cupy_lists.is_plain(a.held) and cupy_lists.is_plain(made)):
            views: list[Any] = made
            return views
        kinds = a.held if first is None else [a.held[i] for i in first.tolist()]
        return [arrays.like(one)(view) for one, view in zip(kinds, made, strict=True)]

    def bias(self, vectors: Sequence[Any], widths: Column, b: Matrices) -> Matrices:
        """As matrices of a row; address 0 and no columns where there is none."""
        address, cols = np.zeros_like(widths), np.zeros_like(widths)
        for i, vector in enumerate(vectors):
            if vector is not None:
                seen = arrays.view(vector, f"bias[{i}]")
                _check_vector(seen, f"bias[{i}]", int(widths[i]), b)
                address[i], cols[i] = seen.offset * b.dtype.itemsize, widths[i]
        at = row_major(np.ones_like(widths), cols, address, b.dtype.itemsize)
        return Matrices(at, b.dtype, b.base, vectors)

    def written(self, out: Any) -> None:
        """Autograd counts the writes of tensors."""
        arrays.written(written_of(out))


def written_of(out: Any) -> Any:
    """The arrays whose writes count where these results are written."""
    return [out.flat] if isinstance(out, RaggedBatch) else out


def _check_vector(seen: View, name: str, n: int, b: Matrices) -> None:
    if seen.shape != (n,) or seen.dtype != b.dtype:
        raise ShapeError(f"{name}: {seen.dtype.name} {seen.shape}; must be {b.dtype.name} ({n},)")
    if n > 1 and seen.strides != (1,):
        raise OperandError(f"{name}.strides={seen.strides}: must be contiguous on a GPU")
    if seen.memory != b.base:
        raise OperandError(f"{name}: lies elsewhere than b; accepted are arrays of one GPU")
