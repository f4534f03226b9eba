"""Boxes of one picture as arrays: how far they overlap, and the best of those that do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray

ALIKE = 0.5  # overlap of two boxes of a kind from which on they are of one thing
MOST = 300  # boxes of a picture


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of a picture.

    corners  [n, 4]: left, top, right, bottom, in samples
    scores   [n], 0 to 1
    kinds    [n], numbers of classes
    """

    corners: NDArray
    scores: NDArray
    kinds: NDArray

    def chosen(self, which: NDArray) -> Boxes:
        """Some of them, by number or by whether."""
        return Boxes(self.corners[which], self.scores[which], self.kinds[which])

    def moved(self, scale: float, right: float, down: float) -> Boxes:
        """Of a picture that was scaled and then moved by samples."""
        ends = np.array([right, down, right, down])
        return Boxes(self.corners * scale + ends, self.scores, self.kinds)

    def inside(self, width: int, height: int) -> Boxes:
        """Cut off at the picture's edges; without those that lie outside."""
        corners = self.corners.clip(0, [width, height, width, height])
        left = (corners[:, 2] > corners[:, 0]) & (corners[:, 3] > corners[:, 1])
        return Boxes(corners, self.scores, self.kinds).chosen(left)


def joined(parts: Sequence[Boxes]) -> Boxes:
    """All boxes of some."""
    return Boxes(
        np.concatenate([one.corners for one in parts] or [np.zeros((0, 4))]),
        np.concatenate([one.scores for one in parts] or [np.zeros(0)]),
        np.concatenate([one.kinds for one in parts] or [np.zeros(0, np.int64)]),
    )


def overlaps(one: NDArray, other: NDArray) -> NDArray:
    """Intersection over union of corners [n, 4] with [m, 4]: [n, m]; 0 of boxes without area."""
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:], other[None, :, 2:])
    both = (high - low).clip(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(0).prod(-1) for boxes in (one, other)]
    whole = areas[0][:, None] + areas[1][None] - both
    found: NDArray = np.divide(both, whole, out=np.zeros_like(both), where=whole > 0)
    return found


def merged(boxes: Boxes, alike: float = ALIKE, most: int = MOST) -> Boxes:
    """Of boxes of a kind that overlap the one with the best score; the best first, `most` at most.

    Greedy, as all detectors have it since Viola and Jones; equal scores keep their order.
    """
    order = np.argsort(-boxes.scores, kind="stable")[: 10 * most]
    best = boxes.chosen(order)
    left = np.ones(len(order), bool)
    kept: list[int] = []
    for number in range(len(order)):
        if not left[number]:
            continue
        kept.append(number)
        if len(kept) == most:
            break
        near = overlaps(best.corners[number : number + 1], best.corners)[0] > alike
        left &= ~(near & (best.kinds == best.kinds[number]))
    return best.chosen(np.asarray(kept, np.int64))
