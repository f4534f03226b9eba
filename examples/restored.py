"""Parts of photographs damaged, restored by the stages' networks, and as they were, side by side.

python examples/restored.py TEST_PHOTOGRAPHS picture.png
"""

from __future__ import annotations

import io
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tilewright import video
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Stage, Window

SIDE, GAP, HEAD = 240, 6, 26
HEADS = ("damaged", "restored", "as it was")
# A photograph, where the part begins (row, column), and its damage: quality or deviation.
PARTS = (("kodim23", 60, 130, "jpeg", 10), ("kodim04", 60, 120, "noise", 25))
FAILS = ("kodim13", 250, 300, "noise", 50)


def main(photographs: Path, picture: Path) -> None:
    """Write a row a part: damaged, restored, as it was."""
    parts = [*PARTS, FAILS]
    sheet = Image.new("L", (3 * SIDE + 2 * GAP, HEAD + len(parts) * (SIDE + GAP) - GAP), 255)
    for column, head in enumerate(HEADS):
        place = column * (SIDE + GAP) + 2, 2
        ImageDraw.Draw(sheet).text(place, head, fill=0, font=ImageFont.load_default(16))
    for row, (name, top, left, kind, strength) in enumerate(parts):
        clean = np.asarray(Image.open(photographs / f"{name}.webp").convert("L"))
        damaged, stage = harmed(clean, kind, strength)
        for column, plane in enumerate((damaged, through(stage, damaged), clean)):
            part = plane[top : top + SIDE, left : left + SIDE]
            sheet.paste(Image.fromarray(part), (column * (SIDE + GAP), HEAD + row * (SIDE + GAP)))
    sheet.save(picture, optimize=True)


def harmed(clean: np.ndarray, kind: str, strength: int) -> tuple[np.ndarray, Stage]:
    """A plane as JPEG or noise leaves it, and the stage against that."""
    if kind == "jpeg":
        file = io.BytesIO()
        Image.fromarray(clean).save(file, "JPEG", quality=strength)
        return np.asarray(Image.open(file)), video.Deblock("m")
    noise = np.random.default_rng(0).normal(0, strength, clean.shape)
    noisy = (clean + noise).round().clip(0, 255).astype(np.uint8)
    return noisy, video.Denoise(strength, "m")


def through(stage: Stage, plane: np.ndarray) -> np.ndarray:
    """A plane through a stage, in the sixteen bits that pictures have there."""
    look = Look(plane.shape[1], plane.shape[0], "gray16le", 16, "grey")
    frame = Frame((plane.astype(np.uint16) * 257,), 0, 1, Fraction(1, 25), look)
    (made,) = stage.bound(look)(Window(frame))
    return (made.planes[0] / 257).round().astype(np.uint8)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
