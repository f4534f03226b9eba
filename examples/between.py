"""Pictures that were dropped from clips, made again by motion, beside both neighbours mixed.

python examples/between.py CLIPS picture.png
python examples/between.py CLIPS picture.png fuse-s    with a network, beside motion alone
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
# Of the network.
FUSED = (
    ("bunny-720p.mp4", 47, 368, 18),
    ("stream-of-water.mp4", 43, 70, 152),
    ("cars-from-above.mp4", 43, 60, 0),
)


def main(clips: Path, picture: Path, net: str = "none") -> None:
    """Write a row a part: mixed, or made by motion alone; made with the network; as it was."""
    parts = PARTS if net == "none" else FUSED
    sheet = Image.new("RGB", (3 * WIDE + 2 * GAP, len(parts) * (HIGH + GAP) - GAP), "white")
    for row, (name, number, left, top) in enumerate(parts):
        place = (left, top, left + WIDE, top + HIGH)
        before, right, after = three(clips / name, number)
        first, last = before.carrier.to_image(), after.carrier.to_image()
        beside = made(before, after, "none") if parts is FUSED else Image.blend(first, last, 0.5)
        images = (beside, made(before, after, net), right.carrier.to_image())
        for column, image in enumerate(images):
            sheet.paste(image.crop(place), (column * (WIDE + GAP), row * (HIGH + GAP)))
    sheet.save(picture, optimize=True, quality=88)


def made(before: video.Frame, after: video.Frame, net: str) -> Image.Image:
    """The picture in the middle of two, on the host, where networks are."""
    stage = video.Interpolate(2, known=True, device="host", net=net).bound(before.look)
    _, found = stage(Window(before, (), (after,)))
    return found.carrier.to_image()


def three(path: Path, number: int) -> list[video.Frame]:
    """A picture of a clip between the one before and the one after."""
    frames = zip(video.frames(path), range(number + 2), strict=False)
    return [frame for frame, place in frames if place >= number - 1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
