"""Sliding windows of convolutions and pools, and the tables by which kernels find each of them.

    padded source, pixel 0's origin        taps, relative to an origin
      o . . . .                              0        1        2
      . . . . .        stride 1, 3x3   ->    row      row+1    row+2
      . . . . .                              2 row    2 row+1  2 row+2

Two tables, origins and taps, are all that a kernel needs: stride, dilation and the borders of the
source are in them. Pure NumPy; touches no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError, ShapeError

PADDINGS = ("zero", "minus_one")
_LARGEST = 1 << 16
_LARGEST_IMAGE = 1 << 28


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over an image; every pair is (vertical, horizontal).

    kernel    elements of the window
    stride    how far it moves
    dilation  distance of its elements
    pads      elements around the image: top, left, bottom, right
    """

    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        for name, least in (("kernel", 1), ("stride", 1), ("dilation", 1), ("pads", 0)):
            values = getattr(self, name)
            length = 4 if name == "pads" else 2
            fine = isinstance(values, tuple) and len(values) == length
            if not fine or not all(_whole(v) and least <= v < _LARGEST for v in values):
                raise ArgumentError(
                    f"{name}={values!r}: accepted are {length} whole numbers from {least} to"
                    f" {_LARGEST - 1}"
                )

    @property
    def is_point(self) -> bool:
        """Whether it is one element that visits each: a product of matrices."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and not any(self.pads)

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Sizes of the result.

        Raises ShapeError where the window is larger than the image, and where the image with its
        borders is larger than anybody's.
        """
        border = 2 * max(self.pads)
        if (height + border) * (width + border) >= _LARGEST_IMAGE:
            raise ShapeError(
                f"image {height} × {width}: with pads={self.pads} more than 2^28 elements"
            )
        sizes = []
        for axis, size in enumerate((height, width)):
            room = size + self.pads[axis] + self.pads[axis + 2] - self._extent(axis)
            if room < 0:
                raise ShapeError(
                    f"image {height} × {width}: smaller than the window {self._extent(0)} ×"
                    f" {self._extent(1)} with pads={self.pads}"
                )
            sizes.append(room // self.stride[axis] + 1)
        return sizes[0], sizes[1]

    def _extent(self, axis: int) -> int:
        return self.dilation[axis] * (self.kernel[axis] - 1) + 1

    def starts(self, axis: int, size: int) -> NDArray:
        """Where each window begins along an axis of a result of `size`, in the image's elements."""
        starts: NDArray = np.arange(size, dtype=np.int64) * self.stride[axis] - self.pads[axis]
        return starts

    def inside(self, axis: int, size: int, length: int) -> NDArray:
        """bool [size, kernel]: which elements of each window lie in an image of `length`."""
        at = self.starts(axis, size)[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]
        inside: NDArray = (at >= 0) & (at < length)
        return inside


def pair(value: Any, name: str) -> tuple[int, int]:
    """A number or two, as two. Raises ArgumentError for anything else."""
    if _whole(value):
        return int(value), int(value)
    if isinstance(value, Sequence) and len(value) == 2 and all(map(_whole, value)):
        return int(value[0]), int(value[1])
    raise ArgumentError(f"{name}={value!r}: accepted are a whole number and two of them")


def four(value: Any, name: str) -> tuple[int, int, int, int]:
    """Pads: one number, two (vertical, horizontal), or top, left, bottom, right."""
    if isinstance(value, Sequence) and len(value) == 4 and all(map(_whole, value)):
        top, left, bottom, right = map(int, value)
        return top, left, bottom, right
    if not _whole(value) and not (isinstance(value, Sequence) and len(value) == 2):
        raise ArgumentError(f"{name}={value!r}: accepted are one, two or four whole numbers")
    vertical, horizontal = pair(value, name)
    return vertical, horizontal, vertical, horizontal


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Where the windows of images lie in a source that has a border around each image.

    origins   int64 [images * out_height * out_width]
    taps      int64 [kernel_height * kernel_width * pieces]
    classes   int64 [images * out_height * out_width]: equal where the same taps lie in the image
    inside    bool [classes, kernel_height * kernel_width]: which taps those are
    """

    origins: NDArray
    taps: NDArray
    classes: NDArray
    inside: NDArray


@dataclass(frozen=True, slots=True)
class Layout:
    """Images in memory: `border` elements around each, `pitch` numbers an element."""

    images: int
    height: int
    width: int
    pitch: int
    border: int = 0

    @property
    def row(self) -> int:
        """Numbers from one row to the next."""
        return (self.width + 2 * self.border) * self.pitch

    @property
    def size(self) -> int:
        """Numbers in all."""
        return self.images * (self.height + 2 * self.border) * self.row

    def places(self) -> NDArray:
        """Where each element inside the borders begins: int64 [images * height * width]."""
        return self._grid(np.arange(self.height), np.arange(self.width))

    def _grid(self, rows: NDArray, columns: NDArray) -> NDArray:
        image = np.arange(self.images, dtype=np.int64) * (self.height + 2 * self.border) * self.row
        down = (rows + self.border) * self.row
        across = (columns + self.border) * self.pitch
        places: NDArray = (image[:, None, None] + down[:, None] + across).ravel()
        return places


def tables(window: Window, layout: Layout, pieces: NDArray) -> Tables:
    """The tables of a window over images; `pieces` are the numbers wanted of each element."""
    if max(window.pads) > layout.border:
        raise ShapeError(f"pads={window.pads}: the source has a border of {layout.border}")
    height, width = window.output(layout.height, layout.width)
    origins = layout._grid(window.starts(0, height), window.starts(1, width))
    down = np.arange(window.kernel[0], dtype=np.int64) * window.dilation[0] * layout.row
    across = np.arange(window.kernel[1], dtype=np.int64) * window.dilation[1] * layout.pitch
    taps = (down[:, None, None] + across[:, None] + pieces).ravel()
    rows, row_class = _distinct(window.inside(0, height, layout.height))
    columns, column_class = _distinct(window.inside(1, width, layout.width))
    inside = rows[:, None, :, None] & columns[None, :, None, :]
    classes = (row_class[:, None] * len(columns) + column_class).ravel()
    return Tables(
        origins,
        taps,
        np.tile(classes, layout.images),
        inside.reshape(len(rows) * len(columns), -1),
    )


def _distinct(masks: NDArray) -> tuple[NDArray, NDArray]:
    rows, inverse = np.unique(masks, axis=0, return_inverse=True)
    return rows, inverse.reshape(-1).astype(np.int64)


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
