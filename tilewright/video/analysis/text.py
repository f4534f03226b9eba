"""Text and marks that stand still: titles, subtitles, clocks, logos.

A stroke is a steep rise beside a steep fall. Letters over a picture that moves keep their strokes
while the samples between and round them change; letters over a picture that stands still appear
while nothing but strokes changes. Textures of stones and leaves have strokes too, but they stay,
or go, together with what lies round them. Letters come in rows: three cells and more side by side.

Measured on nine clips, with a title, a subtitle and an outlined one drawn over each: all 27 are
found (0.28 % of the picture and more), and none where nothing was drawn. Steps inside whole cells
that stay, which stood here before, found 17, and read a monitor in a still room as text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.analysis.small import boxed, shrunk

CELL = 16
_ROWS = 540  # pictures with twice as many are halved: strokes grow with pictures
_STEEP = 40.0
_DENSE = 0.04  # of a cell's samples: rises, and as many falls
_SAME, _OTHER = 12.0, 6.0  # how far apart the light of a sample is that stayed, and that changed
_AROUND, _CALM = 0.25, 0.1  # of what is round strokes, how much changes where it moves, or stays
_GROUND = 0.1  # of a cell and those round it is to be no stroke


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """A picture's light, and where it rises and falls steeply from left to right."""

    luma: NDArray
    rises: NDArray
    falls: NDArray


def marks(luma: NDArray) -> Marks:
    """What is held against the next sample."""
    luma = shrunk(luma, max(1, round(len(luma) / _ROWS)))
    steps = np.zeros_like(luma)
    steps[:, 1:-1] = luma[:, 2:] - luma[:, :-2]
    return Marks(luma, steps > _STEEP, steps < -_STEEP)


def static(before: Marks | None, now: Marks) -> float:
    """The share of cells that hold text that stayed, or that came where all else stayed, 0 to 1."""
    if before is None or before.luma.shape != now.luma.shape or min(now.luma.shape) < CELL:
        return 0.0
    apart = np.abs(now.luma - before.luma)
    strokes = _wide(before.rises | before.falls | now.rises | now.falls)
    ground = boxed(shrunk((~strokes).astype(np.float32), CELL), 1)
    moved = boxed(shrunk((~strokes & (apart > _OTHER)).astype(np.float32), CELL), 1)
    changed = moved / np.maximum(ground, 1e-6)
    still = apart < _SAME
    stayed = _lettered(before.rises & now.rises & still, before.falls & now.falls & still)
    came = _lettered(now.rises & ~_wide(before.rises), now.falls & ~_wide(before.falls))
    found = (ground > _GROUND) & ((stayed & (changed > _AROUND)) | (came & (changed < _CALM)))
    return float(_in_rows(found).mean())


def _lettered(rises: NDArray, falls: NDArray) -> NDArray:
    """Which cells have many of both."""
    both = [shrunk(one.astype(np.float32), CELL) for one in (rises, falls)]
    return np.asarray(np.minimum(*both) > _DENSE)


def _wide(steps: NDArray) -> NDArray:
    """Samples that are steep, or within two of one that is, along and across."""
    found = steps
    for ends in (((2, 2), (0, 0)), ((0, 0), (2, 2))):
        rows, columns = found.shape
        padded = np.pad(found, ends)
        down, along = (1, 0) if ends[0][0] else (0, 1)
        parts = [padded[down * n : down * n + rows, along * n :][:, :columns] for n in range(5)]
        found = np.logical_or.reduce(parts)
    return found


def _in_rows(cells: NDArray) -> NDArray:
    """Cells of rows of three or more."""
    found = np.zeros_like(cells)
    whole = cells[:, 2:] & cells[:, 1:-1] & cells[:, :-2]
    for left in range(3):
        found[:, left : left + whole.shape[1]] |= whole
    return found
