"""Photographs before and after the stages that are tables; where they fail, too.

python examples/stages_before_after.py PHOTOGRAPHS OUT

PHOTOGRAPHS holds test/ and train/, OUT gets film-light.jpg, film-haze.jpg, film-contrast.jpg,
film-sharpen.jpg and film-ten-bit.png. The last shows a few of 256 codes over all of the greys.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tilewright import video
from tilewright.video.look import Frame, Look
from tilewright.video.pictures import Pair, enhanced
from tilewright.video.stages.contract import Stage, Window

WIDE, HIGH, GAP, HEAD = 460, 300, 6, 26
HEADS = ("before", "after")


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
    laid([[middle(image), middle(through(image, stage))] for image, stage in rows], HEADS, path)


def middle(image: Image.Image) -> Image.Image:
    """As much as a sheet shows."""
    left, top = (image.width - WIDE) // 2, (image.height - HIGH) // 2
    return image.convert("RGB").crop((left, top, left + WIDE, top + HIGH))


def laid(rows: Sequence[Sequence[Image.Image]], heads: Sequence[str], path: Path) -> None:
    """Parts in rows, with a head over each column."""
    wide, high = rows[0][0].size
    size = (len(heads) * (wide + GAP) - GAP, HEAD + len(rows) * (high + GAP) - GAP)
    whole = Image.new("RGB", size, "white")
    pen, font = ImageDraw.Draw(whole), ImageFont.load_default(16)
    for column, head in enumerate(heads):
        pen.text((column * (wide + GAP) + 2, 2), head, fill="black", font=font)
        for row, parts in enumerate(rows):
            whole.paste(parts[column], (column * (wide + GAP), HEAD + row * (high + GAP)))
    whole.save(path, quality=88, optimize=True)


def deepened(codes: np.ndarray) -> np.ndarray:
    """Codes of eight bits through `--ten-bit`: quarters of a code."""
    look = Look(codes.shape[1], codes.shape[0], "gray", 8, "grey")
    frame = Frame((codes.astype(np.uint8),), 0, 1, Fraction(1, 25), look)
    (made,) = video.TenBit().bound(look)(Window(frame))
    return made.planes[0] / 4


def stretched(codes: np.ndarray, least: float, most: float) -> Image.Image:
    """A few codes over all of the greys, each sample as 2 x 2."""
    grey = np.rint(255 * (codes - least) / (most - least)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(grey).resize((2 * grey.shape[1], 2 * grey.shape[0]), 0).convert("RGB")


def ten_bit(path: Path) -> None:
    """Ramps, a steep one and a flat one, and a weave of one code, which is taken for steps."""
    y, x = np.mgrid[: HIGH // 2, : WIDE // 2]
    rows = []
    for exact in (60 + x / 4 + y / 30, 60 + x / 32 + y / 60, 60 + (x // 2 + y // 2) % 2 + x / 24):
        codes = np.rint(exact)
        ends = codes.min() - 0.5, codes.max() + 0.5
        rows.append([stretched(each, *ends) for each in (codes, deepened(codes), exact)])
    laid(rows, ("eight bits", "--ten-bit", "exact"), path)


def main(photographs: Path, out: Path) -> None:
    """A sheet a stage, a failure last on each."""
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
    soft = Image.open(photographs / "test" / "perched-osprey.webp")
    grainy = Image.open(photographs / "test" / "gb82-night.webp")
    sheet([(soft, video.Sharpen()), (grainy, video.Sharpen(3.0))], out / "film-sharpen.jpg")
    ten_bit(out / "film-ten-bit.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
