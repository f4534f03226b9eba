"""Cuts tiles along k within one launch, whose blocks add the parts up by twos.

problem 7, 2 x 1 tiles, k = 5000 in 3 parts  ->  six tiles of the queue, each with a piece:

    piece   k from 0    1680 deep   places 20, part 0 of 3        tile 0
            k from 0    1680 deep   places 23, part 0 of 3        tile 1
            k from 1680 ...         places 20, part 1 of 3        tile 0   ...

A place is the sums of one part of a tile in scratch, and has a counter: that of the later of two
says whether one of them is there (kernels/simt/joined.cuh). Counters lie in the table, zero,
and are zero after each launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.planning.grouped import GroupedLayout

WORDS = 8  # of a piece, int32: begin, depth, first place, part, parts; three that nobody reads
SUMS = 64 * 64  # of a tile


@dataclass(frozen=True, slots=True)
class Joined:
    """`piece` is one more than the number of each tile's piece, 0 where a tile is not cut."""

    piece: npt.NDArray[np.int32]
    pieces: npt.NDArray[np.int32]
    places: int


def joined(layout: GroupedLayout) -> Joined:
    """The pieces of a layout, in the order of its queue."""
    queue, parts = layout.queue, layout.parts
    piece = np.zeros(len(queue), np.int32)
    if not places_of(layout):
        return Joined(piece, np.zeros((0, WORDS), np.int32), 0)
    cut = np.flatnonzero(parts[queue.problem] > 1)
    problem = queue.problem[cut]
    piece[cut] = np.arange(1, len(cut) + 1)
    places = np.where(parts > 1, layout.counts, 0)
    first = np.cumsum(places) - places
    across = -(-layout.n // np.array([tile.n for tile in layout.tiles])[layout.tile])
    tile = queue.row[cut] * across[problem] + queue.col[cut]
    pieces = np.zeros((len(cut), WORDS), np.int32)
    pieces[:, 0] = queue.k_begin[cut]
    pieces[:, 1] = queue.k_end[cut] - queue.k_begin[cut]
    pieces[:, 2] = first[problem] + tile * parts[problem]
    pieces[:, 3], pieces[:, 4] = queue.part[cut], parts[problem]
    return Joined(piece, pieces, int(places.sum()))


def places_of(layout: GroupedLayout) -> int:
    """How many parts of tiles have a place for their sums in scratch."""
    return int(layout.counts[layout.parts > 1].sum())
