"""Pictures with drawn objects at known places, to judge detectors by, and how many are found.

The objects are drawn by other seeds than those that a net learned from; each is 10 to 16 samples
at its longer side, and drawn again until red, green and blue differ by VISIBLE on average from what
lies behind it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilewright.video.detection.boxes import Boxes, overlaps
from tilewright.video.detection.kinds import KINDS
from tilewright.video.look import Frame, Look
from train.objects import drawn, extent
from train.pasted import laid
from train.photographs import NDArray

WIDE, HIGH = 640, 360
SMALLEST, LARGEST = 10.0, 16.0
VISIBLE = 0.12
ALIKE = 0.5  # overlap from which on a box has found a thing
HIDDEN = -1  # the kind of what hardly differs from what lies behind it in that picture
LOOK = Look(WIDE, HIGH, "yuv420p", 8, "yuv", halved=(1, 1))
_TRIES = 50
_MOVING = 8
_PART = 48  # samples of a side of what a thing is pasted into
_SEED = 1_000_003  # learning draws by small ones


@dataclass(frozen=True, eq=False)
class Thing:
    """A drawn object.

    kind    its number in KINDS
    patch   as `objects.drawn` gives it
    long    samples of its longer side
    """

    kind: int
    patch: NDArray
    long: float

    def box(self, x: float, y: float) -> NDArray:
        """Left, top, right, bottom with its middle there."""
        wide, high = (self.long * share for share in extent(self.patch))
        return np.array([x - wide / 2, y - high / 2, x + wide / 2, y + high / 2])


def thing(kind: int, number: int) -> Thing:
    """One of a kind, by its number."""
    chance = np.random.default_rng((_SEED, kind, number))
    return Thing(kind, drawn(kind, chance), float(chance.uniform(SMALLEST, LARGEST)))


def pasted(picture: NDArray, one: Thing, x: float, y: float) -> tuple[NDArray, float]:
    """A picture [3, rows, columns] of 0 to 1 with a thing in it, and how far that is from it."""
    _, rows, columns = picture.shape
    top, left = (
        int(np.clip(at - _PART / 2, 0, max(0, length - _PART)))
        for at, length in ((y, rows), (x, columns))
    )
    part = (slice(None), slice(top, top + _PART), slice(left, left + _PART))
    found, apart = laid(
        torch.from_numpy(picture[part])[None],
        torch.from_numpy(one.patch)[None, None],
        torch.tensor([[[x - left, y - top]]]),
        torch.tensor([[one.long]]),
        torch.ones(1, 1),
    )
    made = picture.copy()
    made[part] = found[0].numpy()
    return made, float(apart)


@dataclass(frozen=True, eq=False)
class Scene:
    """A picture, [3, rows, columns] of 0 to 1, and what is in it."""

    picture: NDArray
    corners: NDArray
    kinds: NDArray


@dataclass(frozen=True, eq=False)
class Given:
    """A scene as a net reads it: planes [1, 24, rows, columns]."""

    planes: NDArray
    corners: NDArray
    kinds: NDArray


Row = tuple[NDArray, NDArray, Boxes]  # corners and kinds of what is there, and what is found


def scene(picture: NDArray, count: int, seed: int) -> Scene:
    """A picture with so many things in it, none nearer to another than two of their sizes."""
    chance = np.random.default_rng((_SEED, seed))
    corners: list[NDArray] = []
    kinds: list[int] = []
    _, high, wide = picture.shape
    for number in range(count):
        for attempt in range(_TRIES):
            kind = int(chance.integers(len(KINDS)))
            one = thing(kind, _TRIES * (count * seed + number) + attempt)
            x, y = chance.uniform(12, wide - 12), chance.uniform(12, high - 12)
            middles = [(box[:2] + box[2:]) / 2 for box in corners]
            if any(np.hypot(*(middle - (x, y))) < 2 * LARGEST for middle in middles):
                continue
            made, apart = pasted(picture, one, x, y)
            if apart < VISIBLE:
                continue
            picture = made
            corners.append(one.box(x, y))
            kinds.append(kind)
            break
    return Scene(picture, np.asarray(corners).reshape(-1, 4), np.asarray(kinds, np.int64))


def photograph(path: Path, more: int = 0) -> NDArray:
    """The middle of a photograph made so small that it fills 640 x 360: [3, 360, 640], 0 to 1.

    more: rows and columns that are wanted beyond these.
    """
    from PIL import Image, ImageOps

    with Image.open(path) as picture:
        fitted = ImageOps.fit(
            picture.convert("RGB"), (WIDE + more, HIGH + more), Image.Resampling.BICUBIC
        )
    return np.ascontiguousarray(np.asarray(fitted, np.float32).transpose(2, 0, 1) / 255)


def moving(pictures: Iterable[NDArray], count: int, seed: int) -> list[Scene]:
    """The first pictures of a clip, 640 x 360, with eight things that move through them.

    In a picture in which one hardly differs from what it moves over, its kind is HIDDEN.
    """
    chance = np.random.default_rng(seed)
    things = [thing(int(chance.integers(4)), 1000 * seed + n) for n in range(_MOVING)]
    # A cell of 4 x 2 each, so that they never meet.
    places = np.array([[WIDE / 4 * (n % 4 + 0.5), HIGH / 2 * (n // 4 + 0.5)] for n in range(8)])
    speeds = chance.uniform(-2.5, 2.5, (_MOVING, 2))
    found = []
    for number, picture in enumerate(islice(pictures, count)):
        corners, kinds = [], []
        for one, place, speed in zip(things, places, speeds, strict=True):
            x, y = place + speed * (number - count / 2)
            picture, apart = pasted(picture, one, float(x), float(y))
            corners.append(one.box(float(x), float(y)))
            kinds.append(one.kind if apart >= VISIBLE else HIDDEN)
        found.append(Scene(picture, np.asarray(corners), np.asarray(kinds)))
    return found


def coded(pictures: Sequence[NDArray]) -> list[Frame]:
    """Pictures [3, 360, 640] of 0 to 1 as x264 keeps them at CRF 23."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        stream = out.add_stream("libx264", rate=25, options={"crf": "23", "preset": "medium"})
        stream.width, stream.height, stream.pix_fmt = WIDE, HIGH, "yuv420p"
        for picture in pictures:
            codes = np.rint(picture.transpose(1, 2, 0) * 255).clip(0, 255).astype(np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(codes, "rgb24")))
        out.mux(stream.encode(None))
    file.seek(0)
    with av.open(file) as container:
        return [framed(one, number) for number, one in enumerate(container.decode(video=0))]


def framed(made: Any, number: int) -> Frame:
    """A picture of PyAV's, 4:2:0, as a film's."""
    planes = []
    for plane, (rows, columns) in zip(made.planes, LOOK.shapes, strict=True):
        flat = np.frombuffer(plane, np.uint8)[: rows * plane.line_size]
        planes.append(flat.reshape(rows, plane.line_size)[:, :columns].copy())
    return Frame(tuple(planes), number, 1, Fraction(1, 25), LOOK)


def without_hidden(
    corners: NDArray, kinds: NDArray, boxes: Boxes
) -> tuple[NDArray, NDArray, Boxes]:
    """Without what is hidden, and boxes of that: neither right nor wrong."""
    hidden = kinds == HIDDEN
    on_it = np.asarray((overlaps(boxes.corners, corners[hidden]) > 0.2).any(1))
    return corners[~hidden], kinds[~hidden], boxes.chosen(np.logical_not(on_it))


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Scores of what was found and of what was not there; `things` that were there."""

    hits: NDArray
    wrong: NDArray
    things: int
    pictures: int

    def recall(self, rate: float) -> tuple[float, float]:
        """The share that is found at so many false boxes a picture, and the score from which on."""
        allowed = int(rate * self.pictures)
        order = np.sort(self.wrong)[::-1]
        score = float(np.nextafter(order[allowed], np.inf)) if allowed < len(order) else 0.0
        return float((self.hits >= score).sum() / max(1, self.things)), score


def judged(
    found: Iterable[tuple[NDArray, NDArray, Boxes]], alike: float = ALIKE, kind: bool = True
) -> Judged:
    """Boxes against things (corners, kinds), best scores first, a thing once.

    kind: whether a box of another kind is wrong.
    """
    hits: list[float] = []
    wrong: list[float] = []
    things = pictures = 0
    for corners, kinds, boxes in found:
        pictures, things = pictures + 1, things + len(corners)
        good = overlaps(boxes.corners, corners)
        if kind:
            good = np.where(boxes.kinds[:, None] == kinds[None], good, 0)
        for number in np.argsort(-boxes.scores, kind="stable"):
            row = good[number]
            if len(row) and row.max() >= alike:
                hits.append(float(boxes.scores[number]))
                good[:, int(row.argmax())] = 0
            else:
                wrong.append(float(boxes.scores[number]))
    return Judged(np.asarray(hits), np.asarray(wrong), things, pictures)


def by_kind(found: Sequence[tuple[NDArray, NDArray, Boxes]], score: float) -> dict[str, float]:
    """The share of each kind that is found from a score on."""
    shares = {}
    for number, name in enumerate(KINDS):
        some = []
        for corners, kinds, boxes in found:
            mine = kinds == number
            some.append((corners[mine], kinds[mine], boxes.chosen(boxes.kinds == number)))
        one = judged(some)
        shares[name] = float((one.hits >= score).sum() / max(1, one.things))
    return shares
