"""What detectors are judged by while they learn: held-out photographs, as pictures and as clips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tilewright.video.detection.boxes import merged
from tilewright.video.detection.heat import both_ways, peaks, planes
from train.pasted import by_places
from train.photographs import NDArray
from train.scenes import (
    HIGH,
    WIDE,
    Given,
    Judged,
    Row,
    Scene,
    coded,
    judged,
    moving,
    photograph,
    scene,
    without_hidden,
)
from train.seeking import Seeker

LEAST = 0.02  # score of boxes that are judged
_THINGS, _SCENES = 8, 4  # of a picture, and pictures of a photograph
_PICTURES = 12  # of a clip


def judging(files: list[Path]) -> list[Given]:
    """Photographs that judge, with things in them, as pictures and as clips."""
    return [*stills(files), *(one for clip in clips(files) for one in clip)]


def stills(files: list[Path]) -> list[Given]:
    """Photographs with things in them."""
    pictures = [photograph(path) for path in files]
    return [
        given(scene(one, _THINGS, number * _SCENES + turn))
        for number, one in enumerate(pictures)
        for turn in range(_SCENES)
    ]


def given(one: Scene) -> Given:
    """A scene as a net reads it."""
    return Given(read_by_net(one.picture).numpy(), one.corners, one.kinds)


def clips(files: list[Path]) -> list[list[Given]]:
    """Clips with things that move, as x264 keeps them, the camera at rest and moving."""
    found = []
    for number, path in enumerate(files):
        for speed in (0, 2):
            shown = shifted(photograph(path, 40), speed)
            scenes = moving(shown, _PICTURES, 1000 + 2 * number + speed // 2)
            frames = coded([one.picture for one in scenes])
            found.append([
                Given(planes(frame), one.corners, one.kinds)
                for one, frame in zip(scenes, frames, strict=True)
            ])  # fmt: skip
    return found


def shifted(whole: NDArray, speed: int) -> list[NDArray]:
    """Windows of 640 x 360 that move on by so many samples each, down by half as many."""
    return [
        whole[:, n * speed // 2 : n * speed // 2 + HIGH, n * speed : n * speed + WIDE]
        for n in range(_PICTURES)
    ]


def read_by_net(picture: NDArray) -> Tensor:
    """What a net reads of red, green and blue of 0 to 1."""
    x = torch.from_numpy(picture)[None]
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return by_places((x * weights).sum(1, keepdim=True), x)


@torch.no_grad()
def seen(net: Seeker, scenes: Sequence[Given], device: str) -> list[Row]:
    """What is there and what a net finds, of each picture."""

    def run(read: NDArray) -> NDArray:
        return np.asarray(net(torch.from_numpy(read).to(device)).cpu().numpy())

    rows = []
    for one in scenes:
        said = both_ways(run, one.planes)[0]
        rows.append(without_hidden(one.corners, one.kinds, merged(peaks(said, LEAST))))
    return rows


def found(net: Seeker, scenes: Sequence[Given], device: str) -> Judged:
    """How a net does on scenes."""
    return judged(seen(net, scenes, device))
