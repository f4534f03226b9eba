"""What `bench.restore` measures: damaged pictures beside clean ones, and ffmpeg's filters for them.

    noise   test photographs' luma under seeded Gaussian noise
    jpeg    the same through Pillow's JPEG
    films   clips, whose first pictures x264 (medium) encodes anew; some of them are looked at
    colour  both planes of chroma: of every other photograph that has colours, under noise of red,
            green and blue or through Pillow's JPEG (4:2:0), and of films

ffmpeg's filters are given the strength by the factors that were best on photographs that networks
learn from. Pictures are tuples of planes of eight bits.
"""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright import video
from tilewright.video.stages.contract import Stage
from train.photographs import files_of, luma_of
from train.restoring import as_jpeg, noisy

NDArray = npt.NDArray[Any]
Planes = tuple[NDArray, ...]
SIGMAS, QUALITIES, CRFS = (25, 50), (10, 20, 40), (33, 38)
PICTURES, SPAN = 6, 48  # of a clip that are looked at, out of so many that are encoded
BM3D = {
    "bm3d, one pass": "bm3d=sigma={0}:block=4:bstep=2:group=1",
    "bm3d, both passes": (
        "split[a][b];[a]bm3d=sigma={1}:block=4:bstep=4:group=1:estim=basic[c];"
        "[b][c]bm3d=sigma={2}:block=4:bstep=4:group=16:estim=final:ref=1"
    ),
    "bm3d, both passes, sigma as given": (
        "split[a][b];[a]bm3d=sigma={3}:block=4:bstep=4:group=1:estim=basic[c];"
        "[b][c]bm3d=sigma={3}:block=4:bstep=4:group=16:estim=final:ref=1"
    ),
}
_FACTORS = (4, 5, 10, 1)  # of bm3d's sigma
_NLMEANS, _MOST = 0.68, 30.0
DEBLOCK = {f"deblock={kind}": f"deblock=filter={kind}" for kind in ("weak", "strong")}
_OTHER = 2  # every other photograph, of colour
_CHROMA = ((-37.797, -74.203, 112.0), (112.0, -93.786, -18.214))  # of BT.601, 16 to 240


@dataclass(frozen=True)
class Case:
    """Damaged pictures beside clean ones, and what is done about them.

    pairs   makes them: (damaged, clean) each
    judged  the first plane whose PSNR counts; with it all those behind it
    """

    name: str
    pairs: Callable[[], list[tuple[Planes, Planes]]]
    stage: Callable[[str, str], Stage]
    filters: dict[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ("float32", "float16")
    judged: int = 0
    deep: bool = False


def cases(part: str, images: Path, clips: Path) -> Iterator[Case]:
    """The cases of a part."""
    if part == "noise":
        yield from _noise(images)
    elif part == "jpeg":
        yield from _jpeg(images)
    elif part == "films":
        yield from _films(clips, "films")
    else:
        yield from _photographs_of_colour(images)
        yield from _films(clips, "colour")


def _noise(images: Path) -> Iterator[Case]:
    for sigma in SIGMAS:
        yield Case(f"σ {sigma}", partial(_noisy, images, sigma), denoising(sigma), against(sigma))


def _noisy(images: Path, sigma: int) -> list[tuple[Planes, Planes]]:
    found = enumerate(_lumas(images))
    return [((noisy(luma, sigma, number),), (luma,)) for number, luma in found]


def against(sigma: int) -> dict[str, str]:
    """ffmpeg's filters against noise of a deviation."""
    strength = min(_MOST, _NLMEANS * sigma)
    means = {"nlmeans": f"nlmeans=s={strength:g}:p=7:r=15"}
    factors = [factor * sigma for factor in _FACTORS]
    return means | {name: text.format(*factors) for name, text in BM3D.items()}


def denoising(sigma: float) -> Callable[[str, str], Stage]:
    """The stage of a size and type against noise of a deviation."""
    return lambda size, dtype: video.Denoise(sigma, size, dtype, "host")


def deblocking(size: str, dtype: str) -> Stage:
    """The stage of a size and type against what compression did."""
    return video.Deblock(size, dtype, "host")


def _jpeg(images: Path) -> Iterator[Case]:
    types = ("float32", "float16", "int8")
    for quality in QUALITIES:
        pairs = partial(_jpegs, images, quality)
        yield Case(f"JPEG q {quality}", pairs, deblocking, DEBLOCK, types, deep=True)


def _jpegs(images: Path, quality: int) -> list[tuple[Planes, Planes]]:
    return [((as_jpeg(luma, quality),), (luma,)) for luma in _lumas(images)]


def _films(clips: Path, part: str) -> Iterator[Case]:
    """Each clip a case, so that the worst is seen."""
    kinds = (".mp4", ".mkv", ".webm")
    for path in sorted(path for path in clips.iterdir() if path.suffix in kinds):
        for crf in CRFS:
            pairs = partial(_filmed, path, crf, luma=part == "films")
            filters = DEBLOCK if part == "films" else {}
            types = ("float32", "float16", "int8") if part == "films" else ("float32",)
            judged = int(part == "colour")
            yield Case(f"{path.stem}, CRF {crf}", pairs, deblocking, filters, types, judged)


def _filmed(path: Path, crf: int, *, luma: bool) -> list[tuple[Planes, Planes]]:
    frames = zip(video.frames(path), range(SPAN), strict=False)
    pictures = [_even(frame.planes) for frame, _ in frames]
    at = np.linspace(0, len(pictures) - 1, PICTURES + 2).round().astype(int)[1:-1]
    damaged = encoded(pictures, crf)
    planes = slice(1) if luma else slice(3)
    return [(damaged[n][planes], pictures[n][planes]) for n in at]


def _even(planes: Planes) -> Planes:
    rows, columns = (length // 2 * 2 for length in planes[0].shape)
    luma, *chroma = planes
    halves = [one[: rows // 2, : columns // 2].copy() for one in chroma]
    return (luma[:rows, :columns].copy(), *halves)


def encoded(pictures: list[Planes], crf: int) -> list[Planes]:
    """Pictures of 4:2:0, eight bits, as x264 keeps them, in their order."""
    import av

    file = io.BytesIO()
    rows, columns = pictures[0][0].shape
    with av.open(file, "w", format="matroska") as sink:
        options = {"crf": str(crf), "preset": "medium"}
        stream = sink.add_stream("libx264", rate=Fraction(25), options=options)
        stream.width, stream.height, stream.pix_fmt = columns, rows, "yuv420p"
        for planes in pictures:
            flat = np.concatenate([one.ravel() for one in planes]).reshape(-1, columns)
            sink.mux(stream.encode(av.VideoFrame.from_ndarray(flat, format="yuv420p")))
        sink.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as source:
        return [_apart(frame.to_ndarray(), rows) for frame in source.decode(video=0)]


def _apart(flat: NDArray, rows: int) -> Planes:
    columns = flat.shape[1]
    first, second = flat[rows:].reshape(2, rows // 2, columns // 2)
    return flat[:rows].copy(), first.copy(), second.copy()


def _photographs_of_colour(images: Path) -> Iterator[Case]:
    """Noise as a camera has it: red, green and blue are noisy, and chroma is halved after that."""
    only = ("float32",)
    for sigma in SIGMAS:
        for halved, name in ((True, "4:2:0"), (False, "4:4:4")):
            pairs = partial(_colours, images, sigma, halved)
            yield Case(f"σ {sigma}, {name}", pairs, denoising(sigma), types=only, judged=1)
    for quality in QUALITIES:
        pairs = partial(_jpegs_of_colour, images, quality)
        yield Case(f"JPEG q {quality}", pairs, deblocking, types=only, judged=1, deep=True)


def _colours(images: Path, sigma: int, halved: bool) -> list[tuple[Planes, Planes]]:
    found = []
    for number, picture in enumerate(_pictures(images)):
        clean = np.asarray(picture)
        noise = np.random.default_rng(number).normal(0, sigma, clean.shape)
        harmed = (clean + noise).clip(0, 255)
        found.append((_luma_and_chroma(harmed, halved), _luma_and_chroma(clean, halved)))
    return found


def _jpegs_of_colour(images: Path, quality: int) -> list[tuple[Planes, Planes]]:
    from PIL import Image

    found = []
    for picture in _pictures(images):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        sides = (np.asarray(one.convert("YCbCr")) for one in (Image.open(file), picture))
        damaged, clean = (tuple(np.moveaxis(side, 2, 0).copy()) for side in sides)
        found.append((damaged, clean))
    return found


def _pictures(images: Path) -> list[Any]:
    from PIL import Image

    found = [Image.open(path) for path in files_of(images / "test")[::_OTHER]]
    return [picture.convert("RGB") for picture in found if not _grey(picture)]


def _grey(picture: Any) -> bool:
    """Whether chroma is nothing but 128: any PSNR of it is beyond all others."""
    first, *others = np.moveaxis(np.asarray(picture.convert("RGB")), 2, 0)
    return all(np.array_equal(first, other) for other in others)


def _luma_and_chroma(rgb: NDArray, halved: bool) -> Planes:
    values = rgb / 255
    planes = [16 + values @ (65.481, 128.553, 24.966)]
    for row in _CHROMA:
        plane = 128 + values @ row
        rows, columns = plane.shape
        if halved:
            plane = plane.reshape(rows // 2, 2, columns // 2, 2).mean((1, 3))
        planes.append(plane)
    return tuple(plane.round().clip(0, 255).astype(np.uint8) for plane in planes)


def _lumas(images: Path) -> list[NDArray]:
    return [luma_of(path).round().astype(np.uint8) for path in files_of(images / "test")]


def filtered(x: NDArray, text: str) -> NDArray:
    """A grey picture through a filter of the ffmpeg program.

    Raises RuntimeError with its complaint.
    """
    rows, columns = x.shape
    raw = ["-f", "rawvideo", "-pix_fmt", "gray"]
    line = ["ffmpeg", "-v", "error", *raw, "-s", f"{columns}x{rows}", "-i", "-"]
    line += ["-filter_complex", text, *raw, "-"]
    done = subprocess.run(line, input=x.tobytes(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ffmpeg: {done.stderr.decode()[-500:]}")
    return np.frombuffer(done.stdout, np.uint8).reshape(rows, columns)
