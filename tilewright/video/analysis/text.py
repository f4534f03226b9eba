"""Text and marks that stay where they are while the picture moves: titles, clocks, logos.

Cells of 16 x 16 samples with many steep steps, all still there in the next sample of the scene,
while a good part of all other cells changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.small import shrunk

CELL = 16
_STEEP, _DENSE = 48.0, 0.08
_STAYED, _MOVED, _MOST = 3.0, 4.0, 0.15


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """A picture's light, and which cells have many steep steps."""

    luma: NDArray
    dense: NDArray


def marks(luma: NDArray) -> Marks:
    """What is held against the next sample."""
    steep = np.abs(np.diff(luma, axis=1, append=luma[:, -1:])) > _STEEP
    return Marks(luma, shrunk(steep.astype(np.float32), CELL) > _DENSE)


def static(before: Marks | None, now: Marks) -> float:
    """The share of cells that hold text that stayed, 0 to 1; 0 where nothing else moved."""
    if before is None or before.luma.shape != now.luma.shape:
        return 0.0
    apart = shrunk(np.abs(now.luma - before.luma), CELL)
    stayed = before.dense & now.dense & (apart < _STAYED)
    others = ~stayed
    if not others.any() or (apart[others] > _MOVED).mean() < _MOST:
        return 0.0
    return float(stayed.mean())
