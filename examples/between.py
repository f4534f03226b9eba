"""Pictures that were dropped from clips, made again by motion, beside both neighbours mixed.

python examples/between.py CLIPS picture.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from tilewright import video
from tilewright.video.stages.contract import Window

WIDE, HIGH, GAP = 320, 192, 6
# A clip, the number of the picture, and where the part begins: left, top. The last one fails.
PARTS = (
    ("cars-from-above.mp4", 21, 180, 90),
    ("person-green-wall.mp4", 201, 0, 0),
    ("bunny-720p.mp4", 47, 290, 20),
)


def main(clips: Path, picture: Path) -> None:
    """Write a row a part: mixed, made by motion, as it was."""
    sheet = Image.new("RGB", (3 * WIDE + 2 * GAP, len(PARTS) * (HIGH + GAP) - GAP), "white")
    for row, (name, number, left, top) in enumerate(PARTS):
        place = (left, top, left + WIDE, top + HIGH)
        before, right, after = three(clips / name, number)
        stage = video.Interpolate(2, known=True).bound(before.look)
        _, made = stage(Window(before, (), (after,)))
        first, last = before.carrier.to_image(), after.carrier.to_image()
        mixed = Image.blend(first, last, 0.5)
        images = (mixed, made.carrier.to_image(), right.carrier.to_image())
        for column, image in enumerate(images):
            sheet.paste(image.crop(place), (column * (WIDE + GAP), row * (HIGH + GAP)))
    sheet.save(picture, optimize=True, quality=88)


def three(path: Path, number: int) -> list[video.Frame]:
    """A picture of a clip between the one before and the one after."""
    frames = zip(video.frames(path), range(number + 2), strict=False)
    return [frame for frame, place in frames if place >= number - 1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
