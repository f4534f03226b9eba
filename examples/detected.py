"""Drawn objects in test photographs, what `Detect` finds of them, and where it fails.

python examples/detected.py PHOTOGRAPHS picture.png

PHOTOGRAPHS holds test/. Two of the pictures that `python -m bench.detect` judges by, and the one
with most mistakes: boxes as `Draw` draws them, beside them white circles where a thing was missed
and red ones where there was none.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from bench.detect import photographs
from tilewright import video
from tilewright.video.compare import image
from tilewright.video.detection.boxes import overlaps
from tilewright.video.stages.contract import Window

CHOSEN, GAP = (8, 30), 6


def main(folder: Path, picture: Path) -> None:
    """Write three pictures below each other."""
    case = photographs(folder)
    shown = [drawn(one) for one in case]
    worst = max(range(len(case)), key=lambda number: shown[number][1])
    rows = [shown[number][0] for number in (*CHOSEN, worst)]
    width, height = rows[0].size
    sheet = Image.new("RGB", (width, len(rows) * (height + GAP) - GAP), (255, 255, 255))
    for number, row in enumerate(rows):
        sheet.paste(row, (0, number * (height + GAP)))
    sheet.save(picture, optimize=True)
    print(f"mistakes: {[shown[number][1] for number in (*CHOSEN, worst)]}")


def drawn(one: tuple[np.ndarray, np.ndarray, video.Frame]) -> tuple[Image.Image, int]:
    """A picture with what was found, and how many mistakes are in it."""
    corners, kinds, frame = one
    (seen,) = video.Detect().bound(frame.look)(Window(frame))
    (made,) = video.Draw().bound(frame.look)(Window(seen))
    things = seen.found.things
    boxes = np.array([(t.x, t.y, t.x + t.w, t.y + t.h) for t in things]).reshape(-1, 4)
    alike = overlaps(boxes, corners) >= 0.5
    names = np.array([video.Detect().known().index(t.kind) for t in things], int)
    alike &= names[:, None] == kinds[None]
    shown = image(made, (frame.look.width, frame.look.height))
    draw = ImageDraw.Draw(shown)
    missed = [(box, (255, 255, 255)) for box in corners[~alike.any(0)]]
    wrong = [(box, (255, 0, 0)) for box in boxes[~alike.any(1)]]
    for box, colour in (*missed, *wrong):
        x, y = (box[:2] + box[2:]) / 2
        draw.ellipse((x - 22, y - 22, x + 22, y + 22), outline=colour, width=2)
    return shown, len(missed) + len(wrong)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
