"""Crops of a film's pictures whose boxes a person corrected (`tilewright label`), as nets learn.

Half of the crops lie round a box, the others anywhere. Where all classes are those of the net that
is brought along, half of a batch are drawn objects pasted into photographs, so that these stay
known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tilewright import models
from tilewright.nn.net import Network
from tilewright.video.decode import decoded
from tilewright.video.detection.heat import CELL
from tilewright.video.detection.kinds import KINDS
from tilewright.video.detection.labels import read
from tilewright.video.detection.letterbox import coloured
from tilewright.video.source import film
from train.damage import Pictures
from train.pasted import Pasted, by_places, wanted
from train.photographs import NDArray
from train.scenes import Scene
from train.seeking import Seeker

_JUDGES = 5  # each so-manieth picture only judges
_NEAR = 0.5  # share of crops round a box


@dataclass(frozen=True, eq=False)
class Marked:
    """Pictures of a film with their boxes, the classes, and what tells the table from others."""

    scenes: list[Scene]
    classes: tuple[str, ...]
    mark: str

    @property
    def learned(self) -> list[Scene]:
        """Those that are learned from."""
        return [one for at, one in enumerate(self.scenes) if (at + 1) % _JUDGES]

    @property
    def judging(self) -> list[Scene]:
        """The others; all of them where there are few."""
        return self.scenes[_JUDGES - 1 :: _JUDGES] or self.scenes


def marked(table: Path, source: Path) -> Marked:
    """The pictures of a table, decoded. Raises FileError, ValueError where the film is another."""
    rows = {one.frame: one for one in read(table)}
    names = {thing.kind for one in rows.values() for thing in one.things}
    if not names:
        raise ValueError(f"{table}: no box is kept; accepted is a table with some")
    classes = KINDS if names <= set(KINDS) else tuple(sorted(names))
    scenes = []
    with closing(decoded(film(source))) as pictures:
        for number, frame in enumerate(pictures):
            if (row := rows.pop(number, None)) is None:
                continue
            if abs(float(frame.time) - row.time) > 1e-3:
                raise ValueError(
                    f"{table}: picture {number} is at {row.time} s, in {source} at"
                    f" {float(frame.time)}; accepted is a table of that film"
                )
            high, wide = (length // CELL * CELL for length in (frame.look.height, frame.look.width))
            pixels = coloured(frame, frame.look.width, frame.look.height)[:high, :wide]
            corners = [(one.x, one.y, one.x + one.w, one.y + one.h) for one in row.things]
            scenes.append(
                Scene(
                    np.ascontiguousarray(pixels.transpose(2, 0, 1).astype(np.float32) / 255),
                    np.asarray(corners).reshape(-1, 4),
                    np.asarray([classes.index(one.kind) for one in row.things], np.int64),
                )
            )
    if rows:
        raise ValueError(f"{table}: picture {min(rows)} is not in {source}")
    return Marked(scenes, classes, hashlib.sha256(table.read_bytes()).hexdigest())


class OfFilm:
    """Crops of such pictures, and of pasted objects where `pasted` is given."""

    def __init__(
        self, scenes: Sequence[Scene], kinds: int, size: int, device: str, pasted: Pasted | None
    ) -> None:
        sides = [tuple((one.picture * 255).round().astype(np.uint8)) for one in scenes]
        self._pictures = Pictures(sides, size, device)
        self._scenes, self._size, self._kinds, self._pasted = scenes, size, kinds, pasted
        areas = np.asarray([one[0].size for one in sides])
        self._starts = np.cumsum(areas) - areas
        most = max(1, *(len(one.kinds) for one in scenes))
        boxes = np.zeros((len(scenes), most, 6), np.float32)
        for number, one in enumerate(scenes):
            middles = (one.corners[:, :2] + one.corners[:, 2:]) / 2
            lengths = one.corners[:, 2:] - one.corners[:, :2]
            parts = one.kinds[:, None], middles, lengths, np.ones((len(one.kinds), 1))
            boxes[number, : len(one.kinds)] = np.concatenate(parts, 1)
        self._boxes = torch.from_numpy(boxes).to(device)
        self._begins = torch.from_numpy(self._starts).to(device)

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Places of crops, [steps, batch, 7], those with pasted objects first."""
        own = batch - batch // 2 if self._pasted else batch
        rows = np.stack([self._near(chance, own) for _ in range(steps)])
        if self._pasted is None:
            torch.manual_seed(int(chance.integers(2**62)))
            return rows
        return np.concatenate([self._pasted.drawn(chance, steps, batch - own), rows], 1)

    def _near(self, chance: np.random.Generator, count: int) -> NDArray:
        rows = self._pictures.drawn(chance, count)
        some = [number for number, one in enumerate(self._scenes) if len(one.kinds)]
        for row in rows:
            if chance.random() < _NEAR:
                number = int(chance.choice(some))
                one = self._scenes[number]
                box = one.corners[int(chance.integers(len(one.corners)))]
                _, high, wide = one.picture.shape
                corner = (box[:2] + box[2:]) / 2 - self._size * chance.random(2)
                left, top = corner.clip(0, [wide - self._size, high - self._size])
                row[:4] = self._starts[number], wide, int(top), int(left)
        return rows

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What a net reads, and what is wanted of it."""
        drawn = len(rows) // 2 if self._pasted else 0
        x, target = self._own(rows[drawn:])
        if self._pasted is None:
            return x, target
        given, said = self._pasted.at(rows[:drawn])
        return torch.cat([given, x]), torch.cat([said, target])

    def _own(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        picture = torch.cat(self._pictures.at(rows), 1)
        start, _, top, left, *turns = rows.unbind(1)
        boxes = self._boxes[torch.searchsorted(self._begins, start, right=True) - 1]
        kind, x, y, wide, high, seen = boxes.unbind(-1)
        x, y = x - left[:, None], y - top[:, None]
        y = torch.where(turns[0][:, None] > 0, self._size - y, y)
        x = torch.where(turns[1][:, None] > 0, self._size - x, x)
        turned = turns[2][:, None] > 0
        x, y = torch.where(turned, y, x), torch.where(turned, x, y)
        wide, high = torch.where(turned, high, wide), torch.where(turned, wide, high)
        inside = (x >= 0) & (y >= 0) & (x < self._size) & (y < self._size)
        objects = torch.stack([kind, x, y, wide, high, seen * inside, seen], -1)
        weights = torch.tensor([0.299, 0.587, 0.114], device=rows.device).view(1, 3, 1, 1)
        given = by_places((picture * weights).sum(1, keepdim=True), picture)
        return given, wanted(objects, self._size // CELL, self._kinds)


def begun(net: Seeker, kinds: int) -> Seeker:
    """A net with the weights of the one that is brought along; of its classes where they are."""
    found = shipped(models.load("detect-s"))
    with torch.no_grad():
        for tensor, other in zip(net.tensors[:-2], found[:-2], strict=True):
            tensor.copy_(other)
        for tensor, other in zip(net.tensors[-2:], found[-2:], strict=True):
            tensor[kinds:] = other[len(KINDS) :]
            if kinds == len(KINDS):
                tensor[:kinds] = other[:kinds]
    return net


def shipped(net: Network) -> list[Tensor]:
    """Kernels and biases of a network in a file, in the order of its layers."""
    found = []
    for node in net.graph.nodes:
        if node.operator == "Conv":
            for name in node.inputs[1:3]:
                found.append(torch.from_numpy(np.array(net.graph.constants[name].value)))
    return found
