"""Crops of photographs with drawn objects pasted into them, on the device, anew in every step.

    photographs -> crops -> objects (`objects.py`) and cut-outs of photographs pasted
                -> light, blur, noise, JPEG of luma -> by places: what the net reads
                -> heat, sizes, places, what counts: what it is to say

Objects lie on a coarse grid, a cell each at most, shaken: none hides another but by its edge. An
object that hardly differs from what it is pasted over is neither wanted nor counted against.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tilewright.video.detection.heat import CELL
from tilewright.video.detection.kinds import KINDS
from train.damage import _TABLE as QUANTA
from train.damage import Pictures, cosines, jpeg
from train.objects import BORDER, NONE, SIDE, bank
from train.photographs import NDArray

LEAST, MOST = 7.0, 26.0  # samples of an object's longer side
SLOTS = 6
VISIBLE = 0.1  # mean difference of red, green and blue from what lies behind, 0 to 1
_WINDOW, _FINE = (
    32,
    3,
)  # samples that an object is drawn in, and places of a sample that are averaged
_CUT = 0.3  # of what is none of the kinds, cut-outs of photographs
_MIXED = 0.15  # of crops, those that are two photographs, and those in other colours
_TO_LUMA = (65.481 / 255, 128.553 / 255, 24.966 / 255)


class Pasted:
    """Crops of red, green and blue photographs (uint8, [3, rows, columns]) with objects in them."""

    def __init__(
        self, photographs: list[NDArray], size: int, device: str, each: int, seed: int
    ) -> None:
        self._pictures = Pictures([tuple(one) for one in photographs], size, device)
        patches, kinds, extents = bank(each, seed)
        self._patches = torch.from_numpy(patches).to(device)
        self._kinds = torch.from_numpy(kinds).to(device)
        self._extents = torch.from_numpy(extents).to(device)
        self._size, self.each = size, each
        self._transform = cosines().to(device)
        self._table = torch.tensor(QUANTA, dtype=torch.float32, device=device)
        self._luma = torch.tensor(_TO_LUMA, device=device)

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Places of crops, [steps, batch, 7]; the device's chance is seeded too."""
        torch.manual_seed(int(chance.integers(2**62)))
        return np.stack([self._pictures.drawn(chance, batch) for _ in range(steps)])

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What the net reads, [batch, 24, size / 4, size / 4], and what is wanted of it."""
        picture = mixed(torch.cat(self._pictures.at(rows), 1))
        picture = toned(picture)
        picture, objects = self._pasted(picture)
        x = self._filmed(picture)
        return x, wanted(objects, self._size // CELL)

    def scene(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The same as pictures, red, green, blue, and objects [batch, SLOTS, 7] (`wanted`)."""
        return self._pasted(torch.cat(self._pictures.at(rows), 1))

    def _pasted(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        count, device = len(picture), picture.device
        which = torch.randint(len(self._kinds), (count, SLOTS), device=device)
        kinds = self._kinds[which]
        long = LEAST * (MOST / LEAST) ** torch.rand(count, SLOTS, device=device)
        there = torch.rand(count, SLOTS, device=device) < torch.rand(count, 1, device=device)
        centres = self._centres(count, device)
        patches = self._patches[which].float()
        patches = torch.where(self._are_cut(kinds), self._cut_out(picture, kinds), patches)
        tint = 0.75 + 0.5 * torch.rand(count, SLOTS, 3, 1, 1, device=device)
        opaque = patches[:, :, 3:]
        colours = torch.minimum(patches[:, :, :3] * tint, opaque)
        patches = torch.cat([colours, opaque], 2) * there[..., None, None, None]
        mirrored = torch.where(torch.rand(count, SLOTS, device=device) < 0.5, -1.0, 1.0)
        picture, apart = laid(picture, patches, centres, long, mirrored)
        sizes = self._extents[which] * long[..., None]
        seen = torch.where(apart > VISIBLE, 1.0, -1.0) * (there & (kinds < NONE))
        parts = kinds[..., None].float(), centres, sizes, seen[..., None], apart[..., None]
        return picture, torch.cat(parts, -1)

    def _are_cut(self, kinds: Tensor) -> Tensor:
        drawn = torch.rand(kinds.shape, device=kinds.device) < _CUT
        return ((kinds == NONE) & drawn)[..., None, None, None]

    def _cut_out(self, picture: Tensor, kinds: Tensor) -> Tensor:
        """Round parts of other crops of the batch, as patches."""
        other = picture.roll(1, 0)
        top, left = ((length - SIDE) // 2 for length in picture.shape[2:])
        part = other[:, :, top : top + SIDE, left : left + SIDE]
        y = torch.linspace(-1.1, 1.1, SIDE, device=picture.device)
        opaque = (6 * (1 - torch.hypot(y[:, None], 1.3 * y))).clamp(0, 1)
        both = torch.cat([part * opaque, opaque.expand(len(part), 1, SIDE, SIDE)], 1)
        return both[:, None].expand(-1, kinds.shape[1], -1, -1, -1)

    def _centres(self, count: int, device: torch.device) -> Tensor:
        """In samples, across and down: a cell of a grid of 3 x 3 each, SLOTS of them."""
        order = torch.rand(count, 9, device=device).argsort(1)[:, :SLOTS]
        cells = torch.stack([order % 3, order // 3], -1)
        shaken = cells + 0.02 + 0.96 * torch.rand(count, SLOTS, 2, device=device)
        return shaken * (self._size / 3)

    def _filmed(self, picture: Tensor) -> Tensor:
        """As a film has it: soft, noisy, with blocks; by places."""
        count, device = len(picture), picture.device

        def some(share: float) -> Tensor:
            return torch.rand(count, 1, 1, 1, device=device) < share

        soft = functional.avg_pool2d(functional.pad(picture, (1, 1, 1, 1), mode="replicate"), 3, 1)
        mix = torch.rand(count, 1, 1, 1, device=device) * some(0.4)
        picture = picture + mix * (soft - picture)
        strength = 8 / 255 * torch.rand(count, 1, 1, 1, device=device) ** 2 * some(0.6)
        picture = (picture + strength * torch.randn_like(picture)).clamp(0, 1)
        luma = (picture * self._luma.view(1, 3, 1, 1)).sum(1, keepdim=True) + 16 / 255
        quality = 25 + 70 * torch.rand(count, 1, 1, 1, device=device)
        coded = jpeg(luma, quality, self._transform, self._table)
        luma = torch.where(some(0.5), coded, luma)
        luma = (luma - 16 / 255) * (255 / 219)
        chroma = halved(picture)
        blocks = jpeg((chroma + 0.5).view(2 * count, 1, *chroma.shape[2:]), *self._coarse(count))
        coded = blocks.view(chroma.shape) - 0.5
        return placed(luma, torch.where(some(0.5), coded, chroma))

    def _coarse(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """What codes chroma: a quality a picture, the same for both planes."""
        quality = 25 + 70 * torch.rand(count, 1, 1, 1, 1, device=self._table.device)
        quality = quality.expand(-1, 2, -1, -1, -1).reshape(2 * count, 1, 1, 1)
        return quality, self._transform, self._table


def mixed(picture: Tensor) -> Tensor:
    """Some with another of the batch shining through them, some with colours changed about."""
    count, device = len(picture), picture.device
    share, both, about = torch.rand(3, count, 1, 1, 1, device=device)
    share = torch.where(both < _MIXED, 0.2 + 0.3 * share, torch.zeros_like(share))
    picture = torch.lerp(picture, picture.roll(1, 0), share)
    return torch.where(about < _MIXED, picture.roll(1, 1), picture)


def toned(picture: Tensor) -> Tensor:
    """Lighter or darker, with more contrast or less, with more colour or less."""
    count, device = len(picture), picture.device
    power, colour, contrast, light = torch.rand(4, count, 1, 1, 1, device=device)
    toned = picture.clamp(min=1e-3) ** torch.exp(0.8 * (power - 0.5))
    grey = toned.mean(1, keepdim=True)
    toned = grey + (0.4 + 0.9 * colour) * (toned - grey)
    return (0.5 + (0.7 + 0.5 * contrast) * (toned - 0.5) + 0.2 * (light - 0.5)).clamp(0, 1)


def by_places(luma: Tensor, picture: Tensor) -> Tensor:
    """What `heat.planes` makes of a film's picture: luma less a half by places of 4 x 4, chroma,
    halved, by places of 2 x 2."""
    return placed(luma, halved(picture))


def halved(picture: Tensor) -> Tensor:
    """Chroma as films have it, less a half: [n, 2, rows / 2, columns / 2]."""
    red, green, blue = picture.split(1, 1)
    grey = 0.299 * red + 0.587 * green + 0.114 * blue
    chroma = torch.cat([(blue - grey) * (0.5 / 0.886), (red - grey) * (0.5 / 0.701)], 1)
    return functional.avg_pool2d(chroma * (224 / 255), 2)


def placed(luma: Tensor, chroma: Tensor) -> Tensor:
    """Luma of 0 to 1 and halved chroma, less a half, by places."""
    return torch.cat(
        [
            functional.pixel_unshuffle(luma - 0.5, CELL),
            functional.pixel_unshuffle(chroma, CELL // 2),
        ],
        1,
    )


def laid(
    picture: Tensor, patches: Tensor, centres: Tensor, long: Tensor, mirrored: Tensor
) -> tuple[Tensor, Tensor]:
    """Patches over a picture, one after the other, and how far each is from what it hides."""
    count, _, height, width = picture.shape
    pad = _WINDOW
    canvas = functional.pad(picture, (pad, pad, pad, pad), mode="replicate").clone()
    along = torch.arange(_WINDOW, device=picture.device)
    origin = centres.floor().long() - _WINDOW // 2
    fine = (torch.arange(_WINDOW * _FINE, device=picture.device) + 0.5) / _FINE
    first = torch.arange(count, device=picture.device)[:, None, None]
    apart = []
    for slot in range(patches.shape[1]):
        scale = (SIDE - 2 * BORDER) / (long[:, slot] * SIDE / 2)
        x, y = (
            (origin[:, slot, axis, None] + fine - centres[:, slot, axis, None]) * scale[:, None]
            for axis in (0, 1)
        )
        x = x * mirrored[:, slot, None]
        grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), -1)
        drawn = functional.grid_sample(patches[:, slot], grid, align_corners=False)
        drawn = functional.avg_pool2d(drawn, _FINE)
        down = (origin[:, slot, 1, None] + pad + along)[:, :, None]
        right = (origin[:, slot, 0, None] + pad + along)[:, None, :]
        behind = canvas[first, :, down, right].permute(0, 3, 1, 2)
        colours, opaque = drawn[:, :3], drawn[:, 3:]
        over = colours + (1 - opaque) * behind
        canvas[first, :, down, right] = over.permute(0, 2, 3, 1)
        hidden = opaque.sum((1, 2, 3)) + 1e-6
        apart.append((over - behind).abs().mean(1).sum((1, 2)) / hidden)
    return canvas[:, :, pad : pad + height, pad : pad + width], torch.stack(apart, 1)


def wanted(objects: Tensor, side: int, kinds: int = len(KINDS)) -> Tensor:
    """What a net is to say of objects [batch, slots, 7]: [batch, kinds + 6, side, side].

    An object is its kind, centre (across, down), size, whether it counts (1, 0 for none there, -1
    for one that is hardly seen), and how far it is from what lies behind it. The planes: heat of
    each kind; width and height over a cell; where in its cell the centre is; whether there is one;
    where nothing counts.
    """
    count, slots, _ = objects.shape
    at = torch.arange(side, device=objects.device)
    made = torch.zeros(count, kinds + 6, side, side, device=objects.device)
    heat, numbers = made[:, :kinds], torch.arange(kinds, device=objects.device)
    for slot in range(slots):
        kind, x, y, wide, high, seen, _ = objects[:, slot].unbind(-1)
        column, row = (x / CELL).floor(), (y / CELL).floor()
        deviation = 0.35 + 0.12 * torch.maximum(wide, high) / CELL
        square = (at - column[:, None])[:, None, :] ** 2 + (at - row[:, None])[:, :, None] ** 2
        near = torch.exp(-square / (2 * deviation[:, None, None] ** 2))
        there = (seen > 0)[:, None, None]
        own = (numbers == kind[:, None])[..., None, None] & there[:, None]
        heat.copy_(torch.maximum(heat, near[:, None] * own))
        centre = (square == 0) & there
        said = wide / CELL, high / CELL, x / CELL - column, y / CELL - row
        for number, value in enumerate(said):
            plane = made[:, kinds + number]
            plane.copy_(torch.where(centre, value[:, None, None], plane))
        made[:, -2] = torch.maximum(made[:, -2], centre.float())
        lost = ((near > 0.05) & (seen < 0)[:, None, None]).float()
        made[:, -1] = torch.maximum(made[:, -1], lost)
    return made


def cost(got: Tensor, target: Tensor) -> Tensor:
    """Focal loss of heat, absolute differences of sizes and places (Zhou and others 2019)."""
    kinds = target.shape[1] - 6
    logits, heat = got[:, :kinds], target[:, :kinds]
    centre, lost = target[:, -2:-1], target[:, -1:]
    objects = centre.sum().clamp(min=1)
    yes, no = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    share = logits.sigmoid()
    peak = (heat >= 1 - 1e-4).float()
    found = peak * (1 - share) ** 2 * yes
    rest = (1 - peak) * (1 - lost) * (1 - heat) ** 4 * share**2 * no
    said = (got[:, kinds:] - target[:, kinds : kinds + 4]).abs() * centre
    return -(found + rest).sum() / objects + (0.3 * said[:, :2].sum() + said[:, 2:].sum()) / objects
