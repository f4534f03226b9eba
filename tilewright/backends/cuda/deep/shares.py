"""Shares: all k of all tiles of a batch, cut into as many pieces of one length as blocks run.

    k of tiles   | tile 0      | tile 1          | tile 2  |      each after a START, what a tile
    blocks       | 0       | 1       | 2         | 3       |      takes besides its k
    entries        0        1  2      3        4  5              some k of one tile

Blocks of equal work end together, whatever the tiles are: where 500 products of 64 x 64 by 1,000 to
20,000 were cut into 2,400 tiles for whoever comes free, the uneven end was predicted to take a
seventh of the time, and adding the parts as much as a thirtieth. So many blocks cut no more than as
many tiles, once each. Pure array code.

>>> shares = shared_out(np.array([64]), np.array([70]), np.array([1000]), step=100, blocks=3)
>>> [list(entry) for entry in shares.entries[["row", "column", "begin", "end", "to"]].tolist()]
[[0, 0, 0, 600, 0], [0, 0, 600, 1000, 4096], [0, 64, 0, 300, 8192], [0, 64, 300, 1000, 8576]]
>>> shares.starts.tolist(), shares.longest
([0, 1, 3, 4], 7.5)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.backends.cuda.work import Ints
from tilewright.planning.within import within

SIDE = 64  # rows and columns of a tile
UNITS = 2  # of a step of k, by which work is counted
START = 1  # units that a tile takes besides its k: the first loads, and writing C
SLIVER = 2  # steps: less of a tile is not cut off
# `struct Entry` of kernels/deep/deep.cuh.
_PLACE = ("problem", "row", "column", "begin", "end", "unused")
ENTRY = np.dtype([*((name, np.int32) for name in _PLACE), ("to", np.int64)])


@dataclass(frozen=True)
class Shares:
    """Entries, block by block: those of block b are starts[b] to starts[b + 1].

    `cut` are the first entries of tiles that several entries make, `parts` how many do. `elements`
    of scratch hold those; `longest` is the work of the longest share in steps, starts included.
    """

    entries: npt.NDArray[np.void]
    starts: npt.NDArray[np.int32]
    cut: Ints
    parts: Ints
    elements: int
    longest: float

    @property
    def bytes(self) -> int:
        """Of host memory."""
        return sum(x.nbytes for x in (self.entries, self.starts, self.cut, self.parts))


def shared_out(m: Ints, n: Ints, k: Ints, *, step: int, blocks: int) -> Shares:
    """The entries of these problems, k cut at multiples of `step`, for at most so many blocks."""
    across = -(-n // SIDE)
    tiles = -(-m // SIDE) * across
    problem = np.repeat(np.arange(len(m)), tiles)
    place = within(tiles)
    steps = -(-k // step)[problem]
    begins = np.concatenate(([0], np.cumsum(UNITS * steps + START)))
    total = int(begins[-1])
    if not total:
        none = np.zeros(0, np.int64)
        return Shares(np.zeros(0, ENTRY), np.zeros(1, np.int32), none, none, 0, 0.0)
    blocks = max(1, min(blocks, total // (START + UNITS * SLIVER)))
    cuts = _cuts(begins, steps, blocks)
    # Every tile's first entry, and one more from each cut within a tile.
    at = np.unique(np.concatenate((begins[:-1], cuts[1:-1])))
    tile = np.searchsorted(begins, at, side="right") - 1
    entries = np.zeros(len(at), ENTRY)
    first = at - begins[tile]
    entries["problem"] = owner = problem[tile]
    entries["row"], entries["column"] = (x * SIDE for x in np.divmod(place[tile], across[owner]))
    entries["begin"] = np.where(first > 0, first - START, 0) // UNITS * step
    more = np.append(tile[1:] == tile[:-1], [False])
    entries["end"] = np.where(more, np.roll(entries["begin"], -1), k[owner])
    longest = float(np.diff(cuts).max()) / UNITS
    return _with_parts(entries, np.searchsorted(at, cuts).astype(np.int32), tile, m, n, longest)


def _cuts(begins: Ints, steps: Ints, blocks: int) -> Ints:
    """Where each block begins, and the end of all: in units from the first tile's start on."""
    total = int(begins[-1])
    even = np.arange(blocks + 1) * total // blocks
    tile = np.minimum(np.searchsorted(begins, even, side="right"), len(steps)) - 1
    done = (even - begins[tile] - START) // UNITS
    slight, nearly = done < SLIVER, done > steps[tile] - SLIVER
    nearly &= done >= steps[tile] / 2  # of a tile of few steps the nearer end
    within_tile = begins[tile] + START + UNITS * done
    found = np.where(nearly, begins[tile + 1], np.where(slight, begins[tile], within_tile))
    found[-1] = total
    return np.asarray(found, np.int64)


def _with_parts(
    entries: npt.NDArray[np.void],
    starts: npt.NDArray[np.int32],
    tile: Ints,
    m: Ints,
    n: Ints,
    longest: float,
) -> Shares:
    """The same, with room in scratch for the parts of what is cut."""
    counts = np.bincount(tile)
    firsts = np.cumsum(counts) - counts
    cut = np.flatnonzero(counts > 1)
    owner = entries["problem"][firsts[cut]]
    rows = np.minimum(m[owner] - entries["row"][firsts[cut]], SIDE)
    columns = np.minimum(n[owner] - entries["column"][firsts[cut]], SIDE)
    parts, area = counts[cut], rows * columns
    ends = np.cumsum(parts * area)
    each = np.repeat(firsts[cut], parts) + within(parts)
    entries["to"] = -1
    entries["to"][each] = np.repeat(ends - parts * area, parts) + within(parts) * np.repeat(
        area, parts
    )
    elements = int(ends[-1]) if len(ends) else 0
    return Shares(entries, starts, firsts[cut], parts, elements, longest)
