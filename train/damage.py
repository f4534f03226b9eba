"""Crops as nets learn from them that take damage away: damaged on the device, anew in every step.

    Noisy      Gaussian noise of a drawn strength, cut to 0 to 1 and rounded, as films store it
    Blocky     JPEG of a drawn quality (its cosine transform and tables, on the device), or a
               picture that a codec of films damaged beforehand (`coded.py`)

Both give [batch, 2, size, size], 0 to 1: the damaged luma, and what the net is told of the damage,
the same for all pixels; and the clean luma. Half of the crops are brought from 16..235 to full
range, as pictures have it. Seeds are drawn by the step's number, as places are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from train.photographs import NDArray

LOUDEST = 75.0  # of the noise, in codes of eight bits
LOWEST, HIGHEST = 5, 60  # qualities of JPEG
STILL, FILM = 0.0, 1.0  # what the net that deblocks is told
_TABLE = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56), (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip


class Pictures:
    """Pictures one after another in a device's memory, and square crops of them."""

    def __init__(self, sides: Sequence[tuple[NDArray, ...]], size: int, device: str) -> None:
        shapes = [pictures[0].shape for pictures in sides]
        if min(min(shape) for shape in shapes) < size:
            raise ValueError(f"a picture of {min(map(min, shapes))} pixels is less than {size}")
        self._shapes: NDArray = np.asarray(shapes)
        areas = self._shapes.prod(1)
        self._starts = np.cumsum(areas) - areas
        self._chances = areas / areas.sum()
        self._flat = [
            torch.from_numpy(np.concatenate([one.ravel() for one in side])).to(device)
            for side in zip(*sides, strict=True)
        ]
        self._size = size
        self._along = torch.arange(size, device=device)

    def drawn(self, chance: np.random.Generator, batch: int) -> NDArray:
        """Int64 [batch, 7]: start of the picture, its width, row, column and three turns."""
        which = chance.choice(len(self._shapes), batch, p=self._chances)
        shapes = self._shapes[which]
        corner = (chance.random((batch, 2)) * (shapes - self._size + 1)).astype(np.int64)
        turns = chance.integers(2, size=(batch, 3))
        return np.concatenate([self._starts[which][:, None], shapes[:, 1:], corner, turns], 1)

    def at(self, rows: Tensor) -> list[Tensor]:
        """Crops that `drawn` gave, of every side: float32 [batch, 1, size, size], 0 to 1."""
        start, width, row, column, *turns = rows.unbind(1)
        along, back = self._along, self._along.flip(0)
        down = torch.where(turns[0][:, None] > 0, back, along) + row[:, None]
        right = torch.where(turns[1][:, None] > 0, back, along) + column[:, None]
        straight = (start[:, None] + down * width[:, None])[:, :, None] + right[:, None, :]
        places = torch.where(turns[2][:, None, None] > 0, straight.mT, straight)
        return [flat[places].float()[:, None] / 255 for flat in self._flat]


class Noisy:
    """Photographs under noise."""

    def __init__(self, photographs: list[NDArray], size: int, device: str) -> None:
        self._pictures = Pictures([(one,) for one in photographs], size, device)

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Places of crops, [steps, batch, 7]; the device's chance is seeded too."""
        torch.manual_seed(int(chance.integers(2**62)))
        return np.stack([self._pictures.drawn(chance, batch) for _ in range(steps)])

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Damaged luma with the strength over 255, and clean luma."""
        clean = widened(self._pictures.at(rows)[0])
        drawn = torch.rand(len(rows), 1, 1, 1, device=rows.device)
        strength = LOUDEST / 255 * drawn**1.5
        return told(rounded(clean + strength * torch.randn_like(clean)), strength), clean


class Blocky:
    """Photographs as JPEG keeps them, and pictures of films beside their clean sides."""

    def __init__(
        self,
        photographs: list[NDArray],
        films: Sequence[tuple[NDArray, ...]],
        size: int,
        device: str,
    ) -> None:
        self._still = Pictures([(one,) for one in photographs], size + 8, device)
        self._films = Pictures(films, size, device)
        self._size = size
        self._transform = cosines().to(device)
        self._table = torch.tensor(_TABLE, dtype=torch.float32, device=device)
        self._along = torch.arange(size, device=device)

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Places of crops, [steps, batch, 7]: the first half of photographs."""
        torch.manual_seed(int(chance.integers(2**62)))
        still = batch // 2
        both = [
            np.concatenate(
                [self._still.drawn(chance, still), self._films.drawn(chance, batch - still)]
            )
            for _ in range(steps)
        ]
        return np.stack(both)

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Damaged luma with what damaged it, and clean luma."""
        still, films = rows.split([len(rows) // 2, len(rows) - len(rows) // 2])
        clean = widened(self._still.at(still)[0])
        quality = torch.randint(LOWEST, HIGHEST + 1, (len(clean), 1, 1, 1), device=rows.device)
        damaged = self._jpeg(clean, quality.float())
        damaged, clean = self._shifted(damaged, clean)
        filmed, wanted = self._films.at(films)
        x = torch.cat([told(damaged, STILL), told(filmed, FILM)])
        return x, torch.cat([clean, wanted])

    def _jpeg(self, clean: Tensor, quality: Tensor) -> Tensor:
        return jpeg(clean, quality, self._transform, self._table)

    def _shifted(self, damaged: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """Crops smaller by eight, so that blocks begin anywhere in them."""
        count = len(clean)
        down, right = torch.randint(8, (2, count, 1), device=clean.device) + self._along
        first = torch.arange(count, device=clean.device)[:, None, None]
        pick = first, down[:, :, None], right[:, None, :]
        return damaged[:, 0][pick][:, None], clean[:, 0][pick][:, None]


def told(x: Tensor, what: Tensor | float) -> Tensor:
    """Luma and, as another channel, what the net is told."""
    return torch.cat([x, torch.zeros_like(x) + what], 1)


def rounded(x: Tensor) -> Tensor:
    """As eight bits hold it."""
    return (x.clamp(0, 1) * 255).round() / 255


def widened(x: Tensor) -> Tensor:
    """Half of the crops brought from 16..235 to full range."""
    which = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return torch.where(which, ((x * 255 - 16) / 219).clamp(0, 1), x)


def cosines() -> Tensor:
    """The cosine transform of eight values, [8, 8], orthonormal."""
    k = torch.arange(8.0)
    found = torch.cos(math.pi / 8 * (k + 0.5) * k[:, None]) / 2
    found[0] /= math.sqrt(2)
    return found


def jpeg(x: Tensor, quality: Tensor, transform: Tensor, table: Tensor) -> Tensor:
    """Luma of 0 to 1, sides in eights, as JPEG of a quality (1 to 100) keeps it."""
    count, _, height, width = x.shape
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)
    steps = ((table * scale.view(-1, 1, 1) + 50) / 100).floor().clamp(1, 255)
    steps = steps.view(count, 1, 8, 1, 8)
    blocks = (x * 255).round().view(count, height // 8, 8, width // 8, 8) - 128
    kept = torch.einsum("ui,nyixj,vj->nyuxv", transform, blocks, transform)
    kept = (kept / steps).round() * steps
    back = torch.einsum("ui,nyuxv,vj->nyixj", transform, kept, transform) + 128
    return back.reshape(x.shape).round().clamp(0, 255) / 255
