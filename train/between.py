"""What a net of fusion reads between two pictures, by the stage's own motion, and what is wanted.

    made    layers of photographs (`layered.py`), and pictures of clips (`dropped.py`) -> files, by
            all cores; those that are there already are kept
    Seen    crops of these, mirrored, turned, and with first and second changed about

Half of the rendered pictures have their motion found at half their size, as large films have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tilewright.video.look import Frame, Look
from tilewright.video.motion import Motion
from train.fuser import READ, SAID
from train.layered import SIDE, coded, photographs, scenes
from train.photographs import NDArray

_LOST = 0.3  # of a picture in doubt: the stage shows the nearer one
_BATCH, _FILE = 16, 64  # pictures that are rendered at once, and of a file
_SEED = 3_000_017
_LEAST = 8  # a clip's window is cut into squares so many samples apart, at least
Triple = tuple[NDArray, float, int]
_photographs = lru_cache(maxsize=1)(photographs)


class _Keeps:
    """In the place of a network: what it would read is kept, and nothing is changed."""

    def __init__(self, like: Look) -> None:
        size = -(-like.height // 2), -(-like.width // 2)
        self.given = np.zeros((READ, *size), np.float32)
        self._said = np.zeros((SAID, *size), np.float32)

    def __call__(self) -> NDArray:
        return self._said


@lru_cache(maxsize=4)
def _motion(rows: int, columns: int, finest: int) -> tuple[Motion, _Keeps, Look]:
    look = Look(columns, rows, "gray", 8, "grey")
    keeps = _Keeps(look)
    return Motion(look, keeps, finest), keeps, look


def seen(triple: Triple) -> tuple[NDArray, NDArray] | None:
    """Planes, float16 [READ, rows / 2, columns / 2], and wanted by its places of 2 x 2, uint8.

    None where the stage would not make a picture of these two.
    """
    pictures, share, finest = triple
    motion, keeps, look = _motion(*pictures.shape[1:], finest)
    first, second = (
        Frame((np.ascontiguousarray(one),), n, 1, Fraction(1), look)
        for n, one in enumerate(pictures[::2])
    )
    motion.given(first, second)
    if motion.repeats():
        return None
    motion.found()
    if motion.between(share, (np.empty(pictures.shape[1:], np.uint8),)) > _LOST:
        return None
    wanted = functional.pixel_unshuffle(torch.from_numpy(pictures[1].copy())[None], 2)
    return keeps.given.astype(np.float16), wanted.numpy()


def _rendered(folder: Path, begin: int, path: Path) -> None:
    """A file of rendered scenes, of which every second one's motion is found at half its size."""
    found = []
    for first in range(begin, begin + _FILE, _BATCH):
        chance = np.random.default_rng((_SEED, first))
        pictures, shares = scenes(_photographs(folder), chance, _BATCH, "cpu")
        for number, (one, share) in enumerate(zip(pictures.numpy(), shares, strict=True)):
            found.append(seen((coded(one, chance), float(share), number % 2)))
    _kept(path, found)


def _filmed(triples: list[Triple], path: Path) -> None:
    """A file of clips' pictures."""
    _kept(path, [seen(one) for one in triples])


def _kept(path: Path, found: list[tuple[NDArray, NDArray] | None]) -> None:
    planes, wanted = zip(*(one for one in found if one is not None), strict=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, planes=np.stack(planes), wanted=np.stack(wanted))
    part.replace(path)


def _squares(triples: list[tuple[NDArray, float]]) -> Iterator[Triple]:
    """Squares of clips' windows, of the left and of the right end."""
    for number, (pictures, share) in enumerate(triples):
        rows, columns = pictures.shape[1:]
        top = (number * _LEAST) % (rows - SIDE + 1) // 2 * 2
        for left in (0, (columns - SIDE) // 2 * 2):
            yield pictures[:, top : top + SIDE, left : left + SIDE], share, number % 2


def made(source: Path, clips: list[tuple[NDArray, float]], folder: Path, count: int) -> list[Path]:
    """Files of so many scenes of photographs, and of clips' pictures, on all cores."""
    folder.mkdir(parents=True, exist_ok=True)
    empty = np.zeros((3, SIDE, SIDE), np.uint8)
    empty[2] = 90
    for finest in (0, 1):  # compiled here, once, before all cores ask for it
        seen((empty, 0.5, finest))
    squares = list(_squares(clips))
    layers = {folder / f"layers-{n:06d}.npz": n for n in range(0, count, _FILE)}
    films = {folder / f"clips-{n:06d}.npz": n for n in range(0, len(squares), _FILE)}
    context = get_context("spawn")  # as CUDA may be in use by now
    with ProcessPoolExecutor(os.cpu_count(), context, torch.set_num_threads, (1,)) as pool:
        going = [
            pool.submit(_rendered, source, n, path)
            for path, n in layers.items()
            if not path.exists()
        ]
        going += [
            pool.submit(_filmed, squares[n : n + _FILE], path)
            for path, n in films.items()
            if not path.exists()
        ]
        for one in going:
            one.result()
    return [*layers, *films]


_FLIPS = ([2, 3, 0, 1], [1, 0, 3, 2])  # places of 2 x 2 of a picture mirrored: down, across


class Seen:
    """Crops of what `made` wrote, `size` planes' samples a side."""

    def __init__(self, paths: list[Path], size: int, device: str, clips: float) -> None:
        """`clips` is how often a crop is of a clip."""
        planes, wanted, films = [], [], []
        for path in paths:
            with np.load(path) as kept:
                planes.append(torch.from_numpy(kept["planes"]).to(device))
                wanted.append(torch.from_numpy(kept["wanted"]).to(device))
            films += [path.name.startswith("clips")] * len(planes[-1])
        self._planes, self._wanted = torch.cat(planes), torch.cat(wanted)
        self._films = np.flatnonzero(films)
        self._layers = np.flatnonzero(~np.asarray(films))
        self._clips, self._size = clips if len(self._films) else 0.0, size
        self._along = torch.arange(size, device=device)
        self._ways = [torch.tensor(one, device=device) for one in _FLIPS]

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Which, top, left, whether mirrored down and across, changed about: [steps, batch, 7]."""
        shape = (steps, batch)
        which = chance.choice(self._layers, shape)
        if self._clips:
            film = chance.random(shape) < self._clips
            which = np.where(film, chance.choice(self._films, shape), which)
        room = np.asarray(self._planes.shape[2:]) - self._size + 1
        corner = (chance.random((*shape, 2)) * room).astype(np.int64)
        return np.concatenate([which[..., None], corner, chance.integers(2, size=(*shape, 4))], -1)

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What the net reads, and the picture that is wanted, 0 to 1."""
        which, top, left, *turns, swapped, _ = rows.unbind(1)
        along = [self._along + one[:, None] for one in (top, left)]
        back = [self._along.flip(0) + one[:, None] for one in (top, left)]
        down, right = (
            torch.where(turn[:, None] > 0, b, a)
            for turn, a, b in zip(turns, along, back, strict=True)
        )
        place = which[:, None, None], slice(None), down[:, :, None], right[:, None, :]
        x = self._planes[place].permute(0, 3, 1, 2)
        target = self._wanted[place].permute(0, 3, 1, 2)
        groups = torch.cat([x[:, :20].float(), target.float()], 1).unflatten(1, (6, 4))
        for turn, way in zip(turns, self._ways, strict=True):
            groups = torch.where(turn[:, None, None, None, None] > 0, groups[:, :, way], groups)
        one, other, still, part, apart, target = groups.unbind(1)
        share, swap = x[:, 22:].float(), swapped[:, None, None, None] > 0
        read = [
            torch.where(swap, other, one), torch.where(swap, one, other), still,
            torch.where(swap, 1 - part, part), apart, x[:, 20:22].float(),
            torch.where(swap, 1 - share, share),
        ]  # fmt: skip
        return torch.cat(read, 1), functional.pixel_shuffle(target, 2) / 255
