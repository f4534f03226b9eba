"""People whose opacity is known, before photographs: films to measure mattes by.

The opacity is what a picture was composed with, `alpha * person + (1 - alpha) * photograph`, so it
is exact, whoever drew it. Two kinds of people:

    the man  `person-green-wall.mp4`: keyed here by how far chroma lies from a surface fitted to the
             wall's (nothing of `tilewright.video` has a hand in it), his own colours solved for,
             twice as large, swaying or walking through the picture
    drawn    discs with soft rims and strands of one to three samples, of the texture of photographs
             that nothing else uses; nobody keyed them

Noise of deviation 2 (of 255) is added to red, green and blue, and x264 encodes what comes of it at
CRF 20. The plate is a picture of its own: the empty scene with other noise, encoded as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from tilewright import video

NDArray = npt.NDArray[Any]
WIDTH, HEIGHT = 640, 480
NOISE, CRF = 2.0, 20
_INNER, _OUTER = 25.0, 50.0  # of chroma from the wall's: none of him, all of him


@dataclass(frozen=True, eq=False)
class Cutout:
    """A person apart: opacity [rows, columns] 0 to 1, colours [rows, columns, 3] 0 to 255."""

    alpha: NDArray
    colours: NDArray


def blurred(values: NDArray, radius: int) -> NDArray:
    """Means of (2 * radius + 1)² values, the edges' repeated."""
    wide = 2 * radius + 1
    found = np.asarray(values, np.float64)
    for axis in (0, 1):
        ends = [(radius + 1, radius) if one == axis else (0, 0) for one in range(found.ndim)]
        sums = np.cumsum(np.pad(found, ends, mode="edge"), axis)
        length = found.shape[axis]
        later = np.take(sums, range(wide, wide + length), axis)
        found = (later - np.take(sums, range(length), axis)) / wide
    return found


def _wall(picture: NDArray) -> NDArray:
    """A surface of second degree for each colour of the wall, fitted four times to what is near."""
    rows, columns, _ = picture.shape
    y, x = np.mgrid[-1 : 1 : rows * 1j, -1 : 1 : columns * 1j]
    terms = np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], -1)
    near = (picture[..., 1] > 110) & (picture[..., 2] < 70) & (picture[..., 0] < 230)
    for _ in range(4):
        solved = np.linalg.lstsq(terms[near], picture[near], rcond=None)[0]
        found: NDArray = terms @ solved
        near = np.abs(picture - found).max(-1) < 30
    return found


def _chroma(picture: NDArray) -> NDArray:
    luma = picture @ (0.299, 0.587, 0.114)
    return np.stack([(picture[..., 2] - luma) * 0.564, (picture[..., 0] - luma) * 0.713], -1)


def _touching(mask: NDArray, seeds: Sequence[tuple[int, int]]) -> NDArray:
    """What of a mask is joined to some of its samples, (column, row)."""
    image = Image.fromarray(np.where(mask, 255, 0).astype(np.uint8)).copy()
    for seed in seeds:
        if image.getpixel(seed) == 255:
            ImageDraw.floodfill(image, seed, 128)
    found: NDArray = np.asarray(image) == 128
    return found


def keyed(picture: NDArray) -> Cutout:
    """The man of a picture [192, 320, 3] of the clip."""
    wall = _wall(picture)
    apart = np.hypot(*np.moveaxis(_chroma(picture) - _chroma(wall), -1, 0))
    share = ((apart - _INNER) / (_OUTER - _INNER)).clip(0, 1)
    alpha = share * share * (3 - 2 * share)
    rows, columns = alpha.shape
    # He is in the middle of the lower edge; what is closed in by him is his.
    body = _touching(alpha > 0.5, [(x, rows - 2) for x in range(100, 220, 10)])
    edge = [(x, y) for x in range(0, columns, 4) for y in (0, rows - 1)]
    inside = ~_touching(~body, [*edge, (columns - 1, rows // 2)])
    alpha = np.where(inside & (blurred(inside, 2) > 0.99), 1.0, alpha)
    alpha = np.where(blurred(inside, 3) > 0, alpha, 0.0)
    # The clip's chroma is halved, so the wall's colour reaches some samples into him.
    sure = (blurred(inside, 3) > 0.99)[..., None]
    weights = blurred(sure, 6)
    near = blurred(picture * sure, 6) / np.maximum(weights, 1e-6)
    colours = np.where(sure, picture, np.where(weights > 1e-3, near, 0.0))
    return _twice(Cutout(alpha, colours.clip(0, 255)))


def _twice(one: Cutout) -> Cutout:
    """Twice as large, its rim as narrow as a camera of that size would have it."""
    rows, columns = one.alpha.shape
    size = (2 * columns, 2 * rows)
    alpha = np.asarray(Image.fromarray(one.alpha.astype(np.float32)).resize(size, Image.BICUBIC))
    colours = Image.fromarray(np.rint(one.colours).astype(np.uint8)).resize(size, Image.BICUBIC)
    return Cutout(((alpha - 0.5) * 1.6 + 0.5).clip(0, 1), np.asarray(colours, np.float64))


def men(clip: Path, count: int, step: int = 1) -> list[Cutout]:
    """The man of pictures 0, step, ... of the clip, while the camera holds still enough."""
    found = []
    for number, frame in enumerate(video.frames(clip)):
        if number % step == 0:
            found.append(keyed(frame.carrier.to_ndarray(format="rgb24").astype(np.float64)))
        if len(found) == count:
            break
    return found


def drawn(texture: NDArray, count: int, seed: int) -> list[Cutout]:
    """Soft discs and strands that wander, of a photograph's colours [480, 640, 3]."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float64)
    discs = rng.uniform((150, 150, 50, 1), (490, 330, 110, 5), (3, 4))
    strands = rng.uniform((150, 100, -1, 1), (490, 200, 1, 3), (12, 4))
    found = []
    for number in range(count):
        shift = 3 * number
        alpha = np.zeros_like(x)
        for cx, cy, radius, soft in discs:
            apart = np.hypot(x - cx - shift, y - cy - 0.5 * shift)
            alpha = np.maximum(alpha, ((radius - apart) / soft + 0.5).clip(0, 1))
        for cx, cy, lean, wide in strands:
            line = np.abs(x - cx - shift - lean * (y - cy)) / np.hypot(1, lean)
            inside = (y > cy) & (y < cy + 180)
            alpha = np.maximum(alpha, np.where(inside, (wide / 2 + 0.5 - line).clip(0, 1), 0))
        found.append(Cutout(alpha, np.roll(texture, (shift // 2, shift), (0, 1))))
    return found


def photograph(path: Path) -> NDArray:
    """A photograph that fills 640 x 480, red, green and blue of 0 to 255."""
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    scale = max(WIDTH / picture.width, HEIGHT / picture.height)
    size = (max(WIDTH, round(picture.width * scale)), max(HEIGHT, round(picture.height * scale)))
    picture = picture.resize(size, Image.LANCZOS)
    left, top = (size[0] - WIDTH) // 2, (size[1] - HEIGHT) // 2
    cut = picture.crop((left, top, left + WIDTH, top + HEIGHT))
    return np.asarray(cut, np.float64)


def placed(one: Cutout, right: int) -> Cutout:
    """A person at the lower edge of 640 x 480, so far to the right of the middle."""
    alpha, colours = np.zeros((HEIGHT, WIDTH)), np.zeros((HEIGHT, WIDTH, 3))
    rows, columns = one.alpha.shape
    left = (WIDTH - columns) // 2 + right
    begin, end = max(0, left), min(WIDTH, left + columns)
    if begin < end:
        part = slice(begin - left, end - left)
        alpha[HEIGHT - rows :, begin:end] = one.alpha[:, part]
        colours[HEIGHT - rows :, begin:end] = one.colours[:, part]
    return Cutout(alpha, colours)


def swaying(cutouts: Sequence[Cutout]) -> list[Cutout]:
    """To and fro by 60 samples."""
    return [placed(one, round(60 * np.sin(number / 5))) for number, one in enumerate(cutouts)]


def walking(cutouts: Sequence[Cutout]) -> list[Cutout]:
    """In at the left, out at the right: nowhere for longer than half of the film."""
    ways = np.linspace(-WIDTH, WIDTH, len(cutouts)).round().astype(int)
    return [placed(one, int(way)) for one, way in zip(cutouts, ways, strict=True)]


def composed(cutout: Cutout, behind: NDArray) -> NDArray:
    alpha = cutout.alpha[..., None]
    return np.asarray(alpha * cutout.colours + (1 - alpha) * behind)


def written(path: Path, pictures: Iterator[NDArray], seed: int, noise: float = NOISE) -> Path:
    """Encode pictures [480, 640, 3] with noise, 25 a second."""
    rng = np.random.default_rng(seed)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=Fraction(25), options={"crf": str(CRF)})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for picture in pictures:
            noisy = np.rint(picture + rng.normal(0, noise, picture.shape)).clip(0, 255)
            frame = av.VideoFrame.from_ndarray(noisy.astype(np.uint8), "rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def plate(path: Path, behind: NDArray, seed: int) -> Path:
    """The empty scene as a picture: the third of five, encoded and decoded."""
    film = written(path.with_suffix(".mp4"), iter([behind] * 5), seed)
    third = list(video.frames(film))[2]
    third.carrier.to_image().save(path)
    return path
