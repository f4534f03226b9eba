"""Photographs before and after the stages of light, haze and contrast; where they fail, too.

python examples/stages_before_after.py PHOTOGRAPHS OUT

PHOTOGRAPHS holds test/ and train/, OUT gets film-light.jpg, film-haze.jpg and film-contrast.jpg.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from tilewright import video
from tilewright.video.pictures import Pair, enhanced
from tilewright.video.stages.contract import Stage

WIDE, HIGH, GAP = 460, 300, 6


def darkened(path: Path, exponent: float, gain: float, noise: float) -> Image.Image:
    """What a photograph would be with less light: each colour a power, and noise."""
    light = np.asarray(Image.open(path).convert("RGB"), np.float64) / 255
    chance = np.random.default_rng(1)
    dark = 255 * gain * light**exponent + chance.normal(0, noise, light.shape)
    return Image.fromarray(np.rint(dark).clip(0, 255).astype(np.uint8))


def through(image: Image.Image, stage: Stage) -> Image.Image:
    """A photograph as a stage makes it."""
    with TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.png", Path(folder) / "out.png"
        image.convert("RGB").save(source)
        enhanced([Pair(source, out)], [stage])
        with Image.open(out) as made:
            return made.copy()


def sheet(rows: list[tuple[Image.Image, Stage]], path: Path) -> None:
    """A row a photograph: the middle of it before, and after."""
    whole = Image.new("RGB", (2 * WIDE + GAP, len(rows) * (HIGH + GAP) - GAP), "white")
    for number, (image, stage) in enumerate(rows):
        for place, one in enumerate((image, through(image, stage))):
            left, top = (one.width - WIDE) // 2, (one.height - HIGH) // 2
            part = one.convert("RGB").crop((left, top, left + WIDE, top + HIGH))
            whole.paste(part, (place * (WIDE + GAP), number * (HIGH + GAP)))
    whole.save(path, quality=88)


def main(photographs: Path, out: Path) -> None:
    """Three sheets, a failure last on each."""
    spices = photographs / "test" / "the-spices-of-life.webp"
    light = [
        (darkened(spices, 2.5, 0.8, 3.0), video.LowLight()),
        (darkened(spices, 3.5, 0.6, 6.0), video.LowLight()),
    ]
    haze, snow, even = (
        Image.open(photographs / name)
        for name in (
            "train/tea-gardens.jpg",
            "train/lake-sherburne.jpg",
            "test/singaporean-cityscape.webp",
        )
    )
    sheet(light, out / "film-light.jpg")
    sheet([(haze, video.Dehaze()), (snow, video.Dehaze())], out / "film-haze.jpg")
    sheet([(haze, video.Contrast()), (even, video.Contrast(1.0))], out / "film-contrast.jpg")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
