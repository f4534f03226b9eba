"""Results of a list of products: one allocation, and a tensor for each, made a thousand at a time.

`as_strided` takes 1.1 us of an H200's host, longer than anything else that a product of a list
needs. `unsafe_split` cuts a matrix into runs of its rows in 0.4 us each, so results of as many
columns lie behind one another and are cut from one. (It is unsafe for views that overlap, or whose
base somebody has: autograd counts the writes to each alone. These do not overlap.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.backends.cuda.engine import Ints
from tilewright.remember import Shelf

_ALIGNED = 64  # bytes: where results of as many columns begin
_WORTH = 4  # results to a number of columns, on the average, from which on cutting pays


@dataclass(frozen=True, slots=True)
class Places:
    """Where results lie: `offsets` in elements, of `total`, and how views of them are made."""

    offsets: Ints
    total: int
    cuts: tuple[tuple[tuple[int, int], tuple[int, int], int, list[int]], ...]
    back: list[int]
    strided: tuple[list[tuple[int, int]], list[tuple[int, int]], list[int]]

    def views(self, flat: Any) -> list[Any]:
        """A matrix each of this memory, in the order of the problems."""
        if not self.cuts:
            return list(map(flat.as_strided, *self.strided))
        import torch

        found: list[Any] = []
        for size, step, start, rows in self.cuts:
            found += torch.unsafe_split_with_sizes(flat.as_strided(size, step, start), rows)
        return [found[at] for at in self.back]


_kept: Shelf[tuple[bytes, bytes, int], Places] = Shelf("places of results", most=16 << 20)


def places(rows: Ints, cols: Ints, itemsize: int) -> Places:
    """Where results of these sizes lie."""
    key = (rows.tobytes(), cols.tobytes(), itemsize)
    return _kept.found(key, lambda: _made(rows, cols, itemsize), lambda _: 200 * len(rows))


def _made(rows: Ints, cols: Ints, itemsize: int) -> Places:
    widths, kind = np.unique(cols, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    step = _ALIGNED // itemsize
    high = np.bincount(kind, rows, len(widths)).astype(np.int64)
    room = -(-high * widths // step) * step
    begin = np.cumsum(room) - room
    size = (rows * cols)[order]
    before = np.cumsum(size) - size
    first = np.searchsorted(kind[order], np.arange(len(widths)))
    offsets = np.empty_like(rows)
    offsets[order] = begin[kind[order]] + before - before[first][kind[order]]
    total = int(room.sum())
    if _WORTH * len(widths) > len(rows):
        sizes, steps = zip(rows.tolist(), cols.tolist(), strict=True), cols.tolist()
        strided = (list(sizes), [(n, 1) for n in steps], offsets.tolist())
        return Places(offsets, total, (), [], strided)
    ordered = rows[order].tolist()
    stops = [*first[1:].tolist(), len(ordered)]
    runs = [ordered[start:stop] for start, stop in zip(first.tolist(), stops, strict=True)]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    cuts = tuple(
        ((tall, wide), (wide, 1), start, run)
        for tall, wide, start, run in zip(
            high.tolist(), widths.tolist(), begin.tolist(), runs, strict=True
        )
    )
    return Places(offsets, total, cuts, back.tolist(), ([], [], []))
