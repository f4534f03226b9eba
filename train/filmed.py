"""Clips of photographs with drawn objects that move in them, as x264 keeps them, and their crops.

A window stands still or moves over a photograph, or over two that shine through each other, sharp
or soft, clean or noisy; objects (`objects.py`), no two alike, go their ways in it. A few pictures
of each clip are kept as they are decoded, 4:2:0. Clips are told apart by number: files that are
there are not made again, and whoever asks for more goes on where they end.
"""

from __future__ import annotations

import io
import os
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tilewright.video.detection.heat import CELL
from train.objects import NONE, SIDE, drawn, extent
from train.pasted import LEAST, MOST, VISIBLE, laid, placed, toned, wanted
from train.photographs import NDArray
from train.steps import Crops

HIGH, WIDE = 288, 384
SLOTS = 10  # objects at most, a cell of 4 x 3 each
PICTURES, KEPT = 8, 4  # of a clip
_CHUNK = 40  # clips of a file
_FASTEST = 3.0  # samples a picture
_PRESETS = ("veryfast", "fast", "medium", "medium")
_SEED = 2_000_003


def clip(files: tuple[Path, ...], number: int) -> tuple[NDArray, NDArray]:
    """Kept pictures of a clip, uint8 [KEPT, HIGH * 3 / 2, WIDE] of 4:2:0, and what is in them.

    Objects are [KEPT, SLOTS, 7] as `pasted.wanted` has them.
    """
    chance = np.random.default_rng((_SEED, number))
    torch.manual_seed(int(chance.integers(2**62)))
    behind = _behind(_photograph(files[number % len(files)]), chance)
    if chance.random() < 0.15:
        other = _behind(_photograph(files[int(chance.integers(len(files)))]), chance)
        behind = torch.lerp(behind, other, float(chance.uniform(0.2, 0.5)))
    pictures, objects = _laid(behind, chance)
    if chance.random() < 0.3:
        pictures = pictures + float(chance.uniform(1, 6)) / 255 * torch.randn_like(pictures)
    coded = _coded(pictures, int(chance.integers(18, 30)), str(chance.choice(_PRESETS)))
    kept = np.sort(chance.choice(PICTURES, KEPT, replace=False))
    return coded[kept], objects[kept]


@lru_cache(maxsize=256)
def _photograph(path: Path) -> Tensor:
    """[1, 3, rows, columns], 0 to 1."""
    from PIL import Image

    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float()[None] / 255


def _behind(photograph: Tensor, chance: np.random.Generator) -> Tensor:
    """A window's way over a photograph, [PICTURES, 3, HIGH, WIDE]."""
    if chance.random() < 0.5:
        photograph = photograph.flip(-1)
    photograph = toned(photograph)
    rows, columns = photograph.shape[2:]
    largest = min(rows / (HIGH + 30), columns / (WIDE + 30))
    scale = float(np.exp(chance.uniform(np.log(0.5 * largest), np.log(largest))))
    size = round(rows / scale), round(columns / scale)
    whole = functional.interpolate(photograph, size, mode="bicubic", antialias=True).clamp(0, 1)
    if chance.random() < 0.5:
        whole = _soft(whole, float(chance.uniform(0.4, 1.4)))
    speed = chance.uniform(-2.5, 2.5, 2) * (chance.random() < 0.5)
    room = np.asarray(size) - (HIGH, WIDE) - np.abs(speed) * PICTURES - 1
    begin = chance.random(2) * room.clip(0) + (-speed).clip(0) * PICTURES
    return torch.cat([_window(whole, *(begin + n * speed)) for n in range(PICTURES)])


def _window(whole: Tensor, top: float, left: float) -> Tensor:
    """A part that begins between samples."""
    row, column = int(top), int(left)
    down, right = top - row, left - column
    part = whole[:, :, row : row + HIGH + 1, column : column + WIDE + 1]
    part = torch.lerp(part[:, :, :-1], part[:, :, 1:], down)
    return torch.lerp(part[..., :-1], part[..., 1:], right)


def _soft(picture: Tensor, deviation: float) -> Tensor:
    along = torch.arange(-4.0, 5)
    taps = torch.exp(-(along**2) / (2 * deviation**2))
    taps = (taps / taps.sum()).expand(3, 1, 1, 9)
    padded = functional.pad(picture, (4, 4, 4, 4), mode="replicate")
    return functional.conv2d(functional.conv2d(padded, taps, groups=3), taps.mT, groups=3)


def _laid(behind: Tensor, chance: np.random.Generator) -> tuple[Tensor, NDArray]:
    """Objects that move over pictures, and where they are in each."""
    kinds = chance.integers(NONE + 1, size=SLOTS)
    patches = np.stack([drawn(int(kind), chance) for kind in kinds])
    for slot in np.flatnonzero((kinds == NONE) & (chance.random(SLOTS) < 0.3)):
        patches[slot] = _cut(behind[0].numpy(), chance)
    tint = chance.uniform(0.75, 1.25, (SLOTS, 3, 1, 1)).astype(np.float32)
    patches[:, :3] = np.minimum(patches[:, :3] * tint, patches[:, 3:])
    there = chance.random(SLOTS) < chance.uniform(0.3, 1)
    long = np.where(
        chance.random(SLOTS) < 0.6,
        chance.uniform(9, 17, SLOTS),
        LEAST * (MOST / LEAST) ** chance.random(SLOTS),
    )
    cells = chance.permutation(12)[:SLOTS]
    begin = (np.stack([cells % 4, cells // 4], -1) + 0.5) * 96
    speed = chance.uniform(-_FASTEST, _FASTEST, (SLOTS, 2)) * (chance.random((SLOTS, 1)) < 0.8)
    at = np.arange(PICTURES)[:, None, None] - PICTURES / 2
    centres = begin + chance.uniform(-30, 30, (SLOTS, 2)) + speed * at
    given = [patches * there[:, None, None, None], centres, long, np.ones(SLOTS)]
    shown = [torch.from_numpy(np.asarray(one, np.float32)) for one in given]
    every = [one if one.ndim == 3 else one.expand(PICTURES, *one.shape) for one in shown]
    pictures, apart = laid(behind, *every)
    sizes = np.stack([extent(one) for one in patches]) * long[:, None]
    seen = np.where(apart.numpy() > VISIBLE, 1, -1) * (there & (kinds < NONE))
    parts = [
        np.broadcast_to(kinds[None, :, None], (PICTURES, SLOTS, 1)), centres,
        np.broadcast_to(sizes, (PICTURES, SLOTS, 2)), seen[..., None], apart.numpy()[..., None],
    ]  # fmt: skip
    return pictures, np.concatenate(parts, -1).astype(np.float32)


def _cut(picture: NDArray, chance: np.random.Generator) -> NDArray:
    """A round part of a picture, as a patch."""
    top, left = (int(chance.integers(length - SIDE)) for length in picture.shape[1:])
    y = np.linspace(-1.1, 1.1, SIDE, dtype=np.float32)
    opaque = (6 * (1 - np.hypot(y[:, None], 1.3 * y))).clip(0, 1)
    part = picture[:, top : top + SIDE, left : left + SIDE]
    return np.concatenate([part * opaque, opaque[None]])


def _coded(pictures: Tensor, crf: int, preset: str) -> NDArray:
    """Pictures as x264 keeps them, [n, HIGH * 3 / 2, WIDE]."""
    import av

    file, codes = io.BytesIO(), (pictures * 255).round().clamp(0, 255).byte()
    options = {"crf": str(crf), "preset": preset, "threads": "1"}
    with av.open(file, "w", format="matroska") as out:
        stream = out.add_stream("libx264", rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDE, HIGH, "yuv420p"
        for one in codes.permute(0, 2, 3, 1).numpy():
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(one), "rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as container:
        return np.stack([one.to_ndarray() for one in container.decode(video=0)])


def make(files: tuple[Path, ...], folder: Path, first: int, clips: int) -> list[Path]:
    """Files of so many clips, on all cores; those that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    begins = range(first, first + clips, _CHUNK)
    paths = [folder / f"{begin:07d}.npz" for begin in begins]
    left = [(begin, path) for begin, path in zip(begins, paths, strict=True) if not path.exists()]
    context = get_context("fork")  # before anything of CUDA's
    with ProcessPoolExecutor(os.cpu_count(), context, partial(torch.set_num_threads, 1)) as pool:
        work = [[one[place] for one in left] for place in (0, 1)]
        list(pool.map(_file, repeat(files), *work))
    return paths


def _file(files: tuple[Path, ...], begin: int, path: Path) -> None:
    made = [clip(files, number) for number in range(begin, begin + _CHUNK)]
    pictures, objects = (np.concatenate(part) for part in zip(*made, strict=True))
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, pictures=pictures, objects=objects)
    part.replace(path)


class Filmed:
    """Crops of such pictures, as a net reads them, mirrored, darker and lighter."""

    def __init__(self, paths: list[Path], size: int, device: str) -> None:
        pictures, objects = [], []
        for path in paths:
            with np.load(path) as kept:
                pictures.append(torch.from_numpy(kept["pictures"]).to(device))
                objects.append(kept["objects"])
        whole = torch.cat(pictures)
        self._luma = whole[:, :HIGH]
        self._chroma = whole[:, HIGH:].reshape(-1, 2, HIGH // 2, WIDE // 2)
        self._objects = torch.from_numpy(np.concatenate(objects)).to(device)
        self._size = size
        self._along = torch.arange(size, device=device)

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Which picture, nothing, top and left (even), whether mirrored: [steps, batch, 7]."""
        which = chance.integers(len(self._luma), size=(steps, batch, 1))
        room = (np.asarray([HIGH, WIDE]) - self._size) // 2 + 1
        corner = 2 * (chance.random((steps, batch, 2)) * room).astype(np.int64)
        mirrored = chance.integers(2, size=(steps, batch, 1))
        return np.concatenate([which, 0 * which, corner, 0 * which, mirrored, 0 * which], -1)

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What a net reads, and what is wanted of it."""
        which, _, top, left, _, mirrored, _ = rows.unbind(1)
        luma = self._part(self._luma[:, None], which, top, left, mirrored)
        chroma = self._part(self._chroma, which, top // 2, left // 2, mirrored)
        count, device = len(rows), rows.device
        change = torch.rand(3, count, 1, 1, 1, device=device)
        luma = (luma.float() - 16) / 219 - 0.5
        luma = (luma * (0.75 + 0.5 * change[0]) + 0.2 * (change[1] - 0.5)).clamp(-0.5, 0.5)
        chroma = (chroma.float() - 128) / 255 * (0.5 + 0.8 * change[2])
        return placed(luma + 0.5, chroma), wanted(
            self._there(which, top, left, mirrored), self._size // CELL
        )

    def _part(
        self, planes: Tensor, which: Tensor, top: Tensor, left: Tensor, mirrored: Tensor
    ) -> Tensor:
        """Crops of planes [n, channels, rows, columns], as large as luma's or half."""
        half = planes.shape[-1] < WIDE
        along = self._along[: self._size // 2] if half else self._along
        down = along + top[:, None]
        right = torch.where(mirrored[:, None] > 0, along.flip(0), along) + left[:, None]
        found = planes[which[:, None, None], :, down[:, :, None], right[:, None, :]]
        return found.permute(0, 3, 1, 2)

    def _there(self, which: Tensor, top: Tensor, left: Tensor, mirrored: Tensor) -> Tensor:
        kind, x, y, wide, high, seen, apart = self._objects[which].unbind(-1)
        x, y = x - left[:, None], y - top[:, None]
        x = torch.where(mirrored[:, None] > 0, self._size - x, x)
        inside = (x >= 0) & (y >= 0) & (x < self._size) & (y < self._size)
        return torch.stack([kind, x, y, wide, high, seen * inside, apart], -1)


class Both:
    """Half of a step from one, half from another."""

    def __init__(self, first: Crops, second: Crops) -> None:
        self._first, self._second = first, second

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Places of crops, those of the first before those of the second."""
        half = batch // 2
        parts = (
            self._second.drawn(chance, steps, batch - half),
            self._first.drawn(chance, steps, half),
        )
        return np.concatenate(parts[::-1], 1)

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What a net reads, and what is wanted of it."""
        half = len(rows) // 2
        parts = zip(self._first.at(rows[:half]), self._second.at(rows[half:]), strict=True)
        given, target = (torch.cat(both) for both in parts)
        return given, target
