"""The place of batches on the host and its OpenCL devices: NumPy, DLPack, RaggedBatch.

That of torch's tensors in the host's memory is inputs/batch_place_tensors.py, that of GPUs
inputs/batch_place_gpu.py: each is loaded with the first of its arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np

from tilewright.arrays import reused
from tilewright.arrays.addresses import Column
from tilewright.arrays.aligned import aligned_offsets
from tilewright.arrays.array import NDArray
from tilewright.arrays.views import like, view
from tilewright.errors import OperandError, ShapeError
from tilewright.facts.dtypes import NARROW
from tilewright.inputs import narrow
from tilewright.inputs.batch import Results, Room
from tilewright.inputs.matrices import Matrices, matrices
from tilewright.inputs.ragged_batch import RaggedBatch


class BatchOnHost:
    """The host's arrays, and RaggedBatch on the host or an OpenCL device."""

    def matrices(self, values: Any, name: str) -> Matrices:
        """As they are."""
        return matrices(values, name)

    def like(self, kind: Any) -> Callable[[NDArray], Any]:
        """How a result becomes an array of this one's kind."""
        return like(kind)

    def room(self, rows: Column, cols: Column, a: Matrices, first: Column | None) -> Room:
        """A list is of views, made when asked for."""
        if a.dtype.name in NARROW:
            return self._narrow_room(rows, cols, a, first)
        if isinstance(a.held, RaggedBatch):
            device = "host" if a.base is None else a.base.device
            batch = RaggedBatch.empty(np.stack((rows, cols), axis=1), a.dtype, device)
            return lambda: batch, matrices(batch, "out")
        offsets, total = aligned_offsets(rows, cols, a.dtype.itemsize)
        size = total * a.dtype.itemsize
        none = f"out=None: the host cannot give {size} bytes for the results"
        flat = reused.flat(total, a.dtype, none)
        kinds = a.kinds
        if first is not None and kinds is not None:
            kinds = [kinds[i] for i in first.tolist()]

        @cache
        def results() -> Results:
            # A loop in C: 0.20 µs a view, where slicing and reshaping take 0.26.
            shapes = zip(rows.tolist(), cols.tolist(), strict=True)
            starts = (offsets * a.dtype.itemsize).tolist()
            view: Any = np.ndarray
            views = list(map(view, shapes, repeat(a.dtype), repeat(flat), starts))
            if kinds is None:
                return views
            return [self.like(kind)(made) for kind, made in zip(kinds, views, strict=True)]

        return results, matrices(RaggedBatch(flat, rows, cols, offsets), "out")

    def _narrow_room(self, rows: Column, cols: Column, a: Matrices, first: Column | None) -> Room:
        kinds = a.kinds
        if first is not None and kinds is not None:
            kinds = [kinds[i] for i in first.tolist()]

        def made(flat: NDArray, places: Sequence[narrow.Place]) -> list[Any]:
            return self.narrow_views(flat, places, kinds)

        results, at, dtype, flat = narrow.room_for(rows, cols, a.dtype, made)
        return results, Matrices(at, dtype, None, flat)

    def narrow_views(self, flat: NDArray, places: Sequence[narrow.Place], kinds: Any) -> list[Any]:
        """Results of bfloat16 or int8 in memory as NumPy sees it, in the kinds of `kinds`."""
        if len(places) and kinds[0].dtype.name == "bfloat16":
            flat = flat.view(kinds[0].dtype)
        return [flat[begin : begin + m * n].reshape(m, n) for m, n, begin in places]

    def bias(self, vectors: Sequence[Any], widths: Column, b: Matrices) -> Matrices:
        """As columns of one; without rows where a result has none."""
        if b.dtype.name in NARROW:
            at, held, dtype = narrow.bias_columns(vectors, widths, b.dtype)
            return Matrices(at, dtype, None, held)
        rows: list[NDArray] = []
        for i, vector in enumerate(vectors):
            if vector is None:
                rows.append(np.empty((0, 1), b.dtype))
                continue
            seen = view(vector, f"bias[{i}]")
            if not seen.host:
                raise OperandError(f"bias[{i}]: lies on a device; accepted are the host's arrays")
            array = seen.memory
            if array.shape != (int(widths[i]),) or array.dtype != b.dtype:
                raise ShapeError(
                    f"bias[{i}]: {array.dtype} {array.shape}; must be {b.dtype} ({widths[i]},)"
                )
            rows.append(np.ascontiguousarray(array)[:, np.newaxis])
        if b.base is not None:
            return matrices(RaggedBatch.from_list(rows).to(b.base.device), "bias")
        return matrices(rows, "bias")

    def written(self, out: Any) -> None:
        """Nobody counts."""
