"""Photographs as networks of luma learn from them: pairs of a picture and its half, and crops.

Luma is BT.601's as films store it, 16 to 235, in eight bits. All photographs lie one after another
in one piece of memory, so that a step gathers its crops on the device by adding up addresses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

NDArray = npt.NDArray[Any]
_KINDS = (".jpg", ".png", ".webp")
_TO_LUMA = np.asarray([65.481, 128.553, 24.966]) / 255


def luma_of(path: Path) -> NDArray:
    """Float64 [height, width], 16 to 235, both sizes even; a grey picture is full-range luma."""
    from PIL import Image

    with Image.open(path) as picture:
        grey = picture.mode == "L"
        values = np.asarray(picture if grey else picture.convert("RGB"), np.float64)
    luma = 16 + (values * (219 / 255) if grey else values @ _TO_LUMA)
    height, width = luma.shape
    return np.asarray(luma[: height // 2 * 2, : width // 2 * 2])


def halved(luma: NDArray) -> NDArray:
    """Half as wide and high by an antialiased bicubic filter (Keys, -0.5), rounded to whole."""
    x = torch.from_numpy(luma)[None, None]
    half = functional.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True)
    return np.asarray(half[0, 0].round().clamp(16, 235).numpy(), np.uint8)


def files_of(folder: Path) -> list[Path]:
    """The pictures of a folder by name.

    Raises FileNotFoundError where there is none.
    """
    found = sorted(path for path in folder.glob("*") if path.suffix in _KINDS)
    if not found:
        raise FileNotFoundError(f"no picture ({', '.join(_KINDS)}) in {folder}")
    return found


@dataclass(frozen=True)
class Pair:
    """A picture (float64, 16 to 235) and its half (uint8)."""

    name: str
    high: NDArray
    low: NDArray


def pairs_of(folder: Path) -> list[Pair]:
    """All pictures of a folder with their halves."""
    found = []
    for path in files_of(folder):
        high = luma_of(path)
        found.append(Pair(path.stem, high, halved(high)))
    return found


def middle(pair: Pair, size: int) -> Pair:
    """The middle of a pair, size x size pixels of the picture; size is a multiple of 4."""
    top, left = ((length - size // 2) // 2 for length in pair.low.shape)
    low = pair.low[top : top + size // 2, left : left + size // 2]
    high = pair.high[2 * top : 2 * top + size, 2 * left : 2 * left + size]
    return Pair(pair.name, high, low)


@torch.no_grad()
def taught(
    pairs: list[Pair], enlarge: Callable[[Tensor], Tensor], share: float, device: str
) -> list[Pair]:
    """The pairs, their pictures a share of what a net makes of the halves: it learns from those.

    What no net can know of a picture is less in them, and so is the noise in the gradients.
    """
    found = []
    for pair in pairs:
        low = torch.from_numpy(pair.low).to(device)[None, None].float() / 255
        made = enlarge(low)[0, 0].double().cpu().numpy() * 255
        found.append(Pair(pair.name, (1 - share) * pair.high + share * made, pair.low))
    return found


def eightfold(enlarge: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The mean of what a net makes of a picture mirrored and turned in all eight ways."""

    def mean(x: Tensor) -> Tensor:
        found = []
        for way in itertools.product((False, True), repeat=3):
            axes = [axis for axis, flip in zip((-1, -2), way[1:], strict=True) if flip]
            turned = (x.mT if way[0] else x).flip(axes)
            back = enlarge(turned.contiguous()).flip(axes)
            found.append(back.mT if way[0] else back)
        return torch.stack(found).mean(0)

    return mean


class Crops:
    """Square crops of pairs, on a device: of the half [batch, 1, size, size], and its original."""

    def __init__(self, pairs: list[Pair], size: int, device: str) -> None:
        small = [pair.name for pair in pairs if min(pair.low.shape) < size]
        if small:
            raise ValueError(f"{small[0]}: its half is smaller than a crop of {size}")
        self._size = size
        self._shapes = np.asarray([pair.low.shape for pair in pairs])
        areas = self._shapes.prod(1)
        self._starts = np.cumsum(areas) - areas
        high = [pair.high.astype(np.float16).ravel() for pair in pairs]
        self._high = torch.from_numpy(np.concatenate(high)).to(device)
        self._low = torch.from_numpy(np.concatenate([p.low.ravel() for p in pairs])).to(device)
        self._along = torch.arange(2 * size, device=device)
        self.device = self._along.device

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Int64 [steps, batch, 7]: start of the half, its width, row, column and three turns."""
        which = chance.integers(len(self._shapes), size=(steps, batch))
        shapes = self._shapes[which]
        room = shapes - self._size + 1
        corner = (chance.random((steps, batch, 2)) * room).astype(np.int64)
        turns = chance.integers(2, size=(steps, batch, 3))
        parts = self._starts[which][..., None], shapes[..., 1:], corner, turns
        return np.concatenate(parts, axis=-1)

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Crops that `drawn` gave a step, [batch, 7]: float32, 0 to 1."""
        return self._gathered(self._low, rows, 1), self._gathered(self._high, rows, 2)

    def _gathered(self, flat: Tensor, rows: Tensor, scale: int) -> Tensor:
        start, width, row, column, *turns = rows.unbind(1)
        along = self._along[: scale * self._size]
        back = along.flip(0)
        down = torch.where(turns[0][:, None] > 0, back, along) + scale * row[:, None]
        right = torch.where(turns[1][:, None] > 0, back, along) + scale * column[:, None]
        lines = scale * scale * start[:, None] + down * (scale * width[:, None])
        straight = lines[:, :, None] + right[:, None, :]
        places = torch.where(turns[2][:, None, None] > 0, straight.transpose(1, 2), straight)
        return flat[places].float()[:, None] / 255
