"""Together: which tiles of a layout several workers compute each, and how long it then takes.

A tile that takes a large share of the time of all may end long after the others. Where a group of
`workers` has a tile each, they can take such a tile together instead, a part of its k each: it is
done in a part of the time, and fills as many slots. Others stay as they are, as to add up what the
workers have costs a little.

Three slots, tiles of 12, 3, 3 and 3 seconds; the first takes more than half of the ideal 7:

>>> from tilewright.planning.buckets import Tile
>>> from tilewright.planning.grouped import lay_out
>>> from tilewright.planning.makespan import Slots
>>> slots = Slots(compute_units=3, merge=1.0)
>>> layout = lay_out([16] * 4, [16] * 4, [12, 3, 3, 3], (Tile(16, 16, 512.0),), slots)
>>> layout.seconds
12.0
>>> is_long(layout, 0.5).tolist()
[True, False, False, False]
>>> seconds(layout, is_long(layout, 0.5), workers=4)
9.0
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.planning.grouped import GroupedLayout
from tilewright.planning.makespan import Runs, predict


def is_long(layout: GroupedLayout, share: float) -> npt.NDArray[np.bool_]:
    """The problems whose tiles take more than this share of what all tiles take, spread evenly."""
    work = Runs(layout.counts, layout.tile_seconds).work / layout.slots.count
    return layout.tile_seconds > share * work


def seconds(layout: GroupedLayout, together: npt.NDArray[np.bool_], workers: int) -> float:
    """Until the layout is done, tiles of these problems first, each by so many workers."""
    order = layout.order[np.argsort(~together[layout.order], kind="stable")]
    times = np.where(together, workers, 1)
    runs = Runs(layout.counts * times, layout.tile_seconds / times)
    return predict(Runs(runs.counts[order], runs.seconds[order]), layout.slots)
