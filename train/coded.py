"""Pictures that H.264 and H.265 damaged, made of the photographs: what `train.deblock` learns from.

    python -m train.coded --data PHOTOGRAPHS --out CODED

A clip is a window that moves over a photograph, in whole pixels, or in half ones of its half (means
of two by two), as it is or softer, since films are softer than photographs. PyAV encodes some
pictures of it at a drawn quality, and one of what is decoded is kept, losslessly as WebP. Where
each window stood is in coded.json, so that its clean side is cut from the photograph again. One
core makes 400 of them in about 40 seconds.
"""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from train.photographs import NDArray, files_of, luma_of

PICTURES = 7  # of a clip
KEPT = 1
_SIZES = ((288, 384), (240, 240))  # rows and columns, of whole photographs and of halves
_CODECS = {"libx264": "medium", "libx265": "fast"}


@dataclass(frozen=True)
class Place:
    """A kept picture: its photograph, where its window stood, and how it was damaged."""

    file: str
    photograph: str
    halved: bool
    soft: float
    top: int
    left: int
    codec: str
    crf: int


def window(luma: NDArray, halved: bool, soft: float, top: int, left: int) -> NDArray:
    """The clean picture: uint8, of a photograph's luma as floats.

    soft: the deviation of the Gaussian filter that it goes through, in samples of it; 0 is none.
    """
    rows, columns = _SIZES[halved]
    part = luma[top : top + rows, left : left + columns]
    if halved:
        part = luma[top : top + 2 * rows, left : left + 2 * columns]
        part = part.reshape(rows, 2, columns, 2).mean((1, 3))
    return np.asarray(softened(part, soft).round(), np.uint8)


def softened(x: NDArray, soft: float) -> NDArray:
    """Through a Gaussian filter of seven taps each way, edges repeated."""
    if not soft:
        return x
    taps = np.exp(-(np.arange(-3, 4) ** 2) / (2 * soft**2))
    for axis in range(2):
        wide = np.pad(x, [(3, 3) if axis == a else (0, 0) for a in range(2)], mode="edge")
        length = x.shape[axis]
        parts = [np.take(wide, range(n, n + length), axis) * tap for n, tap in enumerate(taps)]
        x = sum(parts) / taps.sum()
    return x


def coded(pictures: list[NDArray], codec: str, crf: int) -> list[NDArray]:
    """Luma of pictures (uint8, even sizes) as a codec keeps it, in their order."""
    import av

    file = io.BytesIO()
    rows, columns = pictures[0].shape
    options = {"crf": str(crf), "preset": _CODECS[codec]}
    if codec == "libx265":
        options["x265-params"] = "log-level=none:pools=1:frame-threads=1"
    with av.open(file, "w", format="matroska") as sink:
        stream = sink.add_stream(codec, rate=Fraction(25), options=options)
        stream.width, stream.height, stream.pix_fmt = columns, rows, "yuv420p"
        for picture in pictures:
            grey = np.full((rows // 2, columns), 128, np.uint8)
            frame = av.VideoFrame.from_ndarray(np.concatenate([picture, grey]), format="yuv420p")
            sink.mux(stream.encode(frame))
        sink.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as source:
        frames = [frame.to_ndarray() for frame in source.decode(video=0)]
    return [np.asarray(frame[:rows]) for frame in frames]


def made(
    luma: NDArray, name: str, number: int, chance: np.random.Generator
) -> list[tuple[Place, NDArray]]:
    """The kept pictures of one clip."""
    halved = bool(chance.integers(2))
    codec = "libx264" if chance.random() < 0.65 else "libx265"
    crf = int(chance.integers(24, 43))
    size = np.asarray(_SIZES[halved]) * (2 if halved else 1)
    soft = float(chance.choice([0.0, 0.6, 0.9, 1.3]))
    step = chance.integers(-4, 5, 2)
    room = np.asarray(luma.shape) - size - abs(step) * (PICTURES - 1)
    begin = (chance.random(2) * (room + 1)).astype(int) - step.clip(max=0) * (PICTURES - 1)
    at = [begin + step * n for n in range(PICTURES)]
    clip = coded([window(luma, halved, soft, *map(int, a)) for a in at], codec, crf)
    found = []
    for n in chance.choice(PICTURES, KEPT, replace=False):
        top, left = map(int, at[n])
        file = f"{number:04d}-{n}.webp"
        found.append((Place(file, name, halved, soft, top, left, codec, crf), clip[n]))
    return found


def make(data: Path, out: Path, clips: int, most: float) -> None:
    """Write clips of each photograph in turn, to at most so many megabytes."""
    from PIL import Image

    out.mkdir(parents=True, exist_ok=True)
    files = files_of(data / "train")
    places: list[Place] = []
    size = 0
    for number in range(clips * len(files)):
        if size > most * 1e6:
            break
        path = files[number % len(files)]
        chance = np.random.default_rng(number)
        for place, picture in made(luma_of(path), path.stem, number, chance):
            Image.fromarray(picture).save(out / place.file, lossless=True, method=4)
            size += (out / place.file).stat().st_size
            places.append(place)
    (out / "coded.json").write_text(json.dumps([asdict(place) for place in places]))
    print(f"{len(places)} pictures, {size / 1e6:.1f} MB")


def main() -> None:
    """Read the command line and make them."""
    parser = argparse.ArgumentParser(
        prog="python -m train.coded", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--data", required=True, help="a folder with train/")
    parser.add_argument("--out", required=True, help="where pictures and coded.json go")
    parser.add_argument("--clips", type=int, default=4, help="of each photograph")
    parser.add_argument("--most", type=float, default=9.0, help="megabytes")
    options = parser.parse_args()
    make(Path(options.data), Path(options.out), options.clips, options.most)


if __name__ == "__main__":
    main()
