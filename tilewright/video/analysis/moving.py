"""How far things go from one picture to the next: blocks of a small picture, found in the next.

Blocks without texture tell nothing; of those that have some, each whose best place in the next
picture is surely the same counts. Plain NumPy, on sampled pictures.
"""

from __future__ import annotations

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.correlation import correlated

_SIDE, _REACH = 16, 12  # samples of a picture of about 120 rows
_EVEN, _SURE = 6.0, 0.8  # deviation of light, of 255; correlation
_FEW = 4  # blocks: fewer tell nothing


def moved(before: NDArray, now: NDArray) -> float:
    """The mean way of blocks, in hundredths of the height; 0 where nothing can be told.

    before, now: light of 0 to 255, as `small` makes pictures.
    """
    rows, columns = before.shape
    ways = []
    for top in range(_REACH, rows - _SIDE - _REACH + 1, _SIDE):
        for left in range(_REACH, columns - _SIDE - _REACH + 1, _SIDE):
            block = before[top : top + _SIDE, left : left + _SIDE]
            if block.std() < _EVEN:
                continue
            near = now[top - _REACH : top + _SIDE + _REACH, left - _REACH : left + _SIDE + _REACH]
            like = correlated(near, block)
            y, x = np.unravel_index(int(like.argmax()), like.shape)
            if like[y, x] >= _SURE:
                ways.append(float(np.hypot(y - _REACH, x - _REACH)))
    return 100 * float(np.mean(ways)) / rows if len(ways) >= _FEW else 0.0
