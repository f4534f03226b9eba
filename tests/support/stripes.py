"""Somebody to hide: a disc of red and blue stripes that walks through a scene of soft greys.

Nothing else has colours that change from sample to sample, so a picture shows whether the disc is
open, whatever it was scaled or encoded by.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

WIDE, HIGH, RADIUS, COUNT = 128, 96, 15, 16
_OPEN = 90.0  # codes between two neighbours' red less blue


def place(number: int) -> tuple[float, float]:
    """The middle of the disc in a picture: across, down."""
    return 24.0 + 5 * number, 48.0 + 8 * np.sin(number / 3)


def inside(number: int, radius: float = RADIUS) -> Any:
    """Where the disc is, [rows, columns]."""
    y, x = np.mgrid[:HIGH, :WIDE]
    across, down = place(number)
    return np.hypot(x - across, y - down) <= radius


def picture(number: int) -> Any:
    """A picture of the film, or -1 for the scene alone: uint8 [rows, columns, 3]."""
    y, x = np.mgrid[:HIGH, :WIDE]
    grey = 128 + 40 * np.sin(x / 11) * np.cos(y / 9)
    found = np.repeat(grey[..., None], 3, 2)
    if number >= 0:
        # Stripes go with the disc, and none is like the other: red, or blue.
        along = np.floor(x - place(number)[0] + 64).astype(int) // 4
        red = np.random.default_rng(3).permutation(np.arange(64) % 2)[along.clip(0, 63)] == 1
        colours = np.where(red[..., None], (225, 40, 30), (30, 40, 225))
        found = np.where(inside(number)[..., None], colours, found)
    return np.rint(found).astype(np.uint8)


def opened(pixels: Any) -> float:
    """How open somebody is: the largest step of red less blue that is as long as a stripe."""
    shown = np.asarray(pixels)[..., :3].astype(float)
    tone = shown[..., 0] - shown[..., 2]
    return float(np.abs(tone[:, 4:] - tone[:, :-4]).max())


def is_open(pixels: Any) -> bool:
    """Whether somebody is seen."""
    return opened(pixels) > _OPEN


def walk(path: Path, count: int = COUNT, cover: bytes = b"") -> Path:
    """The film; `cover` is a picture's file that goes along as one of its streams."""
    import av

    with av.open(str(path), "w") as out:
        stream = out.add_stream("ffv1", rate=Fraction(25))
        stream.width, stream.height, stream.pix_fmt = WIDE, HIGH, "yuv444p"
        if cover:
            out.add_attachment("cover.jpg", "image/jpeg", cover)
            out.add_attachment("letters.ttf", "font/ttf", b"letters")
        for number in range(count):
            made = av.VideoFrame.from_ndarray(picture(number), "rgb24")
            out.mux(stream.encode(made))
        out.mux(stream.encode(None))
    return path
