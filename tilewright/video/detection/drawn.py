"""Boxes and names drawn into the planes of a picture, in a colour for each class."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.video.detection.things import Thing
from tilewright.video.look import FULL_RANGE, Frame
from tilewright.video.stills import pillow
from tilewright.video.tables import span

# Red, green, blue: colours that stand apart (Okabe and Ito 2008), told by the class's name.
_COLOURS = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0),
    (204, 121, 167),
)  # fmt: skip
_BLACK = (0, 0, 0)
_ROWS = 540  # of a picture whose lines are one sample and a half wide
_AROUND = 2  # samples between a thing and its line


def draw(frame: Frame, things: Sequence[Thing]) -> None:
    """Draw into a picture's own planes: luma and chroma, opacity stays."""
    wide = max(1, round(1.5 * frame.look.height / _ROWS))
    for one in things:
        colour = _COLOURS[zlib.crc32(one.kind.encode()) % len(_COLOURS)]
        left, top = one.x - _AROUND - wide, one.y - _AROUND - wide
        right, bottom = one.x + one.w + _AROUND + wide, one.y + one.h + _AROUND + wide
        x, y, end, low = (round(value) for value in (left, top, right, bottom))
        for area in ((x, y, end, y + wide), (x, low - wide, end, low),
                     (x, y, x + wide, low), (end - wide, y, end, low)):  # fmt: skip
            _fill(frame, area, colour)
        number = f" {one.track}:" if one.track else ""
        _label(frame, f"{one.kind}{number} {one.score:.2f}", x, y, low, wide, colour)


def _label(
    frame: Frame, text: str, x: int, y: int, low: int, size: int, colour: tuple[int, ...]
) -> None:
    """A name above its box, or below where there is no room; letters of one size, whole samples."""
    mask = np.repeat(np.repeat(letters(text), size, 0), size, 1)
    rows, columns = mask.shape
    top = y - rows if y >= rows else low
    left = min(max(0, x), max(0, frame.look.width - columns))
    _fill(frame, (left, top, left + columns, top + rows), colour)
    _fill(frame, (left, top, left + columns, top + rows), _BLACK, mask)


def _fill(
    frame: Frame, area: tuple[int, int, int, int], colour: tuple[int, ...],
    mask: NDArray | None = None,
) -> None:  # fmt: skip
    """An area in one colour, where `mask` says; what lies outside the picture is left out."""
    left, top, right, bottom = area
    look = frame.look
    begin = max(0, top), max(0, left)
    end = min(bottom, look.height), min(right, look.width)
    if begin[0] >= end[0] or begin[1] >= end[1]:
        return
    where = np.ones((end[0] - begin[0], end[1] - begin[1]), bool)
    if mask is not None:
        where = mask[begin[0] - top : end[0] - top, begin[1] - left : end[1] - left]
    codes = _codes(frame, colour)
    frame.planes[0][begin[0] : end[0], begin[1] : end[1]][where] = codes[0]
    if look.kind != "yuv":
        return
    across, down = look.halved
    rows, columns = np.nonzero(where)
    rows, columns = (rows + begin[0]) >> down, (columns + begin[1]) >> across
    for plane, code in zip(frame.planes[1:3], codes[1:], strict=True):
        plane[rows, columns] = code


def _codes(frame: Frame, colour: tuple[int, ...]) -> tuple[int, int, int]:
    """A colour as luma and chroma of the picture's range and bits, by BT.601."""
    red, green, blue = (value / 255 for value in colour)
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    black, white = span(frame.look)
    bits = frame.look.bits
    wide = ((1 << bits) - 1) if frame.look.range == FULL_RANGE else 224 << (bits - 8)
    middle = 1 << (bits - 1)
    blues, reds = (blue - grey) * 0.5 / 0.886, (red - grey) * 0.5 / 0.701
    return (
        round(black + white * grey),
        min((1 << bits) - 1, round(middle + wide * blues)),
        min((1 << bits) - 1, round(middle + wide * reds)),
    )


@lru_cache(maxsize=1024)
def letters(text: str) -> NDArray:
    """A text in Pillow's oldest font, whose samples no version has changed: where its strokes are.

    A row and a column of nothing are round it.
    """
    pillow()
    from PIL import ImageDraw, ImageFont

    font = getattr(ImageFont, "load_default_imagefont", ImageFont.load_default)()
    readable = text.encode("latin-1", "replace").decode("latin-1")
    left, top, right, bottom = font.getbbox(readable)
    made = pillow().new("1", (right - left + 2, bottom - top + 2))
    ImageDraw.Draw(made).text((1, 1), readable, 1, font=font)
    found: NDArray = np.asarray(made, bool)
    return found
