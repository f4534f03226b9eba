"""Pictures as networks of others take them: red, green, blue of one size, the rest filled in grey.

A picture is made as large as fits without changing its shape, and lies in the middle. What is found
is brought back to the picture's own samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.detection.boxes import Boxes
from tilewright.video.look import Frame
from tilewright.video.planes import blank

_GREY = 114  # what fills the rest, as those who trained YOLO have it


@dataclass(frozen=True, slots=True)
class Fitting:
    """How a picture lies in an input: scaled, then moved right and down."""

    scale: float
    right: int
    down: int

    def back(self, boxes: Boxes) -> Boxes:
        """Boxes of the input as boxes of the picture."""
        scale = 1 / self.scale
        return boxes.moved(scale, -self.right * scale, -self.down * scale)


def coloured(frame: Frame, width: int, height: int) -> NDArray:
    """A picture's red, green and blue of another size, uint8 [height, width, 3]."""
    look, carrier = frame.look, frame.carrier
    if carrier is None:
        copy = blank(frame, look)
        for plane, to in zip(frame.planes, copy.planes, strict=True):
            to[...] = plane
        carrier = copy.carrier
    matrix, span = look.coding
    made = carrier.reformat(
        width, height, "rgb24", src_colorspace=matrix, src_color_range=span,
        interpolation="BILINEAR",
    )  # fmt: skip
    found: NDArray = made.to_ndarray()
    return found


def letterboxed(frame: Frame, width: int, height: int) -> tuple[NDArray, Fitting]:
    """A picture as an input of that size, uint8 [height, width, 3], and how it lies there."""
    own = frame.look
    scale = min(width / own.width, height / own.height)
    wide, high = max(1, round(own.width * scale)), max(1, round(own.height * scale))
    wide, high = min(wide, width), min(high, height)
    right, down = (width - wide) // 2, (height - high) // 2
    found = np.full((height, width, 3), _GREY, np.uint8)
    found[down : down + high, right : right + wide] = coloured(frame, wide, high)
    return found, Fitting(scale, right, down)
