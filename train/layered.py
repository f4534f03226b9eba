"""Layers of photographs that move over one another: two pictures, and the one between them.

A ground and up to three layers cut out by drawn masks (blobs, bars, fences, clouds; hard and soft
edges), each on its own way: along a line that may bend, turning, growing. Some pictures are the
mean of five moments, as a shutter leaves them. Light and contrast change; noise and JPEG are on
both ends, and not on what is wanted.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train.photographs import NDArray, files_of, luma_of

SIDE = 256  # rows and columns of a picture
_TEXTURE = 448  # of what a layer is cut from
_THERE = (1.0, 0.75, 0.5, 0.35)  # how often there is a ground, and each layer
_MOMENTS = 5
_FASTEST = 40.0  # samples from one picture to the other
_GREY = 120.0  # light that contrast leaves as it is


def photographs(folder: Path) -> list[NDArray]:
    """Luma of those that are large enough, uint8."""
    found = [luma_of(path).round().astype(np.uint8) for path in files_of(folder)]
    return [one for one in found if min(one.shape) >= _TEXTURE]


def scenes(
    files: list[NDArray], chance: np.random.Generator, count: int, device: str
) -> tuple[Tensor, NDArray]:
    """Pictures [count, 3, SIDE, SIDE], 0 to 255: first, wanted, second; and wanted's share."""
    share = np.where(chance.random(count) < 0.6, 0.5, chance.uniform(0.1, 0.9, count))
    shut = chance.random() < 0.4
    open_for = chance.uniform(0.1, 0.6, count) if shut else np.zeros(count)
    within = np.linspace(-0.5, 0.5, _MOMENTS) if shut else np.zeros(1)
    times = np.stack([0 * share, share, 0 * share + 1], 1)
    moments = times[..., None] + open_for[:, None, None] * within
    when = _tensor(moments.reshape(count, -1), device)
    ground = _way(chance, count)
    canvas = _shown(files, chance, ground, when, masked=False)[:, :, 0]
    for often in _THERE[1:]:
        own, along = _way(chance, count), chance.random((count, 1)) < 0.7
        shown = _shown(files, chance, own + along * ground, when, masked=True)
        there = _tensor(chance.random(count) < often, device)
        tone, lift = chance.uniform(0.6, 1.2, count), chance.uniform(-20, 20, count)
        light = shown[:, :, 0] * _each(tone, device) + _each(lift, device)
        opaque = shown[:, :, 1].clamp(0, 1) * there[:, None, None, None]
        canvas = torch.lerp(canvas, light, opaque)
    pictures = canvas.unflatten(1, (3, len(within))).mean(2)
    gain = 1 + (chance.normal(0, 0.02, (count, 1)) * times)[..., None, None]
    contrast, lift = chance.uniform(0.4, 1.1, count), chance.uniform(-25, 25, count)
    pictures = (pictures * _tensor(gain, device) - _GREY) * _each(contrast, device)
    return (pictures + _GREY + _each(lift, device)).clamp(0, 255), share


def _tensor(values: NDArray, device: str) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float32)).to(device)


def _each(values: NDArray, device: str) -> Tensor:
    return _tensor(values, device)[:, None, None, None]


def _way(chance: np.random.Generator, count: int) -> NDArray:
    """Samples down and across from one picture to the other, [count, 2]; some stand still."""
    length = np.exp(chance.uniform(np.log(0.1), np.log(_FASTEST), count))
    angle = chance.uniform(0, 2 * np.pi, count)
    moves = chance.random(count) < 0.85
    return np.asarray(np.stack([np.cos(angle), np.sin(angle)], 1) * (length * moves)[:, None])


def _shown(
    files: list[NDArray], chance: np.random.Generator, way: NDArray, when: Tensor, masked: bool
) -> Tensor:
    """A layer at every moment, [count, moments, light (and opacity), SIDE, SIDE]."""
    count, moments, device = len(way), when.shape[1], str(when.device)
    kept = np.stack([_texture(files, chance) for _ in range(count)])[:, None]
    if masked:
        masks = np.stack([_mask(chance) for _ in range(count)])[:, None]
        kept = np.concatenate([kept, masks], 1)
    bend = way * chance.normal(0, 0.06, (count, 1)) + chance.normal(0, 0.05, (count, 2))
    angle = chance.uniform(-np.pi, np.pi, count) * (chance.random(count) < 0.3)
    zoom = np.exp(chance.uniform(np.log(0.55), np.log(1.5), count))
    turns = np.radians(chance.normal(0, 1.2, count)) * (chance.random(count) < 0.5)
    grows = chance.normal(0, 0.015, count) * (chance.random(count) < 0.5)
    middle = chance.uniform(-0.3, 0.3, (count, 2))

    def of(values: NDArray) -> Tensor:
        return _tensor(values, device)[:, None]

    shift = of(way) * when[..., None] + of(bend) * (4 * when * (1 - when))[..., None]
    turn, scale = of(angle) + of(turns) * when, of(zoom) * (1 + of(grows) * when)
    along = torch.arange(SIDE, device=device) - (SIDE - 1) / 2
    y = along[:, None] - shift[..., 0, None, None]
    x = along[None, :] - shift[..., 1, None, None]
    cos = (torch.cos(turn) * scale)[..., None, None] / (_TEXTURE / 2)
    sin = (torch.sin(turn) * scale)[..., None, None] / (_TEXTURE / 2)
    begin = _tensor(middle, device)[:, None, None, None]
    grid = torch.stack([cos * x - sin * y, sin * x + cos * y], -1) + begin
    source = _tensor(kept, device).repeat_interleave(moments, 0)
    found = functional.grid_sample(
        source, grid.flatten(0, 1), mode="bicubic", padding_mode="reflection", align_corners=False
    )
    return found.unflatten(0, (count, moments))


def _texture(files: list[NDArray], chance: np.random.Generator) -> NDArray:
    luma = files[int(chance.integers(len(files)))]
    top, left = (int(chance.integers(length - _TEXTURE + 1)) for length in luma.shape)
    part = luma[top : top + _TEXTURE, left : left + _TEXTURE].astype(np.float32)
    if chance.random() < 0.25:
        part = _soft(part, int(chance.choice([2, 4, 8])))
    return np.asarray(part[:, ::-1] if chance.random() < 0.5 else part)


def _soft(part: NDArray, times: int) -> NDArray:
    """Without what is finer than so many samples, as walls and roads are."""
    x = torch.from_numpy(part)[None, None]
    small = functional.avg_pool2d(x, times)
    return np.asarray(functional.interpolate(small, part.shape, mode="bicubic")[0, 0].numpy())


def _mask(chance: np.random.Generator) -> NDArray:
    """How opaque a layer is, 0 to 1, [_TEXTURE, _TEXTURE]."""
    cells = int(chance.choice([3, 4, 6, 9, 14]))
    rough = torch.from_numpy(chance.standard_normal((1, 1, cells, cells), np.float32))
    cloud = functional.interpolate(rough, (_TEXTURE, _TEXTURE), mode="bicubic")[0, 0].numpy()
    along = np.linspace(-1, 1, _TEXTURE, dtype=np.float32)
    across, down = chance.uniform(-0.35, 0.35, 2)
    angle, kind = chance.uniform(0, np.pi), chance.random()
    x, y = along[None] - across, along[:, None] - down
    u, v = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    if kind < 0.45:
        radii = chance.uniform(0.15, 0.7, 2)
        inside = (1 - np.hypot(u / radii[0], v / radii[1]) + 0.35 * cloud) * radii.min()
    elif kind < 0.7:
        inside = chance.uniform(0.03, 0.2) - abs(u) + 0.02 * cloud
    elif kind < 0.8:
        waves = np.pi * chance.uniform(2, 8)
        inside = (np.cos(u * waves) - chance.uniform(0.2, 0.8)) / waves
    else:
        inside = (cloud - chance.uniform(0, 0.8)) / cells
    soft = float(chance.choice([0.5, 1, 2, 4]))  # samples
    steep = (inside * (_TEXTURE / 2 / soft)).clip(-30, 30)
    return np.asarray(1 / (1 + np.exp(-steep)), np.float32)


def coded(pictures: NDArray, chance: np.random.Generator) -> NDArray:
    """First, wanted and second in codes, uint8 [3, rows, columns]; noise and JPEG on the ends."""
    noise = float(chance.choice([0, 0, 1, 2, 4])) * chance.random()
    quality = int(chance.integers(60, 98)) if chance.random() < 0.7 else 0
    found = np.empty(pictures.shape, np.uint8)
    for number, picture in enumerate(pictures):
        end = number != 1
        rough = picture + noise * chance.standard_normal(picture.shape) if end else picture
        codes = np.rint(rough.clip(0, 255)).astype(np.uint8)
        found[number] = _jpeg(codes, quality) if quality and end else codes
    return found


def _jpeg(codes: NDArray, quality: int) -> NDArray:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(codes).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))
