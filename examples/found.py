"""What `--detect --draw` finds of drawn things in clips, beside where they are.

python -m examples.found CLIPS picture.jpg
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw

from bench.detect import clip
from tilewright import video
from tilewright.video.chunk import carried
from tilewright.video.stages.contract import windows
from tilewright.video.stages.follow import UNSURE

WIDE, HIGH, GAP = 640, 360, 6
PLACE = 6  # of the twelve pictures of a clip
CLIPS = ("cars-from-above.mp4", "flower.mp4", "stream-of-water.mp4")


def main(clips: Path, picture: Path) -> None:
    """Write a row a clip: where things are, and what is found."""
    names = sorted(one.name for one in clips.glob("*") if one.suffix in (".mp4", ".mkv", ".webm"))
    sheet = Image.new("RGB", (2 * WIDE + GAP, len(CLIPS) * (HIGH + GAP) - GAP), "white")
    for row, name in enumerate(CLIPS):
        case = clip(clips / name, 20_000 + names.index(name))
        made = through([frame for *_, frame in case])
        corners, kinds, frame = case[PLACE]
        images = carried(frame, frame.look).to_image(), carried(made, made.look).to_image()
        draw = ImageDraw.Draw(images[0])
        for box in corners[kinds >= 0]:
            left, top, right, bottom = (float(side) for side in box)
            draw.rectangle((left - 4, top - 4, right + 3, bottom + 3), outline="white")
        for column, image in enumerate(images):
            sheet.paste(image, (column * (WIDE + GAP), row * (HIGH + GAP)))
    sheet.save(picture, optimize=True, quality=85)


def through(frames: list[video.Frame]) -> video.Frame:
    """A picture as the stages make it that `--detect --draw` means."""
    shown = iter(frames)
    for stage in (video.Detect(score=UNSURE / 2), video.Follow(), video.Draw()):
        work = stage.bound(frames[0].look)
        shown = iter([one for window in windows(stage, shown) for one in work(window)])
    return list(shown)[PLACE]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
