"""What detectors of others say, as boxes: YOLO's and NanoDet's outputs, without their own NMS.

    [1, 4 + classes, n]              YOLO v8, v11 and others without anchors: middle, size; scores
    [1, n, 5 + classes]              YOLO v5: middle, size, whether there is a thing; scores
    [1, n, classes + 4 * bins]       NanoDet: scores; how far each edge is, as shares of 0, 1, 2 ...
                                     cells (distribution focal loss: Li and others 2020)

n tells them apart: YOLO v5 has three anchors a cell of 8, 16 and 32 samples, NanoDet one, and
NanoDet-Plus cells of 64 samples too. Scores are 0 to 1, places are samples of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.detection.boxes import Boxes

_ANCHORS = 3
_BINS = 8  # of NanoDet, as it is published
_STRIDES = (8, 16, 32)
_PLUS = (8, 16, 32, 64)
# Of blue, green, red, as NanoDet was trained.
_MEAN = np.array([103.53, 116.28, 123.675], np.float32)
_DEVIATION = np.array([57.375, 57.12, 58.395], np.float32)
ACCEPTED = "[1, 4 + classes, n], [1, n, 5 + classes] of YOLO, or [1, n, classes + 32] of NanoDet"


@dataclass(frozen=True, slots=True)
class Head:
    """What a network's output is.

    kind    "yolo" (v8 and later), "yolo5" or "nanodet"
    height, width  of its input
    classes how many it knows
    """

    kind: str
    height: int
    width: int
    classes: int

    def given(self, pixels: NDArray) -> NDArray:
        """Red, green, blue uint8 [height, width, 3] as it is trained on: [1, 3, height, width]."""
        if self.kind == "nanodet":
            colours = (pixels[..., ::-1].astype(np.float32) - _MEAN) / _DEVIATION
        else:
            colours = pixels.astype(np.float32) * np.float32(1 / 255)
        return np.ascontiguousarray(colours.transpose(2, 0, 1)[None])

    def boxes(self, said: NDArray, score: float) -> Boxes:
        """What it says, in samples of the input; scores from `score` on, nothing merged."""
        if self.kind == "nanodet":
            return self._nanodet(said[0], score)
        rows = said[0].T if self.kind == "yolo" else said[0]
        scores = rows[:, 4:] if self.kind == "yolo" else rows[:, 5:] * rows[:, 4:5]
        row, kind = np.nonzero(scores >= score)
        middle, size = rows[row, :2].astype(np.float64), rows[row, 2:4].astype(np.float64)
        corners = np.concatenate([middle - size / 2, middle + size / 2], -1)
        return Boxes(corners, scores[row, kind].astype(np.float64), kind)

    def _nanodet(self, rows: NDArray, score: float) -> Boxes:
        row, kind = np.nonzero(rows[:, : self.classes] >= score)
        strides = _PLUS if len(rows) == cells(self.height, self.width, _PLUS) else _STRIDES
        # NanoDet-Plus counts from a cell's corner, the one before from its middle.
        places, stride = _places(self.height, self.width, strides, 0.0 if len(strides) > 3 else 0.5)
        bins = rows[row, self.classes :].reshape(len(row), 4, _BINS).astype(np.float64)
        shares = np.exp(bins - bins.max(-1, keepdims=True))
        far = shares @ np.arange(_BINS) / shares.sum(-1) * stride[row, None]
        corners = np.concatenate([places[row] - far[:, :2], places[row] + far[:, 2:]], -1)
        return Boxes(corners, rows[row, kind].astype(np.float64), kind)


def cells(height: int, width: int, strides: Sequence[int] = _STRIDES) -> int:
    """How many cells there are, of all strides."""
    return sum(-(-height // s) * -(-width // s) for s in strides)


def _places(
    height: int, width: int, strides: Sequence[int], middle: float
) -> tuple[NDArray, NDArray]:
    """Where cells are, [n, 2], and how large."""
    places, sizes = [], []
    for stride in strides:
        rows, columns = -(-height // stride), -(-width // stride)
        y, x = np.mgrid[:rows, :columns].reshape(2, -1)
        places.append((np.stack([x, y], -1) + middle) * stride)
        sizes.append(np.full(rows * columns, stride))
    return np.concatenate(places), np.concatenate(sizes)


def head_of(shape: Sequence[int], height: int, width: int) -> Head | None:
    """What an output of this shape is, of an input of that size; None for none that is known."""
    if len(shape) != 3 or shape[0] != 1:
        return None
    _, rows, columns = shape
    one = cells(height, width)
    if columns == one and rows > 4:
        return Head("yolo", height, width, rows - 4)
    if rows == _ANCHORS * one and columns > 5:
        return Head("yolo5", height, width, columns - 5)
    if rows in (one, cells(height, width, _PLUS)) and columns > 4 * _BINS:
        return Head("nanodet", height, width, columns - 4 * _BINS)
    if rows < columns and rows > 4:  # others without anchors, of other strides
        return Head("yolo", height, width, rows - 4)
    return None
