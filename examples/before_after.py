"""A part of a film's frame, enlarged by a bicubic filter and by a network, side by side.

python examples/before_after.py tilewright/video/clips/flower.mp4 picture.png
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import av
from PIL import Image

from tilewright import video
from tilewright.video.stages.contract import Window

NUMBER, SIZE, ZOOM = 24, 110, 2  # which frame, half the samples a side, and a sample's pixels


def main(film: Path, picture: Path) -> None:
    """Write both halves as one picture."""
    frame = next(islice(video.frames(film), NUMBER, None))
    (made,) = video.Upscale("l").bound(frame.look)(Window(frame))
    width, height = 2 * frame.look.width, 2 * frame.look.height
    small: av.VideoFrame = frame.carrier
    before = small.reformat(width, height, "rgb24", interpolation="BICUBIC").to_image()
    after = made.carrier.reformat(format="rgb24").to_image()
    x, y, side = width // 2 - SIZE, height // 2 - SIZE, 2 * SIZE * ZOOM
    both = Image.new("RGB", (2 * side + 8, side), "white")
    for place, image in enumerate((before, after)):
        cut = image.crop((x, y, x + 2 * SIZE, y + 2 * SIZE))
        both.paste(cut.resize((side, side), Image.Resampling.NEAREST), (place * (side + 8), 0))
    both.save(picture, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
