"""What a film's pictures are, and one of them: sizes, samples, colours; planes as NumPy views.

A `Look` is all that stages and encoders must know before the first picture comes; it never changes
on the way but by a stage that says so. Codes of range, matrix, primaries and transfer are those of
H.273, which FFmpeg and every codec here use, so that nothing is translated.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.arrays.array import NDArray
from tilewright.errors import ArgumentError

_BT709 = 1  # FFmpeg's code of a matrix
FULL_RANGE = 2  # FFmpeg's code of samples from 0 to the largest; 1 is 16 to 235, 0 unknown
UNKNOWN = 2  # H.273's code for matrix, primaries and transfer that nobody named


@dataclass(frozen=True, slots=True)
class Light:
    """What a film in high dynamic range says of the screen it was made on.

    mastering  FFmpeg's AVMasteringDisplayMetadata, as bytes; b"" where there is none
    content    the lightest sample and the lightest picture, candelas a square metre; or None
    """

    mastering: bytes = b""
    content: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What pictures of a film are.

    width, height  of the largest plane, in samples
    format         how samples lie, FFmpeg's name: "yuv420p10le", "gray"
    bits           of a sample
    kind           "yuv", "grey", "rgb" (a plane a colour) or "packed", whose rows are bytes
    halved         how often chroma is halved, (across, down): (1, 1) is 4:2:0
    alpha          whether the last plane is opacity
    range, matrix, primaries, transfer  codes of H.273; a range of 2 is full
    siting         where chroma lies: "left", "center", "topleft"; "" where nobody says
    aspect         width of a sample over its height
    interlaced     whether a picture is two fields, taken one after the other
    turned         the display matrix, nine numbers as FFmpeg has them; () where there is none
    light          high dynamic range
    """

    width: int
    height: int
    format: str
    bits: int
    kind: str
    halved: tuple[int, int] = (0, 0)
    alpha: bool = False
    range: int = 0
    matrix: int = UNKNOWN
    primaries: int = UNKNOWN
    transfer: int = UNKNOWN
    siting: str = ""
    aspect: Fraction = Fraction(1)
    interlaced: bool = False
    turned: tuple[int, ...] = ()
    light: Light = Light()

    @property
    def dtype(self) -> type[np.generic]:
        """Of the planes' samples."""
        return np.uint8 if self.bits <= 8 else np.uint16

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of every plane."""
        whole = (self.height, self.width)
        across, down = self.halved
        small = (-(-self.height >> down), -(-self.width >> across))
        count = {"yuv": 3, "rgb": 3, "grey": 1}[self.kind]
        colours = (whole, small, small) if self.kind == "yuv" else (whole,) * count
        return (*colours, whole) if self.alpha else colours

    @property
    def coding(self) -> tuple[str, str]:
        """Matrix and range of luma and chroma, in the words of PyAV's `reformat`."""
        matrix = "ITU709" if self.matrix == _BT709 else "ITU601"
        return matrix, "JPEG" if self.range == FULL_RANGE else "MPEG"

    @property
    def bytes(self) -> int:
        """What one picture takes."""
        return sum(rows * columns for rows, columns in self.shapes) * (1 + (self.bits > 8))

    def said(self) -> str:
        """In a few words, for messages: `640x480 yuv420p`."""
        return f"{self.width}x{self.height} {self.format}"


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One picture: planes to be read, not written, valid as long as the frame is kept.

    pts, duration  in units of `time_base` seconds
    carrier        the decoder's own frame; None where a stage made the planes
    notes          what stages have to tell of it at the end, as "blur grown"
    found          the things that a detector found (`detection.things.Found`); None before one
    """

    planes: tuple[NDArray, ...]
    pts: int
    duration: int
    time_base: Fraction
    look: Look
    carrier: Any = None
    notes: tuple[str, ...] = ()
    found: Any = None

    @property
    def time(self) -> Fraction:
        """When it is shown, in seconds, exactly."""
        return self.pts * self.time_base


def planar(format: str, *, bits: int) -> str:
    """The name of a format of the same planes with another number of bits.

    Raises ArgumentError for what is no plain planar format.
    """
    stem = format.removesuffix("le").rstrip("0123456789") if format.endswith("le") else format
    if stem.endswith(("p", "gray")):
        return stem if bits == 8 else f"{stem}{bits}le"
    raise ArgumentError(f"format={format!r}: accepted are planar formats, as yuv420p")
